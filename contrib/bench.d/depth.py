# SPDX-License-Identifier: BSD-3-Clause
"""How fast messages are matched while many others wait: bfo against ob1."""
import free
import runs

DEPTHS = (1, 10, 100, 1000, 10000, 100000)


def rate(way, depth, order, kind):
    """Messages per second in one job."""
    command = [runs.program("matching"), "--depth", str(depth), "--order", order, "--kind", kind]
    line, _ = runs.job(way, command, 120)
    return line["rate"]


def matching(table, options):
    """Both kinds of queue, three orders. Ten times ob1's rate is asked for where 10,000 wait and the first
    one is not the right one: in forward order ob1 does not search either."""
    ours, theirs = free.transport("bfo", "vader"), free.transport("ob1", "vader")
    for kind in ("unexpected", "posted"):
        for order in ("forward", "reverse", "random"):
            for depth in DEPTHS[:5:2] if options.quick else DEPTHS:
                name = f"matches/s, {depth} {kind}, {order}"
                goal = ">= 10" if depth >= 10000 and order != "forward" else ">= 0.98"
                try:
                    pairs = runs.pairs(lambda: rate(ours, depth, order, kind), lambda: rate(theirs, depth, order, kind),
                                       max(3, options.pairs // 3))
                except runs.Unavailable as why:
                    table.missing(name, "1/s", goal, str(why))
                    continue
                runs.compare(table, name, "1/s", *pairs, goal)
