# SPDX-License-Identifier: BSD-3-Clause
"""Jobs with little memory they may pin: each either runs or ends with a sentence that says what to raise."""
import re

import lab

STEPS_KIB = [round(1024 * 1.35 ** step) for step in range(20)]  # 1 MB to 300 MB
BISECTIONS = 3
SAYS = r"RLIMIT_MEMLOCK|ulimit -l|memlock"


class Unclear(Exception):
    """A step that neither ran nor said why."""


def limited(the_lab, kib, seconds=2, limit_s=60):
    """One job whose ranks may pin `kib` KiB each. Root may pin all it likes unless it gives the capability up."""
    return the_lab.job([lab.ROUNDS, str(seconds)], limit_s=limit_s,
                       before=f"prlimit --memlock={kib << 10}:{kib << 10} setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock")


def outcome(the_lab, kib):
    """"runs", "says what to raise", or a text that begins with "WRONG", "HANG" or "ends"."""
    try:
        job = limited(the_lab, kib)
    except lab.Hang as hang:
        return "HANG" + (", after a sentence" if re.search(SAYS, str(hang)) else "")
    if job.wrong():
        return "WRONG BYTES"
    if job.code == 0:
        return "runs"
    if re.search(SAYS, job.output):
        return "says what to raise"
    return "ends without saying what to raise: " + lab.tail(job.output, 3).replace("\n", " / ")


def ladder(the_lab):
    found = []
    for kib in STEPS_KIB:
        found.append((kib, outcome(the_lab, kib)))
        print(f"#   memlock {kib} KiB: {found[-1][1]}", flush=True)
    # Between the last that is refused and the first that runs: what suffices to start, and for no more.
    low, high = max([kib for kib, what in found if what != "runs"], default=0), min([kib for kib, what in found if what == "runs"], default=0)
    for _ in range(BISECTIONS if 0 < low < high else 0):
        middle = (low + high) // 2
        found.append((middle, outcome(the_lab, middle)))
        print(f"#   memlock {middle} KiB: {found[-1][1]}", flush=True)
        low, high = (low, middle) if found[-1][1] == "runs" else (middle, high)
    bad = [step for step in found if step[1] not in ("runs", "says what to raise")]
    runs = [kib for kib, what in found if what == "runs"]
    note = f"{len(runs)} of {len(found)} steps run" + (f", the least with {min(runs)} KiB" if runs else "") + f", {len(bad)} are unclear"
    if bad:
        raise Unclear(note + ": " + "; ".join(f"{kib} KiB {what}" for kib, what in bad))
    return note


def low(the_lab, kib=4096):
    what = outcome(the_lab, kib)
    if what not in ("runs", "says what to raise"):
        raise Unclear(f"{kib} KiB: {what}")
    return f"{kib} KiB: {what}"
