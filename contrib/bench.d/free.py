# SPDX-License-Identifier: BSD-3-Clause
"""Free when nothing breaks: bfo against ob1 over the same BTL, and against the other ways to use the same HCA."""
import os
import re
import shlex
import subprocess
import shutil
import tempfile

import runs
from runs import jobs
import stats

BTLS = {"vader": "vader,self", "tcp": "tcp,self", "verbs": "verbs,self"}


def transport(pml, btl, **options):
    softhca = btl in ("verbs", "openib") or pml == "ucx"
    return jobs.Transport(f"{pml} over {btl}", pml, BTLS.get(btl, btl + ",self"), softhca=softhca, **options)


# A job's bandwidth depends on which pages its buffers got, by several percent: it takes more jobs than latency does.
BANDWIDTH_JOBS = 3


def latency(way, iterations=300, blocks=60, mca=(), env=None, limit_s=60, figure="p10"):
    """Microseconds of half a round trip of 8 bytes in one job: by default the first decile of its blocks, what the code
    takes when the rest of the machine keeps still."""
    command = [runs.program("pong"), "--latency", "8", "--blocks", str(blocks), "--iterations", str(iterations)]
    line, _ = runs.job(way, command, limit_s, mca=mca, env=env)
    return line["latency_us"][figure]


def bandwidth(way):
    """10^6 bytes per second in messages of 4 MiB in one job: the last decile of its windows."""
    line, _ = runs.job(way, [runs.program("pong"), "--bandwidth", str(4 << 20)])
    return line["bandwidth_mbs"]["p90"]


