# SPDX-License-Identifier: BSD-3-Clause
"""Whole curves over the message size: bfo against ob1 over one BTL, against openib and UCX over the same device, many rails
against one.

Jobs are interleaved in pairs and each measures every size. The ratio is that of speeds, the other's time by bfo's for
times: below 1 bfo is slower. One picture per comparison shows both curves and the ratio below.
"""
import os
import re

import hca
import runs
from plots import plot
from runs import jobs
import stats
from table import meets

LARGEST = 4 << 20
WIDEST = 64 << 20  # with --wide: from 1 B to this
GOAL = ">= 0.98"  # a tie: medians of one way against itself are as far from 1 as this, see control()
AGAIN = 2
# Where a protocol ends, with and without its header.
SWITCHES = (4000, 4097, 12289, 65473, 65537)


class Way:
    """One side of a comparison: a transport and what its job needs besides."""

    def __init__(self, name, transport, mca=(), env=None):
        self.name, self.transport, self.mca, self.env = name, transport, mca, env

    def values(self, family, sizes, ranks=2, limit_s=120):
        """{size in bytes: figure} of one job."""
        line, _ = runs.job(self.transport, [runs.program("curve"), family, *map(str, sizes)], limit_s, mca=self.mca,
                           env=self.env, ranks=ranks)
        return {int(size): value for size, value in line["values"].items()}


def verbs(pml, rails=1, rate=None, btl="verbs,self"):
    name = f"{pml} over {btl.split(',')[0]}, {rails} rail{'s' if rails > 1 else ''}"
    return Way(name, jobs.Transport(name, pml, btl, softhca=True, rails=rails,
                                    options=["--rate", str(rate)] if rate else []))


def over(pml, btl):
    return verbs(pml) if btl == "verbs" else Way(f"{pml} over {btl}", jobs.Transport(f"{pml} over {btl}", pml, btl + ",self"))


OPENIB = Way("ob1 over openib, 1 rail", verbs("ob1", btl="openib,self").transport,
             [("btl_openib_allow_ib", "1"), ("btl_base_warn_component_unused", "0")])
UCX = Way("UCX, 1 rail", verbs("ucx", btl="self").transport, env={"UCX_TLS": "rc_verbs,ud_verbs,self"})


class Family:
    """What `curve` can measure: the program's word, what it is called, unit, smallest and largest size, how many times as
    many jobs as latency needs (bandwidth varies by page), ranks."""

    def __init__(self, word, what, unit, smallest, largest, more=1, ranks=2):
        self.word, self.what, self.unit, self.smallest, self.largest = word, what, unit, smallest, largest
        self.more, self.ranks = more, ranks

    def powers(self, options):
        """The powers of two that are measured."""
        last = WIDEST if self.sizes(options)[1] == WIDEST else self.largest
        return [1 << k for k in range(self.smallest.bit_length() - 1, last.bit_length())]

    def sizes(self, options):
        if not options.wide or self.smallest > 8 or self.largest < LARGEST:
            return [self.smallest, self.largest]
        return [1, WIDEST, *SWITCHES]


LATENCY = Family("latency", "latency", "us", 8, LARGEST)
WINDOW = Family("window", "bandwidth", "MB/s", 8, LARGEST, more=2)
BOTH = Family("bidirectional", "bidirectional bandwidth", "MB/s", 8, LARGEST)
RATE = Family("rate", "messages", "10^6/s", 8, 1024)
RATE_4 = Family("rate", "messages of 4 pairs", "10^6/s", 8, 1024, ranks=8)
AGAINST_OB1 = (
    (LATENCY, ("verbs", "vader", "tcp")), (WINDOW, ("verbs", "vader", "tcp")),
    (Family("strided-latency", "strided latency", "us", 16, LARGEST), ("verbs", "vader", "tcp")),
    (Family("strided-window", "strided bandwidth", "MB/s", 16, LARGEST), ("verbs", "vader", "tcp")),
    (Family("self", "send to oneself", "us", 8, LARGEST), ("vader",)),
    (Family("threads", "bandwidth with MPI_THREAD_MULTIPLE", "MB/s", 8, 4096), ("verbs", "vader")))
