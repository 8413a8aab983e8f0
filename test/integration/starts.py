# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that start while ports of either end are down, each for some time: in the end both ends of each rail are up.

Each start has a pattern of its own: which of the four ports of two nodes are down, and for how long. Shared by the
short form in the check (late_port_test) and by starts_soak. A job that does not end leaves its stacks.
"""
import os
import random
import re
import tempfile

import jobs

LATE = os.path.join(jobs.BUILD, "test", "integration", "late_port")
LONGEST_MS = 5000  # until the last port comes up
SETTLED_S = 5  # .. and then, until each rail is up at both ends
CHANGE = re.compile(r"\[(\S+)\] pml/bfo: rail (\d) \(\S+ port \d\) to rank (\d) .*, epoch (\d+): (up|down|suspect|closed)\b(.*)")


def pattern(seed, longest_ms=LONGEST_MS):
    """{(node, device): milliseconds that it is down}"""
    draw = random.Random(seed)
    ports = [(node, device) for node in (0, 1) for device in (0, 1)]
    down = [port for i, port in enumerate(ports) if (1 + seed % 15) >> i & 1]
    # Often together: who joins first, and whether anything is up by then, are the cases that matter.
    common = draw.randrange(longest_ms)
    return {port: common if draw.random() < 0.5 else draw.randrange(longest_ms) for port in down}


def ends(output):
    """The last state of each end: {(rank, rail): (state, epoch)}. A rail that the peer's leaving ends stays what it was."""
    found = {}
    for _, rail, peer, epoch, state, rest in CHANGE.findall(output):
        if "the peer is leaving" not in rest:
            found[1 - int(peer), int(rail)] = (state, int(epoch))
    return found


def start(seed, longest_ms=LONGEST_MS):
    """Runs the start with that number. None, or what is wrong."""
    down = pattern(seed, longest_ms)
    rules = [f"d{node}{device}: when node={node} device=softhca{device} do port-down for={ms}ms"
             for (node, device), ms in down.items()]
    seconds = longest_ms / 1000 + SETTLED_S
    with tempfile.NamedTemporaryFile("w", suffix=".faults") as faults:
        faults.write("\n".join(rules) + "\n")
        faults.flush()
        transport = jobs.Transport("starts", "bfo", "verbs,self", softhca=True, faults=faults.name)
        why = transport.missing()
        if why:
            raise jobs.Skip(why)
        mca = [("pml_bfo_verbose", 10)] + ([("btl_verbs_if_include", "softhca0,softhca1")] if seed % 2 else [])
        result = transport.run(2, [LATE, "5", f"{seconds:.0f}"], 60 + 2 * seconds, mca=mca)
    problem = jobs.check_finished(result) or jobs.check_success(result) or jobs.check_said(r"rank 0: \d+ rounds, 0 bytes wrong")(result)
    if problem:
        return f"start {seed}, down {down}: {problem}"
    last = ends(result.output)
    up = {end: last.get(end, ("never up", 0)) for end in ((0, 0), (0, 1), (1, 0), (1, 1))}
    for rail in (0, 1):
        here, there = up[0, rail], up[1, rail]
        if here != there or here[0] != "up":
            return (f"start {seed}, down {down}: rail {rail} is {here} at rank 0 and {there} at rank 1:\n"
                    + result.tail(60))
    if result.says(r"bfo: summary of .*(never came up|up at the end)"):
        return f"start {seed}, down {down}: each rail is up, and the line at the end says something else:\n{result.tail(60)}"
    return None
