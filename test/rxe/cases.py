# SPDX-License-Identifier: BSD-3-Clause
"""The cases: what is done to a job on the kernel's own RDMA stack, and how it must end.

A case is a function of the lab that returns a note for the table, or raises Failed. KNOWN names the cases that fail for
a reason that is known; they are run all the same, and the table says when one of them passes.
"""
import re
import time

import conformance
import lab
import memory
import tools

# Case -> why it fails. Remove the line when it passes.
KNOWN = {}


class Failed(Exception):
    """The case failed; the text says how."""


def judge(job, least_failovers=0, needs_rounds=2):
    """The note of a job that must have gone well."""
    if job.wrong():
        raise Failed("WRONG BYTES\n" + lab.tail(job.output, 25))
    if job.code:
        raise Failed(f"exit code {job.code}\n{lab.tail(job.output, 25)}")
    events = job.events()
    if len(events) < least_failovers:
        raise Failed(f"the fault was not noticed: {len(events)} failovers")
    figures = job.rounds()
    note = f"{len(events)} failovers"
    if figures:
        if figures["rounds"] < needs_rounds:
            raise Failed(f"only {figures['rounds']:.0f} rounds\n{lab.tail(job.output)}")
        note = (f"{figures['rounds']:.0f} rounds in {figures['seconds']:.0f} s, {note}, longest round {figures['round_ms']:.0f} ms, "
                f"call {figures['call_ms']:.0f} ms, {figures['slow_calls']:.0f} calls over 20 ms, "
                f"{figures['slow_beyond']:.0f} not by posting")
    return "\n".join([note, *job.parts()])


def rounds(seconds):
    return [lab.ROUNDS, str(seconds)]


def sleep_beside(job, seconds):
    """Waits while the job runs; ends early when it does."""
    job.command.wait(seconds)


def sleep_until_begun(job, and_then):
    """Waits until the job is exchanging messages, which may take long on a loaded host, and some seconds more."""
    most = time.monotonic() + 90
    while "rounds: begun" not in job.output and job.code is None and time.monotonic() < most:
        sleep_beside(job, 0.5)
    sleep_beside(job, and_then)


# ---- no fault ----
def checker(ranks, phases="exchange,unexpected,storm,datatypes,probe,collectives", extra=()):
    def case(the_lab):
        job = the_lab.job([lab.CHECKER, "--quick", "--stall-s", "90", "--phase", phases, *extra], ranks=ranks, limit_s=400)
        note = judge(job)
        found = re.search(r"checker: ok: .* bytes-verified (\d+)", job.output)
        if not found:
            raise Failed("the checker says nothing\n" + lab.tail(job.output))
        return f"{int(found.group(1)) >> 20} MiB verified, {note}"

    return case


def no_fault(the_lab, seconds=20, loops=0):
    """Nothing is said of rails and lost packets, though rxe sends again what was not lost. `loops`: programs that keep the
    processors of the machine busy beside the job."""
    for _ in range(loops):
        the_lab.vm.begin(f"exec timeout {seconds + 150} sh -c 'while :; do :; done'")
    try:
        job = the_lab.job(rounds(seconds), limit_s=seconds + 120, mca=(("btl_verbs_loss_threshold", 1),))
    finally:
        if loops:
            the_lab.vm.run("pkill -f '^sh -c while :'")
    note = f"sent again (NAKs): {sent_again(the_lab)}; {judge(job)}"
    if job.events(""):
        raise Failed(f"{note}\nsomething is said: {job.events('')}\n{lab.tail(job.output)}")
    return note


def sent_again(the_lab):
    """The packets of each device that were sent again since the machine was booted, and how often a NAK asked for it."""
    return " ".join(the_lab.cables("again").output.split())


def early_retransmission(the_lab):
    """A retransmission time (67 ms) shorter than many an answer takes here: rxe asks again for what is on its way, and its
    completer reports a READ whose answer it then does not expect with success. Failovers are likely, wrong bytes are not."""
    job = the_lab.job([lab.CHECKER, "--quick", "--stall-s", "90", "--phase", "large,persistent", "--seconds", "40"], limit_s=200,
                      mca=(("btl_verbs_ib_timeout", 14), ("btl_verbs_suspect_time", 0)))
    return judge(job)


def stock_ob1(the_lab):
    return judge(the_lab.job(rounds(10), pml="ob1"))


# ---- cables ----
def pulled(the_lab, cables="a", seconds=20, away=4):
    """The cables are pulled after a few seconds, put back, and the job goes on long enough to use them again."""
    job = the_lab.begin(rounds(seconds))
    sleep_until_begun(job, 2)
    for cable in cables:
        the_lab.cables("pull", cable)
    sleep_beside(job, away)
    for cable in cables:
        the_lab.cables("plug", cable)
    return judge(job.finish(), 1)


def both_pulled(the_lab):
    return pulled(the_lab, "ab", 25)


