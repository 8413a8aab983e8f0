# SPDX-License-Identifier: BSD-3-Clause
"""Runs the jobs of contrib/bench: one job gives one set of figures; pairs are interleaved."""
import json
import os
import sys

SRCDIR = os.environ.get("BFO_SRCDIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SRCDIR, "test", "integration"))
import jobs

import stats
from steady import Steady

# Ranks that have a processor each poll without yielding, as on a cluster node of their own. More of them have to yield:
# over vader they would wait for each other's time slices.
SPIN = {"OMPI_MCA_mpi_yield_when_idle": "0"}


class Unavailable(Exception):
    """This figure cannot be taken here; the text says why."""


def program(name):
    path = os.path.join(jobs.BUILD, "contrib", "bench.d", name)
    if not os.access(path, os.X_OK):
        raise Unavailable(f"contrib/bench.d/{name} is not built")
    return path


def last_json(text):
    """The last line of the output that is a JSON object."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None


def job(transport, command, limit_s=60, mca=(), env=None, ranks=2):
    """Runs a job and returns (its JSON line, the jobs.Result)."""
    why = transport.missing()
    if why:
        raise Unavailable(why)
    spin = SPIN if ranks <= (os.cpu_count() or 1) else {}
    result = transport.run(ranks, command, limit_s, env={**spin, **(env or {})}, mca=mca)
    if result.code is None:
        raise Unavailable(f"{transport.name}: still running after {limit_s} s")
    line = last_json(result.output)
    if result.code or line is None:
        reason = next((text for text in reversed(result.output.splitlines()) if text.strip(" -")), "no output")
        raise Unavailable(f"{transport.name}: exit code {result.code}: {reason.strip()[:120]}")
    return line, result


def copy_us():
    """Half a round trip of 1 MiB that two processes copy from each other in turn, us; None where that is not allowed."""
    try:
        line = last_json(jobs.run_command([program("pieces"), str(1 << 20), str(1 << 20)], 30).output)
    except Unavailable:
        return None
    return line and line["us"]


STEADY = Steady(copy_us)


def pairs(first, second, count):
    """Calls both functions `count` times, alternating which goes first; returns two lists."""
    a, b = [], []

    def one_pair(turned):
        if turned:
            y = second()
            return first(), y
        return first(), second()

    for i in range(count):
        x, y = STEADY.during(lambda turned=i % 2: one_pair(turned))
        a.append(x)
        b.append(y)
    return a, b


def compare(table, name, unit, ours, theirs, goal, kind="hard", note=""):
    """Adds the median of the ratios of interleaved values."""
    ratios = [x / y for x, y in zip(ours, theirs)]
    table.add(name, stats.median(ours), unit, against=stats.median(theirs), ratio=stats.median(ratios),
              interval=stats.bootstrap(ratios), goal=goal, kind=kind,
              note=note or f"{len(ratios)} interleaved pairs")
