# SPDX-License-Identifier: BSD-3-Clause
"""The software HCA must not hide the cost of the layers above: perftest on it, against memcpy and vader."""
import os
import re
import shutil
import socket
import subprocess
import time

import runs
from runs import jobs
import stats
from free import latency, transport

SOFTHCA_RUN = os.path.join(jobs.SRCDIR, "contrib", "softhca", "softhca-run")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def need_softhca():
    if not os.path.exists(SOFTHCA_RUN):
        raise runs.Unavailable("contrib/softhca/softhca-run does not exist")
    if not os.path.exists(os.path.join(jobs.BUILD, "contrib", "softhca", "lib", "libibverbs.so.1")):
        raise runs.Unavailable("contrib/softhca/lib/libibverbs.so.1 is not built")


def perftest(tool, arguments, limit_s=60):
    """Runs server and client of a perftest tool on one fabric; returns the client's output."""
    if not shutil.which(tool):
        raise runs.Unavailable(f"{tool} is not installed (Debian: perftest)")
    need_softhca()
    fabric = f"bench-{os.getpid()}-{time.monotonic_ns() & 0xffffff}"
    port = str(free_port())
    command = [SOFTHCA_RUN, "--rails", "1", "--fabric", fabric, "--", tool, "-d", "softhca0", "-F", "-p", port, *arguments]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):  # the server listens when /proc/net/tcp says so
            with open("/proc/net/tcp") as f, open("/proc/net/tcp6") as g:
                if f":{int(port):04X} 0" in f.read() + g.read():
                    break
            if server.poll() is not None:
                raise runs.Unavailable(f"the server of {tool} ended with {server.returncode}")
            time.sleep(0.05)
        result = jobs.run_command([*command, "127.0.0.1"], limit_s)
        if result.code != 0:
            raise runs.Unavailable(f"{tool} ended with {result.code}: {result.tail(1)[:100]}")
        return result.output
    finally:
        try:
            server.wait(3)
        except subprocess.TimeoutExpired:
            jobs.kill(server)


def figure(output, size, column):
    """A number of perftest's result line for `size` bytes."""
    for line in output.splitlines():
        fields = line.split()
        if fields and fields[0] == str(size) and len(fields) > column:
            return float(fields[column])
    raise runs.Unavailable("perftest printed no result line")


def send_latency():
    """RC 8-byte one-way latency in us: #bytes #iterations t_min t_max t_typical t_avg ..."""
    return figure(perftest("ib_send_lat", ["-s", "8", "-n", "20000", "-c", "RC"]), 8, 4)


def device(table, options):
    name = "ib_send_lat 8 B RC, against MPI over vader"
    try:
        raw, vader = runs.pairs(send_latency, lambda: latency(transport("ob1", "vader")),
                                options.pairs)
        runs.compare(table, name, "us", raw, vader, "<= 3.0")
    except runs.Unavailable as why:
        table.missing(name, "us", "<= 3.0", str(why))

    name = "ib_write_bw 1 MiB, against one memcpy stream"
    try:
        def copy_rate():
            return runs.last_json(jobs.run_command([runs.program("copy_rate")], 60).output)["many_blocks_mbs"]

        def write_bw():  # #bytes #iterations BW-peak BW-average MsgRate, in 2^20 bytes per second
            return figure(perftest("ib_write_bw", ["-s", "1048576", "-n", "2000"]), 1048576, 3) * 1.048576

        written, copied = runs.pairs(write_bw, copy_rate, options.pairs)
        runs.compare(table, name, "MB/s", written, copied, ">= 0.8")
    except runs.Unavailable as why:
        table.missing(name, "MB/s", ">= 0.8", str(why))


def above_raw(table, options):
    """What MPI adds to the device: half round trip of bfo over verbs minus ib_send_lat."""
    name = "latency 8 B, bfo over verbs minus ib_send_lat"
    way = jobs.Transport("bfo over verbs, one rail", "bfo", "verbs,self", softhca=True, rails=1)
    try:
        ours, raw = runs.pairs(lambda: latency(way, figure="median"), send_latency, options.pairs)  # of both
    except runs.Unavailable as why:
        table.missing(name, "us", "<= 0.03", str(why))
        return
    added = [x - y for x, y in zip(ours, raw)]
    table.add(name, stats.median(added), "us", interval=stats.bootstrap(added), goal="<= 0.03",
              note=f"{stats.median(ours):.3f} us against {stats.median(raw):.3f} us, {len(added)} interleaved pairs; "
                   "Debian's openib adds 2.2 us")


def post_and_poll(table, options):
    """Instructions to post and complete one 8-byte send, in the device."""
    name = "softhca instructions per 8 B post + poll"
    try:
        if not shutil.which("valgrind"):
            raise runs.Unavailable("valgrind is not installed (Debian: valgrind)")
        program = runs.program("post_poll")
        need_softhca()
        counts = []
        for messages in (1000, 3000):
            out = os.path.join(table.folder, "post_poll.callgrind")
            result = jobs.run_command([SOFTHCA_RUN, "--rails", "1", "--", "valgrind", "--tool=callgrind",
                                       f"--callgrind-out-file={out}", program, str(messages)], 120)
            found = re.search(r"Collected : (\d+)", result.output)
            if result.code or not found:
                raise runs.Unavailable(f"ended with {result.code} under valgrind: {result.tail(1)[:100]}")
            counts.append(int(found.group(1)))
    except runs.Unavailable as why:
        table.missing(name, "Ir", None, str(why))
        return
    table.add(name, (counts[1] - counts[0]) / 2000, "Ir", note="send, receive and both completions")


def system_call(size, options):
    """The system call that the software HCA makes for a READ, without verbs or MPI: us of `size` bytes in pieces of 1 MiB,
    and at once. 1 MiB is the longest READ of a message that several rails share, one rail reads it at once."""
    def copy(piece):
        line = runs.last_json(jobs.run_command([runs.program("pieces"), str(size), str(piece)], 60).output)
        if line is None:
            raise runs.Unavailable("pieces printed no result")
        return line["us"]

    return runs.pairs(lambda: copy(1 << 20), lambda: copy(size), options.pairs)


def pieces(table, options):
    """What that is for the longest messages of the curves."""
    for size in (2 << 20, 4 << 20, 8 << 20):
        name = f"process_vm_readv of {size} B in pieces of 1 MiB, against one"
        try:
            cut, whole = system_call(size, options)
        except runs.Unavailable as why:
            table.missing(name, "us", None, str(why))
            continue
        ratios = [b / a for a, b in zip(cut, whole)]
        table.add(name, stats.median(cut), "us", against=stats.median(whole), ratio=stats.median(ratios),
                  interval=stats.bootstrap(ratios), note=f"ratio of speeds, {len(ratios)} interleaved pairs")
