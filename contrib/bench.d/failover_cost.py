# SPDX-License-Identifier: BSD-3-Clause
"""What a failover costs by what is under way, and how soon a rail that came back carries its share again."""
import os
import random
import shutil
import tempfile

import failover
from plots import plot
import runs
import stats

# Name, size, how timeline is called, ranks, the first and the last message of a node that may meet the fault.
TRAFFIC = (("8 B stream", 8, ("--window", "64"), 2, 5000, 50000),
           ("64 KiB stream", 65536, ("--window", "8"), 2, 50, 700),
           ("8 MiB stream", 8 << 20, ("--window", "2"), 2, 20, 100),
           ("all-to-all of 4 ranks, 64 KiB", 65536, ("--alltoall", "1"), 4, 50, 500))
QUANTILES = (("median", 0.5), ("90th percentile", 0.9), ("99th percentile", 0.99))
# More ranks than processors: one that waits lets the others run.
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
# Two ranks on one processor wait for each other for milliseconds.
BOUND = {"OMPI_MCA_hwloc_base_binding_policy": "core"}

RATE = 100  # 10^6 bytes/s of a rail: far below what the processors move, also when others use them
# Of node 0 on rail 1, answers to READs included: about 0.4 s of the stream.
LOST_AT_MESSAGE = 2400
AWAY_MS, STREAM_S = 400, 2.0
BIN_MS = 10
FULL = 0.9


def one_job(rules, size, arguments, ranks, rails=2, seconds=0.6, options=()):
    """The JSON line of timeline and the events of a job with these fault rules."""
    command = [runs.program("timeline"), "--bytes", str(size), "--seconds", str(seconds), *arguments]
    way, folder = failover.faulty("bfo over verbs, faults", rules, rails=rails, options=options)
    try:
        line, result = runs.job(way, command, limit_s=30, ranks=ranks, env=YIELD if ranks > 2 else BOUND)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return line, [e for e in result.events() if e["what"] == "failover"]


def pauses_under(generator, count, size, arguments, ranks, first, last):
    """(milliseconds until the first byte on another rail, the longest gap of any receiver, the usual gap), one of each
    for each job that lost a rail in its traffic."""
    resumed, gaps, usual = [], [], []
    for i in range(count):
        # A port of a sender and one of a receiver by turns; whichever rail carries the message.
        where = f"service=RC node={i % 2} direction={'rx' if i % 2 else 'tx'}"
        rules = f"kill: when {where} message={generator.randint(first, last)} count=1 do port-down"
        line, events = one_job(rules, size, arguments, ranks)
        lost = [e["resume_ms"] for e in events if e["resume_ms"] is not None]
        if not lost:
            continue  # what the rail had carried had all arrived: nobody waited
        resumed.append(max(lost))
        gaps.append(line["longest_pause_ms"])
        usual.append(line["median_gap_ms"])
    return resumed, gaps, usual


def pauses(table, options):
    """Percentiles of the pause in streams of three sizes and under MPI_Alltoall, two rails."""
    generator = random.Random(2)
    for what, size, arguments, ranks, first, last in TRAFFIC:
        name = f"failover pause, {what}"
        try:
            resumed, gaps, usual = pauses_under(generator, options.failovers, size, arguments, ranks, first, last)
            if not resumed:
                raise runs.Unavailable(f"no traffic had to resume in {options.failovers} jobs")
        except runs.Unavailable as why:
            table.missing(name, "ms", None, str(why))
            continue
        for kind, q in QUANTILES:
            for text, values in (("first byte on the other rail", resumed), ("longest gap of a receiver", gaps)):
                table.add(f"{name}, {text}, {kind}", stats.quantile(values, q), "ms",
                          interval=stats.bootstrap(values, lambda v: stats.quantile(v, q)),
                          note=f"{len(values)} of {options.failovers} jobs; usual gap {stats.median(usual):.3g} ms")


def steps(bins):
    """Bytes per millisecond as 10^6 bytes/s in steps of BIN_MS; the rest at the end is left out."""
    return [sum(bins[i:i + BIN_MS]) / (1e3 * BIN_MS) for i in range(0, len(bins) - BIN_MS + 1, BIN_MS)]


def back_after(rates, down_ms, up_ms):
    """Milliseconds from the return at `up_ms` to the begin of the first two steps with FULL of what was usual before
    the loss at `down_ms`, and that usual rate. None where that does not come."""
    before = rates[10:int(down_ms / BIN_MS) - 2]
    if not before:
        raise runs.Unavailable("the rail was lost before the traffic was regular")
    usual = stats.median(before)
    for i in range(max(0, int(up_ms / BIN_MS)), len(rates) - 1):
        if sum(rates[i:i + 2]) / 2 >= FULL * usual:
            return max(0, i * BIN_MS - up_ms), usual
    return None, usual


def through_return(rails):
    """One job that loses a rail and gets it back: its rates, how long until bandwidth was full, what full was."""
    rules = f"down: when opcode=any service=RC device=softhca1 node=0 message={LOST_AT_MESSAGE} count=1 do port-down for={AWAY_MS}ms"
    handle, path = tempfile.mkstemp(prefix="bfo-bench-")
    os.close(handle)
    try:
        # Each rail has as many messages to carry with four as with two.
        line, events = one_job(rules, 65536, ("--window", str(16 * rails), "--file", path), 2, rails=rails,
                               seconds=STREAM_S, options=("--rate", str(RATE)))
        with open(path) as f:
            bins = [int(row.split()[1]) for row in f]
    finally:
        os.remove(path)
    # The port comes back AWAY_MS after the first evidence of its loss.
    evidence = [e["time"] - (e["resume_ms"] or e["detect_ms"]) / 1e3 for e in events]
    if not evidence:
        raise runs.Unavailable("the rail was not lost")
    down_ms = (min(evidence) - line["started_unix"]) * 1e3
    up_ms = down_ms + AWAY_MS
    rates = steps(bins)
    return rates, *back_after(rates, down_ms, up_ms)


def returns(table, options):
    """Time from the port's return to full bandwidth on two and four rails; bandwidth over time through both."""
    drawn = []
    for rails in (2, 4):
        name = f"full bandwidth after a rail returned, {rails} rails of {RATE} MB/s"
        found, rates, usual = [], None, 0
        try:
            for _ in range(max(3, options.failovers // 4)):
                rates, back_ms, usual = through_return(rails)
                if usual < FULL * rails * RATE:
                    raise runs.Unavailable(f"{usual:.0f} MB/s before the loss: the processors, not the rails, are the limit")
                if back_ms is None:
                    raise runs.Unavailable(f"never {FULL:.0%} of {usual:.0f} MB/s again")
                found.append(back_ms)
        except runs.Unavailable as why:
            table.missing(name, "ms", None, str(why))
        if found:
            note = f"{len(found)} jobs, {FULL:.0%} of {usual:.0f} MB/s in steps of {BIN_MS} ms, longest {max(found):.0f} ms"
            table.add(name + ", median", stats.median(found), "ms", interval=stats.bootstrap(found), note=note)
        if rates:
            with open(os.path.join(table.folder, f"return-{rails}.txt"), "w") as f:
                f.writelines(f"{i * BIN_MS} {rate:.1f}\n" for i, rate in enumerate(rates))
            drawn.append(f"'return-{rails}.txt' with lines lw 2 title '{rails} rails of {RATE} MB/s'")
    if drawn:
        plot(table, "return.png", ["set xlabel 'ms'", "set ylabel '10^6 bytes/s at the receiver'", "set yrange [0:*]",
                                   "plot " + ", ".join(drawn)])
