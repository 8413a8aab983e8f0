# SPDX-License-Identifier: BSD-3-Clause
"""bfo against ob1 over one BTL from 8 B to 4 MiB: contiguous and strided, to a peer and to oneself, with threads.

Jobs are interleaved in pairs and each measures every size. The ratio is that of speeds, ob1's time by bfo's for
latencies: below 1 bfo is slower."""
import runs
from runs import jobs
import stats

ONE_RAIL = {"verbs": {"softhca": True, "rails": 1}, "vader": {}, "tcp": {}}
BTLS = {"verbs": "verbs,self", "vader": "vader,self", "tcp": "tcp,self"}
LARGEST = 4 << 20
# family of the program: what it is called, unit, smallest size, largest, BTLs, more jobs (bandwidth varies by page)
FAMILIES = {
    "latency": ("latency", "us", 8, LARGEST, BTLS, 1),
    "window": ("bandwidth", "MB/s", 8, LARGEST, BTLS, 2),
    "strided-latency": ("strided latency", "us", 16, LARGEST, BTLS, 1),
    "strided-window": ("strided bandwidth", "MB/s", 16, LARGEST, BTLS, 1),
    "self": ("send to oneself", "us", 8, LARGEST, ("vader",), 1),
    "threads": ("bandwidth with MPI_THREAD_MULTIPLE", "MB/s", 8, 4096, ("verbs", "vader"), 1),
}
GOAL = ">= 0.98"


def transport(pml, btl):
    return jobs.Transport(f"{pml} over {btl}", pml, BTLS[btl], **ONE_RAIL[btl])


def values(way, family, smallest, largest, extra=()):
    """{size in bytes: figure} of one job."""
    line, _ = runs.job(way, [runs.program("curve"), family, str(smallest), str(largest), *map(str, extra)], 120)
    return {int(size): value for size, value in line["values"].items()}


def family_against_ob1(table, options, family, btl):
    what, unit, smallest, largest, _, more = FAMILIES[family]
    ours_way, theirs_way = transport("bfo", btl), transport("ob1", btl)
    try:
        ours, theirs = runs.pairs(lambda: values(ours_way, family, smallest, largest),
                                  lambda: values(theirs_way, family, smallest, largest), options.pairs * more)
    except runs.Unavailable as why:
        table.missing(f"{what}, bfo/ob1 over {btl}", unit, GOAL, str(why))
        return
    for size in sorted(ours[0]):
        a, b = [v[size] for v in ours], [v[size] for v in theirs]
        speed = [y / x for x, y in zip(a, b)] if unit == "us" else [x / y for x, y in zip(a, b)]
        table.add(f"{what} {size} B, bfo/ob1 over {btl}", stats.median(a), unit, against=stats.median(b),
                  ratio=stats.median(speed), interval=stats.bootstrap(speed), goal=GOAL,
                  note=f"ratio of speeds, {len(a)} interleaved pairs")


def against_ob1(table, options):
    """Every family over every BTL it is for."""
    for family, (_, _, _, _, btls, _) in FAMILIES.items():
        for btl in btls:
            family_against_ob1(table, options, family, btl)
