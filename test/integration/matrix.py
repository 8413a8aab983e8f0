# SPDX-License-Identifier: BSD-3-Clause
"""The soak of one program: every fault of the matrix with two and with four rails, and random faults.

One TAP line per cell with the job's time, how often its fault fired, and how many failovers that was; a fault that never
fired fails its cell. The last line sums up. Environment: BFO_SEED replays the random faults, BFO_SOAK_ROUNDS (1) repeats
the matrix with other random faults, BFO_CHECK_ONLY selects cells.
"""
import itertools
import os
import random
import re
import shutil
import tempfile
import time

import jobs

RAILS = (2, 4)
RANDOM_JOBS = 2
RULES_PER_JOB = 12
# Without get the transfers are RDMA writes; pinned memory keeps them from failing at a deregistered key.
WRITES = [("pml_bfo_use_get", 0), ("mpi_leave_pinned", 1)]
MCA = {"late-write": WRITES}
# The 5th write of late-write.faults may be a probe of the BTL, which has no bytes and whose loss costs no rail.
RULES = {"late-write": [f"late{k}: when device=softhca1 opcode=WRITE size>=1K message={k} do late-write 500ms"
                        for k in (5, 40, 150)]}
# Single lost, late, doubled packets: the connection survives them, no rail is lost.
NO_FAILOVER = ("storm",)
FAULTS = ("kill-rail1", "flap-rail1", "lost-ack", "late-write", "storm", "one-way")


class Totals:
    def __init__(self):
        self.jobs = self.fired = self.failovers = self.resent = 0
        self.wrong = self.crashes = self.hangs = self.leaks = self.silent = 0

    def line(self, seconds):
        return (f"{self.jobs} jobs, {self.fired} faults fired, {self.failovers} failovers, {self.resent} bytes sent again, "
                f"{self.wrong} wrong, {self.crashes} crashes, {self.hangs} hangs, {self.leaks} leaks, "
                f"{self.silent} faults that never fired, {seconds:.0f} s")


def random_rules(generator, rails, ranks):
    """Losses of ports of random nodes and rails, several at once, in the middle of requests and between them; also
    answers and single requests that are lost."""
    rules = []
    for k in range(RULES_PER_JOB):
        where = f"node={generator.randrange(ranks)} device=softhca{generator.randrange(rails)}"
        ordinal = int(2 ** generator.uniform(2, 11))
        down = generator.choice([2, 10, 40, 150])
        rules.append("random%d: when %s " % (k, where) + generator.choice([
            f"at={generator.randrange(100, 2000)}ms do port-down for={down}ms",
            f"direction=tx message={ordinal} offset=50% count=1 do port-down for={down}ms",
            f"direction=tx service=RC message={ordinal} do drop-ack",
            f"direction=tx service=RC message={ordinal} do complete RETRY_EXC_ERR"]))
    return rules


def fabric_file(fabric):
    """The last process of a fabric removes it."""
    return f"/dev/shm/softhca-{os.geteuid()}/{fabric}"


def remove(path):
    if os.path.exists(path):
        os.unlink(path)


def judge(result, program, folder, totals):
    """(what is wrong or None) of a finished job, counted by its kind."""
    if result.code is None or result.says(r"^checker: .*stalled"):
        totals.hangs += 1
        return jobs.check_finished(result) or jobs.complain(result, "stalled", 150)
    books = re.search(r"^.*books of .* do not balance.*$", result.output, re.MULTILINE)
    if books:
        totals.leaks += 1
        return jobs.complain(result, books.group(0))
    problem = program.judge(result, folder)
    if problem:
        crashed = result.says(r"exited on signal|Signal: |errorcode|LeakSanitizer|AddressSanitizer|runtime error")
        if crashed:
            totals.crashes += 1
        else:
            totals.wrong += 1
    return problem


def cell(program, ranks, rails, fault, rules, mca, limit_s, totals, seed_line=""):
    def run():
        why = program.missing()
        if why:
            raise jobs.Skip(why)
        folder = tempfile.mkdtemp(prefix="bfo-soak-")
        fabric = os.path.basename(folder).replace(".", "-")
        try:
            path = os.path.join(folder, "cell.faults") if rules else jobs.example(fault)
            if rules:
                with open(path, "w") as f:
                    f.write("\n".join(rules) + "\n")
            transport = jobs.Transport(fault, "bfo", "verbs,self", softhca=True, faults=path, rails=rails,
                                       options=["--fabric", fabric])
            why = transport.missing()
            if why:
                raise jobs.Skip(why)
            program.prepare(folder)
            result = transport.run(ranks, program.command, limit_s, env=program.env, mca=mca, cwd=folder)
            totals.jobs += 1
            problem = judge(result, program, folder, totals) or outcome(result, fault, fabric, totals)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            remove(fabric_file(fabric))
        return problem + "\n" + "\n".join([seed_line, *(rules or [])]) if problem else None

    return run


def outcome(result, fault, fabric, totals):
    """What a job that went well must have left: a fault that fired, a failover where one is due, no memory."""
    counts = [rule["fired"] for rule in result.snapshots()[-1]["rules"].values()]
    events = [event for event in result.events() if event["what"] == "failover"]
    totals.fired += sum(counts)
    totals.failovers += len(events)
    totals.resent += sum(event["bytes_resent"] for event in events)
    pause = max((event["resume_ms"] or 0 for event in events), default=0)  # null: nothing waited
    print(f"# {result.seconds:.1f} s, {sum(counts)} fired ({sum(map(bool, counts))} of {len(counts)} rules), "
          f"{len(events)} failovers, longest pause {pause:.1f} ms", flush=True)
    if os.path.exists(fabric_file(fabric)):
        totals.leaks += 1
        return f"left behind: {fabric_file(fabric)}"
    if not any(counts):
        totals.silent += 1
        return "the fault never fired"
    if not events and fault not in NO_FAILOVER and fault != "random":
        return "the fault fired, but there was no failover"
    return None


def soak(tried, limit_s=150):
    """Runs the matrix for each (program, ranks) of `tried` and exits."""
    rounds = int(os.environ.get("BFO_SOAK_ROUNDS", "1"))
    seed = int(os.environ.get("BFO_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    seed_line = f"BFO_SEED={seed}"
    print("# " + seed_line, flush=True)
    generator = random.Random(seed)
    plan, totals, started = jobs.Plan(), Totals(), time.monotonic()
    for number in range(rounds):
        for rails, (program, ranks) in itertools.product(RAILS, tried):
            where = f"{rails} rails, {ranks} ranks" + (f", round {number + 1}" if rounds > 1 else "")
            for fault in FAULTS:
                plan.add(f"{program.name}, {fault}, {where}",
                         cell(program, ranks, rails, fault, RULES.get(fault), MCA.get(fault, ()), limit_s, totals))
            for k in range(RANDOM_JOBS):
                rules = random_rules(generator, rails, ranks)
                mca = WRITES if k % 2 else ()
                plan.add(f"{program.name}, random {k + 1}, {where}",
                         cell(program, ranks, rails, "random", rules, mca, limit_s, totals, seed_line))
    try:
        plan.run()
    finally:
        print(f"# {tried[0][0].name} soak: {totals.line(time.monotonic() - started)}", flush=True)
