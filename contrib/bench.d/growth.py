# SPDX-License-Identifier: BSD-3-Clause
"""What 8 bytes cost while there is much else that does not move: communicators, connected peers, posted receives; and
how long it takes until all ranks have spoken to each other."""
import free
import runs

COMMUNICATORS = (1, 10, 100, 1000)
REQUESTS = (1, 1000)
MANY_REQUESTS = 100000  # ob1 searches them one by one: it would take minutes
RANKS = (2, 8, 16, 32, 64)
# More ranks than processors: one that waits lets the others run.
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
LIMIT_S = 150


def value(way, what, count=None, ranks=2, env=None):
    command = [runs.program("growth"), what, *([str(count)] if count else [])]
    line, _ = runs.job(way, command, LIMIT_S, env=env, ranks=ranks)
    return line["value"]


def compare(table, name, unit, first, second, count, goal, kind="hard", note=""):
    try:
        pairs = runs.pairs(first, second, count)
    except runs.Unavailable as why:
        table.missing(name, unit, goal, str(why), kind)
        return
    runs.compare(table, name, unit, *pairs, goal, kind, note)


def growth(table, options):
    """bfo against ob1 over the same BTL; with idle peers also against itself without them; the start against ob1 over
    tcp."""
    ours, theirs, tcp = free.transport("bfo", "verbs"), free.transport("ob1", "verbs"), free.transport("ob1", "tcp")
    count = max(3, options.pairs // 2)
    for what, sizes in (("communicators", COMMUNICATORS), ("requests", REQUESTS)):
        text = "posted receives" if what == "requests" else what
        for n in sizes[::2] if options.quick else sizes:
            compare(table, f"latency 8 B with {n} {text}, bfo/ob1", "us", lambda: value(ours, what, n),
                    lambda: value(theirs, what, n), count, "<= 1.01")
    compare(table, f"latency 8 B with {MANY_REQUESTS} posted receives, by with 1", "us", lambda: value(ours, "requests", MANY_REQUESTS),
            lambda: value(ours, "requests", 1), count, "<= 1.02")
    for n in RANKS[1:2] if options.quick else RANKS[1:]:
        compare(table, f"latency 8 B with {n - 1} peers connected, by with 1", "us",
                lambda: value(ours, "peers", ranks=n, env=YIELD), lambda: value(ours, "peers", env=YIELD), count, "<= 1.02")
        compare(table, f"latency 8 B with {n - 1} peers connected, bfo/ob1", "us",
                lambda: value(ours, "peers", ranks=n, env=YIELD), lambda: value(theirs, "peers", ranks=n, env=YIELD), count, "<= 1.01")
    for n in RANKS[:2] if options.quick else RANKS:
        compare(table, f"MPI_Init and a message to all, {n} ranks, by ob1 over tcp", "s",
                lambda: value(ours, "start", ranks=n, env=YIELD), lambda: value(tcp, "start", ranks=n, env=YIELD),
                max(3, options.pairs // 5), "<= 1.0", "stretch")