MORE_AGAINST_OB1 = (
    (BOTH, ("verbs", "vader", "tcp")), (RATE, ("verbs", "vader", "tcp")), (RATE_4, ("verbs", "vader")),
    (Family("sendrecv", "MPI_Sendrecv", "us", 8, 1 << 20), ("verbs", "vader")),
    (Family("allreduce", "MPI_Allreduce", "us", 8, 1 << 20), ("verbs", "vader")),
    (Family("alltoall", "MPI_Alltoall", "us", 8, 1 << 20), ("verbs", "vader")),
    (Family("allreduce", "MPI_Allreduce of 4 ranks", "us", 8, 1 << 18, ranks=4), ("verbs", "vader")),
    (Family("alltoall", "MPI_Alltoall of 4 ranks", "us", 8, 1 << 18, ranks=4), ("verbs", "vader")))


def measure(family, ours, theirs, sizes, count):
    """{size: (figures of ours, figures of theirs)} of `count` interleaved pairs."""
    first, second = runs.pairs(lambda: ours.values(family.word, sizes, family.ranks),
                               lambda: theirs.values(family.word, sizes, family.ranks), count)
    return {size: ([v[size] for v in first], [v[size] for v in second]) for size in sorted(first[0])}


def speeds(family, pair):
    """Ratios of speeds."""
    return [b / a if family.unit == "us" else a / b for a, b in zip(*pair)]


def compare(table, options, family, ours, theirs, goal=GOAL, sizes=None, kind="hard"):
    """Adds one entry per size, and a picture. `goal`: of the ratio of speeds at every size, or a function of the size; of
    `kind` (see table.py); None for no goal. Sizes that miss it are measured again, AGAIN times as often, in jobs of these
    sizes only; all pairs count. Of many sizes some miss by chance."""
    goal_of = goal if callable(goal) else lambda _: goal
    versus = f"{ours.name} against {theirs.name}"
    count = options.pairs * (1 if options.quick else family.more)
    slow = runs.STEADY.slow
    try:
        figures = measure(family, ours, theirs, sizes or family.sizes(options), count)
        missed = [] if options.quick or kind != "hard" else \
            [size for size, pair in figures.items()
             if goal_of(size) and not meets(goal_of(size), stats.median(speeds(family, pair)))]
    except runs.Unavailable as why:
        table.missing(f"{family.what}, {versus}", family.unit, goal_of(LARGEST), str(why), kind)
        return
    try:
        more = measure(family, ours, theirs, [missed[0], missed[0], *missed[1:]], AGAIN * count) if missed else {}
    except runs.Unavailable:
        missed, more = [], {}
    for size, pair in more.items():
        for values, others in zip(figures[size], pair):
            values.extend(others)
    points = []
    for size, pair in figures.items():
        ratios = speeds(family, pair)
        entry = table.add(f"{family.what} {size} B, {versus}", stats.median(pair[0]), family.unit,
                          against=stats.median(pair[1]), ratio=stats.median(ratios), interval=stats.bootstrap(ratios),
                          goal=goal_of(size), kind=kind, note=f"ratio of speeds, {len(ratios)} interleaved pairs"
                          + (f", {AGAIN * count} of this size again" if size in missed else "")
                          + (", some while the machine was slower" if runs.STEADY.slow != slow else ""))
        points.append((size, entry))
    picture(table, family, ours, theirs, points)