def flaps(the_lab, seconds=60):
    """The cables are pulled and put back in turn until the job ends."""
    job = the_lab.begin(rounds(seconds), limit_s=200)
    sleep_until_begun(job, 0)
    done, count = time.monotonic() + seconds, 0
    while time.monotonic() < done and job.code is None:
        cable = "ab"[count % 2]
        the_lab.cables("pull", cable)
        sleep_beside(job, 1)
        the_lab.cables("plug", cable)
        sleep_beside(job, 2)
        count += 1
    return f"{count} flaps, " + judge(job.finish(), 1)


def impaired(*arguments, ends=("a0", "a1"), least_failovers=0, heal_after=None, seconds=20, losses=None):
    """Cable a is impaired by netem while the job exchanges messages. `losses`: the devices that must be said to lose
    packets, one way or both; None: any."""

    def case(the_lab):
        job = the_lab.begin(rounds(seconds))
        sleep_until_begun(job, 1)
        for end in ends:
            the_lab.cables("netem", end, *arguments)
        if heal_after:
            sleep_beside(job, heal_after)
            the_lab.cables("clear")
        note = judge(job.finish(), least_failovers)
        if losses is not None:
            note = f"sent again (NAKs): {sent_again(the_lab)}; {note}"
            said = {(e["device"], e["direction"]) for e in job.events("packet_loss")}
            if {device for device, _ in said} != set(losses):
                raise Failed(f"{note}\nit is said of {sorted(said)} that they lose packets\n{lab.tail(job.output)}")
        return note

    return case


def unreachable(the_lab, seconds=10, pairs=2, share=0.5):
    """A rail whose ports are active and cannot reach each other costs the good one little. A host that is busy with other
    things slows one job more than the other: rounds are divided by the time that the host gave to the machine."""
    made, took = {"a": 0, "a x": 0}, {"a": 0, "a x": 0}
    for cables in ("a", "a x") * pairs:
        job = the_lab.begin(rounds(seconds), cables=cables, limit_s=seconds + 120)
        sleep_until_begun(job, 0)
        began = the_lab.vm.host_time()[0]
        judge(job.finish(), needs_rounds=1)
        took[cables] += the_lab.vm.host_time()[0] - began
        made[cables] += job.rounds()["rounds"]
    note = f"{made['a x']:.0f} rounds with it, {made['a']:.0f} on the good rail alone"
    ratio = made["a x"] / made["a"]
    if min(took.values()) > 0:  # else the host does not count
        ratio *= took["a"] / took["a x"]
    note += f"; {ratio:.2f} by the host's time"
    if ratio < share:
        raise Failed(note)
    return note


# ---- processes ----
def killed_rank(the_lab):
    """The job ends soon after one of its ranks, and not with success."""
    job = the_lab.begin(rounds(60), ranks=3, limit_s=160)
    sleep_until_begun(job, 2)
    the_lab.vm.run("for p in $(pidof rounds); do if grep -qz ^OMPI_COMM_WORLD_RANK=1$ /proc/$p/environ; then kill -9 $p; exit 0; fi; done; "
                   "exit 1")
    killed = time.monotonic()
    job.finish()
    if job.code == 0:
        raise Failed("the job says that it succeeded")
    note = f"ended {time.monotonic() - killed:.1f} s after the rank, status {job.code}"
    lost = [line for line in job.output.splitlines() if " lost rail " in line]
    return note + (f"; {len(lost)} lines about lost rails" if lost else "")


ALL = [
    ("perftest between the devices", tools.sanity),
    ("no fault, rounds", no_fault),
    ("no fault, busy processors", lambda the_lab: no_fault(the_lab, loops=8)),
    ("no fault, checker, 2 ranks", checker(2)),
    ("no fault, checker, 4 ranks", checker(4, extra=("--max-size", "256k"))),
    ("no fault, checker, large messages", checker(2, "large,persistent")),
    ("early retransmission", early_retransmission),
    ("stock ob1 over the verbs BTL", stock_ob1),
    ("cable pulled and put back", pulled),
    ("both cables pulled and put back", both_pulled),
    ("alternate flaps", flaps),
    ("1 % loss", impaired("loss", "1%", seconds=45, losses=("ra0", "ra1"))),
    ("5 % loss", impaired("loss", "5%", seconds=45, losses=("ra0", "ra1"))),
    ("one way dead", impaired("loss", "100%", ends=("a0",), least_failovers=1, heal_after=8)),
    ("delay of 5 ms", impaired("delay", "5ms")),
    ("reordering", impaired("delay", "2ms", "reorder", "75%", "25%")),
    ("unreachable rail", unreachable),
    ("a rank is killed", killed_rank),
    ("memlock ladder", memory.ladder),
    ("conformance table", conformance.table),
]
# What contrib/check runs: a few minutes less.
SHORT = [
    ("no fault, checker, 2 ranks", checker(2, "storm,datatypes,probe", ("--max-size", "256k"))),
    ("cable pulled and put back", lambda the_lab: pulled(the_lab, "a", 14, 3)),
    ("unreachable rail", lambda the_lab: unreachable(the_lab, 8, 1)),
    ("low memlock", memory.low),
]
