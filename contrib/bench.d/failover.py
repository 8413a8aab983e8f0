# SPDX-License-Identifier: BSD-3-Clause
"""What a failover costs: the distribution of pauses, bytes sent again against message size, bandwidth over time."""
import os
import random
import shutil
import tempfile

import runs
from plots import plot
from runs import jobs
import stats


def faulty(name, rules, rails=2, options=(), counters=False):
    """A transport with these fault rules, and the folder to remove when it is done."""
    folder = tempfile.mkdtemp(prefix="bfo-bench-")
    path = os.path.join(folder, "bench.faults")
    with open(path, "w") as f:
        f.write(rules + "\n")
    return jobs.Transport(name, "bfo", "verbs,self", softhca=True, faults=path, rails=rails, options=options,
                          counters=counters), folder


def timeline(rules, seconds, size=65536, window=8, file=None, options=(), name="bfo over verbs, faults"):
    command = [runs.program("timeline"), "--bytes", str(size), "--seconds", str(seconds), "--window", str(window)]
    if file:
        command += ["--file", file]
    way, folder = faulty(name, rules, options=options)
    try:
        return runs.job(way, command, limit_s=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pauses(table, options):
    """Many jobs, each loses a rail once, on the sender's or on the receiver's side, at another message."""
    goals = (("failover pause, median", "<= 1.0", stats.median),
             ("failover pause, 99th percentile", "<= 5.0", lambda v: stats.quantile(v, 0.99)))
    generator = random.Random(1)
    resumed, detected, fenced, seen = [], [], [], []
    try:
        for i in range(options.failovers):
            k = generator.randrange(20, 400)
            # The sender's port in the middle of a request, or the receiver's under an arriving one.
            where = f"node={i % 2} device=softhca1 direction={'rx' if i % 2 else 'tx'}"
            rules = f"kill: when {where} message={k} count=1 do port-down"
            line, result = timeline(rules, 1.0)
            lost = [e for e in result.events() if e["what"] == "failover"]
            if not lost:
                raise runs.Unavailable(f"no failover happened with: {rules}")
            resumed += [e["resume_ms"] for e in lost if e["resume_ms"] is not None]
            detected += [e["detect_ms"] for e in lost]
            fenced += [e["fence_ms"] for e in lost if e["fence_ms"] is not None]
            seen.append(line["longest_pause_ms"])
        if not resumed:
            raise runs.Unavailable("no event says when the traffic resumed")
    except runs.Unavailable as why:
        for name, goal, _ in goals:
            table.missing(name, "ms", goal, str(why))
        return
    for name, goal, estimate in goals:
        table.add(name, estimate(resumed), "ms", interval=stats.bootstrap(resumed, estimate), goal=goal,
                  note=f"first evidence to first byte on the other rail, {len(resumed)} events")
    table.add("detection (evidence to decision), median", stats.median(detected), "ms", interval=stats.bootstrap(detected))
    if fenced:
        table.add("fence, median", stats.median(fenced), "ms", interval=stats.bootstrap(fenced))
    table.add("longest gap between messages at the receiver, median", stats.median(seen), "ms",
              interval=stats.bootstrap(seen), note="openib's defaults: 30000 ms, UCX: 7500 ms, for one lost rail")
    histogram(table, resumed)


def histogram(table, values):
    with open(os.path.join(table.folder, "pauses.txt"), "w") as f:
        for i, value in enumerate(sorted(values), 1):
            f.write(f"{value} {i / len(values)}\n")
    plot(table, "pauses.png", ["set xlabel 'pause (ms)'", "set ylabel 'share of failovers'", "set logscale x",
                               "set yrange [0:1]", "plot 'pauses.txt' with steps lw 2 title 'first evidence to first byte'"])


def black_hole(table, options):
    """One direction of a rail swallows everything, no event, no error: how long does the stream stand?"""
    name = "black hole, longest gap at the receiver, median"
    try:
        seen = []
        for i in range(max(3, options.failovers // 3)):
            line, result = timeline(f"hole: when node=0 device=softhca1 direction=tx message={100 + 30 * i}.. do one-way", 1.0)
            if not [e for e in result.events() if e["what"] == "failover"]:
                raise runs.Unavailable("no failover happened")
            seen.append(line["longest_pause_ms"])
    except runs.Unavailable as why:
        table.missing(name, "ms", "<= 25", str(why))
        return
    table.add(name, stats.median(seen), "ms", interval=stats.bootstrap(seen), goal="<= 25",
              note=f"{len(seen)} jobs, everything included; the device alone would take seconds")


def cut_at(size):
    """Runs one message cut at 99 %; returns (bytes sent again, the request of rail 1 that was cut, how many there were)."""
    command = [runs.program("pong"), "--bandwidth", str(size), "--window", "1", "--repeat", "1"]
    match = "device=softhca1 size>=4K"
    # First without a fault: how many requests does rail 1 carry for the three messages of pong?
    way, folder = faulty("count", f"count: when {match} message=1000000000 do drop", counters=True)
    _, result = runs.job(way, command, limit_s=100)
    shutil.rmtree(folder, ignore_errors=True)
    total = result.snapshots()[-1]["rules"]["count"]["matched"]
    k = max(1, int(total * (1 + 0.99) / 3))
    way, folder = faulty("cut", f"cut: when {match} message={k} offset=50% count=1 do port-down")
    _, result = runs.job(way, command, limit_s=100)
    shutil.rmtree(folder, ignore_errors=True)
    lost = [e for e in result.events() if e["what"] == "failover"]
    return sum(e["bytes_resent"] for e in lost) if lost else None, k, total


def resent(table, options):
    """One message cut at 99 %: how much is sent again?"""
    sizes = [1 << 18, 1 << 20, 1 << 22, 1 << 24] + ([] if options.quick else [1 << 26, 1 << 28, 1 << 30])
    points = []
    for size in sizes:
        limit = max(1 << 20, size // 50)
        name = f"bytes sent again, {size >> 10} KiB cut at 99 %"
        try:
            # A rail takes the share it is ready for, so a short message can have fewer requests there the second time.
            for _ in range(5):
                again, k, total = cut_at(size)
                if again is not None:
                    break
            else:
                raise runs.Unavailable("no failover happened in 5 jobs")
        except (runs.Unavailable, KeyError, IndexError) as why:
            table.missing(name, "B", "<= 1.0", str(why))
            continue
        points.append((size, again))
        table.add(name, again, "B", against=limit, ratio=again / limit, goal="<= 1.0",
                  note=f"request {k} of {total} on that rail; limit: the larger of 1 MiB and 2 %")
    if points:
        with open(os.path.join(table.folder, "resent.txt"), "w") as f:
            f.writelines(f"{size} {again}\n" for size, again in points)
        plot(table, "resent.png", ["set logscale xy", "set xlabel 'message size (bytes)'", "set ylabel 'bytes sent again'",
                                   "plot 'resent.txt' using 1:($2>0?$2:1) with linespoints lw 2 title 'cut at 99 %', "
                                   "x with lines dt 2 title 'restart from 0'"])


def over_time(table, options):
    """Bandwidth in 5 ms steps through a loss, and through a loss and return, on rate-limited rails."""
    rules = {"lost": "kill: when device=softhca1 at=800ms node=0 do port-down",
             "returns": "down: when device=softhca1 at=800ms node=0 do port-down\n"
                        "up: when device=softhca1 at=1200ms node=0 do port-up"}
    done = []
    for name, text in rules.items():
        raw = os.path.join(table.folder, f"timeline-{name}.raw")
        try:
            line, _ = timeline(text, 1.6, size=65536, window=32, file=raw, options=["--rate", "500"])
        except runs.Unavailable as why:
            table.missing(f"bandwidth over time, rail {name}", "ms", None, str(why))
            continue
        with open(raw) as f:
            bins = [int(row.split()[1]) for row in f]
        os.remove(raw)
        with open(os.path.join(table.folder, f"timeline-{name}.txt"), "w") as f:
            for i in range(0, len(bins) - 4, 5):
                f.write(f"{i} {sum(bins[i:i + 5]) / 5e3}\n")
        table.add(f"bandwidth over time, rail {name}: longest gap", line["longest_pause_ms"], "ms")
        done.append(name)
    if done:
        curves = ", ".join(f"'timeline-{n}.txt' with lines lw 2 title 'rail 1 {n}'" for n in done)
        plot(table, "failover.png", ["set xlabel 'ms'", "set ylabel '10^6 bytes/s at the receiver'", "set yrange [0:*]",
                                     "plot " + curves])
