# SPDX-License-Identifier: BSD-3-Clause
"""Messages in derived types of many blocks: bfo over two rails against ob1 over one."""
import curve
import runs


def rate(way, arguments, ranks):
    """Messages or broadcasts per second in one job."""
    line, _ = runs.job(way.transport, [runs.program("derived"), *arguments], 120, ranks=ranks)
    return line["rate"]


def derived(table, options):
    """A type of 10^6 blocks takes at most 1.1 of ob1's time, a broadcast in 262,144 blocks at most 1.2."""
    ours, theirs = curve.verbs("bfo", 2), curve.verbs("ob1")
    for name, arguments, ranks, goal in (
            ("64 MB in 10^6 blocks, two rails by ob1 over one", ["--kind", "pair", "--blocks", "1000000"], 2, ">= 0.91"),
            ("MPI_Bcast of 1 MiB in 262,144 blocks, 4 ranks, the same", ["--kind", "bcast", "--blocks", "262144"], 4, ">= 0.83")):
        try:
            pairs = runs.pairs(lambda a=arguments, r=ranks: rate(ours, a, r), lambda a=arguments, r=ranks: rate(theirs, a, r),
                               options.pairs)
        except runs.Unavailable as why:
            table.missing(name, "1/s", goal, str(why))
            continue
        runs.compare(table, name, "1/s", *pairs, goal)