def picture(table, family, ours, theirs, points):
    """Both curves, and the ratio with its interval below, which is cut where it is far wider than the medians."""
    shown = [e["ratio"] for _, e in points] + [float(e["goal"].split()[1]) for _, e in points if e["goal"]]
    name = re.sub(r"[^a-z0-9]+", "-", f"curve {family.what} {ours.name} {theirs.name}".lower())
    with open(os.path.join(table.folder, name + ".txt"), "w") as f:
        f.writelines(f"{size} {e['value']} {e['against']} {e['ratio']} {e['interval'][0]} {e['interval'][1]} "
                     f"{e['goal'].split()[1] if e['goal'] else 1}\n" for size, e in points)
    scale = "unset logscale y" if family.unit == "10^6/s" else "set logscale y"
    plot(table, name + ".png", [
        "set multiplot layout 2,1", "set logscale x 2", "set format x '%.0b%B'", "set xtics 8", scale, "set key left top",
        f"set ylabel '{family.what} ({family.unit})'",
        f"plot '{name}.txt' using 1:2 with linespoints lw 2 title '{ours.name}', "
        f"'' using 1:3 with linespoints lw 2 title '{theirs.name}'",
        "unset logscale y", f"set yrange [{min(shown) * 0.93}:{max(shown) * 1.07}]", "set ylabel 'ratio of speeds'",
        "set xlabel 'message size (bytes)'",
        f"plot '{name}.txt' using 1:4:5:6 with yerrorlines lw 2 title 'ratio, 95 % interval', "
        f"'' using 1:7 with lines dt 2 title '{'goal' if points[0][1]['goal'] else 'one'}'"], height=800)


def against_ob1(table, options):
    """Every family over every BTL it is for; with --quick the first two."""
    for family, btls in AGAINST_OB1[:2] if options.quick else AGAINST_OB1:
        for btl in btls:
            compare(table, options, family, over("bfo", btl), over("ob1", btl))


def more_against_ob1(table, options):
    """Both directions, message rate of one and four pairs, collective calls."""
    for family, btls in MORE_AGAINST_OB1:
        for btl in btls:
            compare(table, options, family, over("bfo", btl), over("ob1", btl))


def against_others(table, options):
    """One software rail, against Debian's openib BTL and UCX over the same device."""
    for theirs in (OPENIB, UCX):
        for family in (LATENCY, WINDOW, RATE):
            compare(table, options, family, verbs("bfo"), theirs)


def control(table, options):
    """What the method says of two equal things."""
    for family in (LATENCY, WINDOW):
        compare(table, options, family, verbs("bfo"), Way("itself", verbs("bfo").transport), None)


def read_bound(options):
    """The goals for several rails against one, as a function of the size. A message above 1 MiB is read at once over one
    rail, and in READs of 1 MiB over several, because more must not be in flight on a rail that may fail (P4,
    contrib/doc/design.md). On the software HCA each READ is a system call of the process itself; what these alone lose is
    no goal of the PML's. It is measured when it is asked for, next to the jobs, because while the machine is slow they lose
    nothing; what they lost most counts."""
    lowest = {}

    def goal(size):
        if size <= 1 << 20:
            return GOAL
        try:
            ratio = stats.median([whole / cut for cut, whole in zip(*hca.system_call(size, options))])
        except runs.Unavailable:
            return GOAL
        lowest[size] = min(lowest.get(size, 1), ratio)
        return f">= {float(GOAL.split()[1]) * lowest[size]:.3f}"

    return goal


def rails(table, options):
    """Rails without a rate limit must not cost; rate-limited ones must add up."""
    goal = read_bound(options)
    for count in (2, 4):
        compare(table, options, LATENCY, verbs("bfo", count), verbs("bfo"), goal)
        compare(table, options, WINDOW, verbs("bfo", count), verbs("bfo"), goal)
    # 10^6 bytes/s. The device copies inside the calls that post READs, so each rail begins later by the copies for those
    # before it, 12 us for 64 KiB. At the first rate that hardly counts, at the second it is what is missing.
    for rate, kind, largest in ((250, "hard", 1 << 20), (1000, "stretch", LARGEST)):
        for count, goal in ((2, ">= 1.97"), (4, ">= 3.9")):
            compare(table, options, Family("window", f"bandwidth, {rate} MB/s a rail", "MB/s", 1 << 18, largest),
                    verbs("bfo", count, rate), verbs("bfo", 1, rate), goal, kind=kind)
            compare(table, options, Family("latency", f"one message, {rate} MB/s a rail", "us", 8 << 20, 8 << 20),
                    verbs("bfo", count, rate), verbs("bfo", 1, rate), goal, kind=kind)
