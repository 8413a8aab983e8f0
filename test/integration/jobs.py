# SPDX-License-Identifier: BSD-3-Clause
"""Runs MPI jobs for the integration tests: where things are, which transports, a time limit, TAP output.

A test script makes a Plan, adds cases and calls run(); every job is killed with all its processes at its time limit.
Jobs that mostly wait may run two at a time: run(together=2).
Environment: BFO_BUILD (build directory), BFO_SRCDIR, BFO_MPIRUN (another mpirun-softhca), BFO_CHECK_ONLY (a regular
expression: run only the cases whose name matches).
"""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SRCDIR = os.environ.get("BFO_SRCDIR") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BFO_BUILD") or os.path.join(SRCDIR, "build")
SOFTHCA_MPIRUN = os.environ.get("BFO_MPIRUN") or os.path.join(SRCDIR, "contrib", "mpirun-softhca")
EXAMPLES = os.path.join(SRCDIR, "contrib", "softhca", "examples")
CHECKER = os.path.join(BUILD, "test", "integration", "checker", "checker")


def build_env():
    """The variables configure left for scripts."""
    values = {}
    try:
        with open(os.path.join(BUILD, "contrib", "build-env")) as f:
            for line in f:
                found = re.match(r"^(\w+)='(.*)'$", line.strip()) or re.match(r"^(\w+)=(\S*)$", line.strip())
                if found:
                    values[found.group(1)] = found.group(2)
    except OSError:
        pass
    return values


RELEASE = build_env().get("OMPI_VERSION", "4.")
# The launcher's parameter for more ranks than cores, from 5.0 on.
OVERSUBSCRIBE = "PRTE_MCA_rmaps_default_mapping_policy" if RELEASE < "6" else "PRTE_MCA_mapby"
# The launcher's parameter for the folder of its session directories, in 4.1 and from 5.0 on.
TMPDIR_BASES = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base")
# The environment of a job that the launcher does not end when one of its processes dies, in 4.1 and from 5.0 on.
RECOVERABLE = {"OMPI_MCA_orte_enable_recovery": "1", "PRTE_MCA_state_base_recoverable": "1"}
# What tests call by its name in 4.1, and what releases from 5.0 on call it: the BTL for processes of one host, the
# component for MPI-IO of ROMIO.
RENAMED = {} if RELEASE.startswith("4.") else {"vader": "sm", "romio321": "romio341"}


def named(text):
    """`text`, a list of components or the name of a parameter as in 4.1, in the words of this release."""
    return re.sub("(?<![a-z])(" + "|".join(RENAMED) + ")(?![a-z])", lambda m: RENAMED[m.group()], text) if RENAMED else text


# The BTL for processes of one host.
SHARED = named("vader")


def by_agent(agent):
    """(MCA parameters, environment) with which the launcher starts its daemons by `agent`, which makes hosts of one machine."""
    if RELEASE.startswith("4."):
        return [("plm_rsh_agent", agent), ("oob_tcp_if_include", "lo"), ("orte_keep_fqdn_hostnames", 1)], {}
    # Daemons from 5.0 on do not talk over lo.
    return [], {"PRTE_MCA_plm_ssh_agent": agent, "PRTE_MCA_prte_keep_fqdn_hostnames": "1"}


class Result:
    """What a finished job left: exit code (None: killed at the limit), output, seconds, events, counters."""

    def __init__(self, command, code, output, seconds, limit_s):
        self.command = command
        self.code = code
        self.output = output
        self.seconds = seconds
        self.limit_s = limit_s
        self.events_text = ""
        self.counters_text = ""

    def events(self):
        return [json.loads(line) for line in self.events_text.splitlines()]

    def snapshots(self):
        """The counters file as a list of snapshots: {reason, ports: {(node, device): {...}}, rules: {name: {...}}}."""
        found = []
        for line in self.counters_text.splitlines():
            entry = json.loads(line)
            if entry.get("type") == "snapshot":
                found.append({"reason": entry["reason"], "ports": {}, "rules": {}, "trace": []})
            elif entry.get("type") == "port":
                found[-1]["ports"][(entry["node"], entry["device"])] = entry
            elif entry.get("type") == "rule":
                found[-1]["rules"][entry["name"]] = entry
            else:
                found[-1]["trace"].append(entry)
        if not found:
            raise Failure("the software HCA has left no counters (--counters)")
        return found

    def says(self, pattern):
        return re.search(pattern, self.output, re.MULTILINE) is not None

    def tail(self, lines=25):
        kept = [line for line in self.output.splitlines() if line.strip()]
        return "\n".join(kept[-lines:])