def memory(table, options):
    """Bytes per peer, request and communicator, with their limits: memory_sizes_test pins them."""
    result = subprocess.run([runs.program("memory")], stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    for line in result.stdout.splitlines():
        what, size, limit = line.split("\t")
        table.add(f"memory: {what}", int(size), "B", goal=f"<= {limit}")


def against_ob1(table, options):
    """8-byte latency and 4 MiB bandwidth, bfo against ob1."""
    for btl in BTLS:
        ours, theirs = transport("bfo", btl), transport("ob1", btl)
        for name, measure, count, unit, goal in (
                (f"latency 8 B, bfo/ob1 over {btl}", latency, options.pairs, "us", "<= 1.01"),
                (f"bandwidth 4 MiB, bfo/ob1 over {btl}", bandwidth, options.pairs * (1 if options.quick else BANDWIDTH_JOBS), "MB/s", ">= 0.995")):
            try:
                pairs = runs.pairs(lambda: measure(ours), lambda: measure(theirs), count)
            except runs.Unavailable as why:
                table.missing(name, unit, goal, str(why))
                continue
            runs.compare(table, name, unit, *pairs, goal)


def callgrind_profile(path):
    """Of what callgrind saw: {object: {function: instructions inside it}}, {object: calls of opal_progress from it},
    {object: functions that wait, that is, that call opal_progress or are called by it}."""
    names = {}
    inside, polls, waits = {}, {}, {}
    current = function = callee_object = callee = None
    skip = False

    def name_of(kind, text):
        found = re.match(r"^\((\d+)\)(?: (.*))?$", text)
        if not found:
            return text
        if found.group(2):
            names[kind, found.group(1)] = found.group(2)
        return names.get((kind, found.group(1)), "?")

    with open(path, errors="replace") as f:
        for line in f:
            line = line.rstrip()
            key, equals, value = line.partition("=")
            if equals and key == "ob":
                current = name_of("ob", value)
            elif equals and key == "cob":
                callee_object = name_of("ob", value)
            elif equals and key == "fn":
                function = name_of("fn", value)
            elif equals and key == "cfn":
                callee = name_of("fn", value)
            elif equals and key == "calls":
                if callee == "opal_progress" and (callee_object or current) != current:
                    polls[current] = polls.get(current, 0) + int(value.split()[0])
                    waits.setdefault(current, set()).add(function)
                if function == "opal_progress" and callee_object:
                    waits.setdefault(callee_object, set()).add(callee)
                callee_object = None
                skip = True  # the next line is what the callee cost
            elif re.match(r"^[-+*0-9]", line):
                if not skip:
                    of = inside.setdefault(current, {})
                    of[function] = of.get(function, 0) + int(line.split()[1])
                skip = False
    return inside, polls, waits


def callgrind(pml, btl, messages, size=8, strided=False, env=None):
    """Per send and receive of `size` bytes: (instructions inside the PML, turns of its wait loops, instructions inside
    the PML's functions that do not wait)."""
    if not shutil.which("valgrind"):
        raise runs.Unavailable("valgrind is not installed (Debian: valgrind)")
    way = transport(pml, btl)
    why = way.missing()
    if why:
        raise runs.Unavailable(why)
    pong_program = runs.program("pong")
    with tempfile.TemporaryDirectory(prefix="bfo-callgrind-") as folder:
        out = os.path.join(folder, "callgrind.out")
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", f"--callgrind-out-file={out}", "--quiet"]
        command = [pong_program, "--callgrind", str(messages), "--size", str(size), "--strided", str(int(strided))]
        # The launcher of 5.0.7 dies of two commands with ":" between them.
        first = f'[ $OMPI_COMM_WORLD_RANK = 1 ] || exec {shlex.join(tool)} "$@"; exec "$@"'
        result = way.run(2, ["sh", "-c", first, "sh", *command], 170, env={**runs.SPIN, **(env or {})})
        if result.code or not os.path.exists(out):
            raise runs.Unavailable(f"the job under valgrind ended with {result.code}: {result.tail(1)[:100]}")
        inside, polls, waits = callgrind_profile(out)
    library = f"mca_pml_{pml}.so"
    count = busy = 0
    for name, functions in inside.items():
        if name and name.endswith(library):
            count += sum(functions.values())
            busy += sum(value for function, value in functions.items() if function not in waits.get(name, ()))
    if not count:
        raise runs.Unavailable(f"callgrind saw nothing of {library}")
    return count / messages, sum(polls.values()) / messages, busy / messages


def instructions(table, options):
    """Callgrind instruction counts of the PML."""
    for btl in BTLS:
        name = f"PML instructions per 8 B send+receive over {btl}"
        messages = 300 if options.quick else 1000
        try:
            # A wait loop turns a little more or less often each time: the smaller of two counts.
            ours, our_turns, _ = min(callgrind("bfo", btl, messages) for _ in range(2))
            theirs, their_turns, _ = min(callgrind("ob1", btl, messages) for _ in range(2))
        except runs.Unavailable as why:
            table.missing(name, "Ir", "<= 1.0", str(why))
            continue
        table.add(name, ours, "Ir", against=theirs, ratio=ours / theirs, goal="<= 1.0",
                  note=f"{our_turns:.2f} and {their_turns:.2f} turns of a wait loop included")


def against_others(table, options):
    """Latency on one software rail against Debian's openib BTL and UCX on the same device."""
    others = {"openib": (jobs.Transport("ob1 over openib", "ob1", "openib,self", softhca=True, rails=1),
                         [("btl_openib_allow_ib", "1"), ("btl_base_warn_component_unused", "0")], {}),
              "ucx": (jobs.Transport("ucx", "ucx", "self", softhca=True, rails=1), [],
                      {"UCX_TLS": "rc_verbs,ud_verbs,self"})}
    ours_way = jobs.Transport("bfo over verbs, one rail", "bfo", "verbs,self", softhca=True, rails=1)
    for other, (way, mca, env) in others.items():
        name = f"latency 8 B, bfo over verbs/{other}, one rail"
        try:
            # -x: environment reaches ranks on the same host anyway.
            ours, theirs = runs.pairs(lambda: latency(ours_way),
                                      lambda: latency(way, mca=mca, env=env, limit_s=25), options.pairs)
        except runs.Unavailable as why:
            table.missing(name, "us", "< 1.0", str(why))
            continue
        runs.compare(table, name, "us", ours, theirs, "< 1.0")


def rails(table, options):
    """Two rate-limited rails against one."""
    rate = 1000  # 10^6 bytes/s: in messages of 4 MiB the copies, which the processors make, do not yet count
    command = ["--bandwidth", str(4 << 20), "--window", "4", "--repeat", "6"]

    def run(count):
        way = jobs.Transport(f"bfo over {count} rails", "bfo", "verbs,self", softhca=True, rails=count,
                             options=["--rate", str(rate)])
        line, _ = runs.job(way, [runs.program("pong"), *command])
        return line["bandwidth_mbs"]["median"]

    name = f"bandwidth 4 MiB, two rails of {rate} MB/s against one"
    try:
        two, one = runs.pairs(lambda: run(2), lambda: run(1), options.pairs)
    except runs.Unavailable as why:
        table.missing(name, "MB/s", ">= 1.9", str(why))
        return
    runs.compare(table, name, "MB/s", two, one, ">= 1.9")
    table.add(f"share of the rate one rail of {rate} MB/s delivers", stats.median(one) / rate, "",
              interval=stats.bootstrap([x / rate for x in one]))