def descendants(root):
    """Pids of all processes below `root`."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(entry))
            except (OSError, IndexError, ValueError):
                pass
    found, frontier = [], [root]
    while frontier:
        frontier = [pid for parent in frontier for pid in children.get(parent, [])]
        found += frontier
    return found


def kill(process):
    """Ends the job: mpirun first, so that it can clean up; then whatever is left of it, by pid."""
    below = descendants(process.pid)
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        pass
    for pid in [process.pid, *below, *descendants(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    process.wait()


def stacks(process):
    """Where the processes of a job are, for the report of one that hangs. Needs gdb; empty without it. Takes half a
    minute at most: the verdict must come within the time limit of the test."""
    deadline = time.monotonic() + 30
    if not shutil.which("gdb"):
        return ""
    text = ""
    for pid in descendants(process.pid):
        left = deadline - time.monotonic()
        if left < 1:
            break
        try:
            with open(f"/proc/{pid}/stat") as f:
                stat = f.read()
            name, state = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2]
            if name in ("bash", "sh", "sleep", "env"):
                continue
            # The main thread first: a process may have more threads than are printed.
            found = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "bt 24", "-ex", "thread apply all bt 14"],
                                   timeout=min(20, left),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   errors="replace", check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        frames = [line[:150] for line in found.splitlines() if line.startswith(("#", "Thread"))]
        text += "\n".join([f"--- stack of {name}, pid {pid}, state {state}", *frames[:90], ""])
    return text


def run_command(command, limit_s, env=None, cwd=None):
    """Runs a command with a time limit (times BFO_TIME_LIMIT_FACTOR); output and errors are taken together."""
    limit_s *= float(os.environ.get("BFO_TIME_LIMIT_FACTOR", "1"))
    started = time.monotonic()
    full = dict(os.environ, **(env or {}))
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=full,
                                   cwd=cwd)
        code = None
        where = ""
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            where = stacks(process)
            kill(process)
        except BaseException:
            kill(process)
            raise
        out.seek(0)
        text = out.read().decode(errors="replace") + where
    return Result(command, code, text, time.monotonic() - started, limit_s)


class Transport:
    """A way to run a job: PML, BTLs, on the software HCA or not, with a fault file or not."""

    def __init__(self, name, pml, btl, softhca=False, faults=None, rails=2, options=(), counters=True):
        self.name = name
        self.pml = pml
        self.btl = named(btl)
        self.softhca = softhca
        self.faults = faults
        self.rails = rails
        self.options = list(options)
        self.counters = counters  # the file is written at every fault, which stops the rank for milliseconds

    def missing(self):
        """Why this cannot run here, or None."""
        needs = []
        if self.pml == "bfo":
            needs.append("components/mca_pml_bfo.so")
        if "verbs" in self.btl.split(","):
            needs.append("components/mca_btl_verbs.so")
        if self.softhca:
            needs += ["contrib/softhca/lib/libibverbs.so.1", "contrib/softhca/lib/libsofthca-shim.so"]
        for need in needs:
            if not os.path.exists(os.path.join(BUILD, need)):
                return f"{need} is not built"
        if self.faults and not os.path.exists(self.faults):
            return f"{os.path.relpath(self.faults, SRCDIR)} does not exist"
        if not shutil.which(self.mpirun()):
            return f"{self.mpirun()} not found"
        return None

    def mpirun(self):
        return SOFTHCA_MPIRUN if self.softhca else build_env().get("MPIRUN") or "mpirun"

    def run(self, ranks, command, limit_s, env=None, mca=(), cwd=None):
        """Runs `command` (a list) on `ranks` ranks."""
        arguments = ["-np", str(ranks), "--mca", "pml", self.pml, "--mca", "btl", self.btl]
        # From 5.0 on tcp takes interfaces whose networks reach each other; within one machine that may be lo only.
        if RENAMED and "tcp" in self.btl.split(",") and "btl_tcp_if_include" not in dict(mca):
            mca = [*mca, ("btl_tcp_if_include", "lo")]
        for name, value in mca:
            arguments += ["--mca", named(name), named(str(value))]
        arguments += command
        job_env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", OVERSUBSCRIBE: ":oversubscribe",
                   "OMPI_MCA_mpi_yield_when_idle": "1", **(env or {})}
        scratch = tempfile.mkdtemp(prefix="bfo-job-")
        # Two runs of mpirun that make or remove one session directory at once fail: each has its own.
        for name in TMPDIR_BASES:
            job_env.setdefault(name, scratch)
        events = os.path.join(scratch, "events")
        counters = os.path.join(scratch, "counters")
        try:
            if self.softhca:
                options = ["--rails", str(self.rails), "--events", events, *self.options]
                if self.counters:
                    options += ["--counters", counters]
                if self.faults:
                    options += ["--faults", self.faults]
                full = [self.mpirun(), *options, "--", *arguments]
            else:
                found = build_env()
                if self.pml == "bfo" or "verbs" in self.btl.split(","):
                    job_env["OMPI_MCA_mca_base_component_path"] = \
                        found["OMPI_COMPONENT_DIR"] + ":" + os.path.join(BUILD, "components")
                    if found.get("PMIX_COMPONENT_DIR"):
                        job_env["PMIX_MCA_mca_base_component_path"] = found["PMIX_COMPONENT_DIR"]
                full = [self.mpirun(), *arguments]
            result = run_command(full, limit_s, job_env, cwd)
            for path, attribute in ((events, "events_text"), (counters, "counters_text")):
                if os.path.exists(path):
                    with open(path, errors="replace") as f:
                        setattr(result, attribute, f.read())
            return result
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def example(name):
    return os.path.join(EXAMPLES, name + ".faults")


OB1_VADER = Transport(f"ob1 over {SHARED},self", "ob1", f"{SHARED},self")
OB1_TCP = Transport("ob1 over tcp,self", "ob1", "tcp,self")
OB1_VERBS = Transport("ob1 over verbs,self", "ob1", "verbs,self", softhca=True)
OB1_VERBS_KILL = Transport("ob1 over verbs,self, kill-rail1", "ob1", "verbs,self", softhca=True,
                           faults=example("kill-rail1"))
BFO_VADER = Transport(f"bfo over {SHARED},self", "bfo", f"{SHARED},self")
BFO_TCP = Transport("bfo over tcp,self", "bfo", "tcp,self")
BFO_VERBS = Transport("bfo over verbs,self", "bfo", "verbs,self", softhca=True)
FAULT_EXAMPLES = ("kill-rail1", "flap-rail1", "lost-ack", "late-write", "slow-rail", "one-way", "storm")
BFO_FAULTS = {name: Transport(f"bfo over verbs,self, {name}", "bfo", "verbs,self", softhca=True, faults=example(name))
              for name in FAULT_EXAMPLES}


class Failure(Exception):
    """Raised where a case cannot go on; the text says what is wrong."""


class Skip(Exception):
    """Raised by a case that cannot run here; the text is the reason."""


class Plan:
    """A list of test cases with TAP output. A case is a function that returns None, or a text that says what failed."""

    def __init__(self):
        self.cases = []

    def add(self, name, function):
        self.cases.append((name, function))

    def job(self, transport, ranks, command, limit_s, judge=None, name=None, **options):
        """A case that runs `command`; without `judge` the exit code must be 0."""

        def case():
            why = transport.missing()
            if why:
                raise Skip(why)
            result = transport.run(ranks, command, limit_s, **options)
            return check_finished(result) or (judge(result) if judge else check_success(result))

        self.add(f"{name or os.path.basename(command[0])}, {transport.name}, {ranks} ranks", case)

    def program(self, transport, ranks, program, limit_s, dies=False):
        """A case that runs a Program (programs.py) in a folder of its own; `dies`: stock ob1, which must not survive."""

        def case():
            why = program.missing() or transport.missing()
            if why:
                raise Skip(why)
            with tempfile.TemporaryDirectory(prefix="bfo-program-") as folder:
                program.prepare(folder)
                result = transport.run(ranks, program.command, limit_s, env=program.env, cwd=folder)
                return check_finished(result) or (OB1_DIES(result) if dies else program.judge(result, folder))

        self.add(f"{program.name}{' must not survive' if dies else ''}, {transport.name}, {ranks} ranks", case)

    def run(self, together=1):
        """Runs the cases, `together` of them at a time: for jobs that wait, or are over soon. Results are printed in order."""
        only = os.environ.get("BFO_CHECK_ONLY")
        cases = [c for c in self.cases if not only or re.search(only, c[0])]
        print(f"1..{len(cases)}", flush=True)
        failed = 0
        with concurrent.futures.ThreadPoolExecutor(together) as pool:
            for number, (what, seconds, problem) in enumerate(pool.map(outcome, cases), 1):
                name = cases[number - 1][0]
                if what == "skip":
                    print(f"ok {number} - {name} # SKIP {problem}", flush=True)
                    continue
                print(f"{what} {number} - {name} ({seconds:.1f} s)", flush=True)
                if problem:
                    failed += 1
                    for line in str(problem).splitlines():
                        print("# " + line, flush=True)
        sys.exit(1 if failed else 0)


def outcome(case):
    """Runs one case of a Plan. Returns ("ok", "not ok" or "skip", seconds, what is wrong or why it skips)."""
    started = time.monotonic()
    try:
        problem = case[1]()
    except Skip as skip:
        return "skip", 0, skip
    except Failure as failure:
        problem = failure
    return "not ok" if problem else "ok", time.monotonic() - started, problem


def complain(result, what, lines=25):
    return f"{what}\ncommand: {' '.join(shlex.quote(c) for c in result.command)}\n{result.tail(lines)}"


def check_finished(result):
    if result.code is None:
        return complain(result, f"still running after {result.limit_s:g} s, killed", 150)
    return None


# How mpirun of Open MPI 4.x ends a job whose ranks all finalized and returned 0 when it cannot run for two seconds
# meanwhile (contrib/doc/openmpi-bugs.md). Also the way it ends one with a rank that did not finalize: it is named, not forgiven.
WITHOUT_SYNC = r"mpirun\S* has exited due to process rank \d+ with PID 0 on\s+node \S+ exiting improperly"


def check_success(result):
    if result.code == 1 and result.says(WITHOUT_SYNC):
        return complain(result, "exit code 1: a rank did not finalize, or mpirun could not run for 2 s meanwhile")
    return complain(result, f"exit code {result.code}") if result.code else None


def check_refused(pattern):
    """A judge: the job must fail, and say `pattern`."""

    def judge(result):
        if result.code == 0:
            return complain(result, "succeeded although it must fail")
        if not result.says(pattern):
            return complain(result, f"does not say {pattern!r}")
        return None

    return judge


def check_said(pattern):
    """A judge: the job must succeed and its output must match `pattern`."""

    def judge(result):
        return check_success(result) or (None if result.says(pattern) else complain(result, f"does not say {pattern!r}"))

    return judge


# Stock ob1 ends the job when the BTL reports a lost connection; it must say so, and end in time.
OB1_DIES = check_refused(r"(?i)lost a connection|abort")
