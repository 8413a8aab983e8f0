# SPDX-License-Identifier: BSD-3-Clause
"""Runs generated programs (generator.py) under bfo and under stock ob1 and compares what every process saw.

A job plays many programs, one after the other. Each is judged by what the player knows must come (WRONG lines) and by the
log of the same program under ob1 over vader. Where ob1 itself is wrong, only the first counts.
"""
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "integration"))
import generator
import jobs

PLAYER = os.path.join(jobs.BUILD, "test", "conformance", "mpi", "player", "player")
FAILED = os.path.join(jobs.BUILD, "test", "conformance", "mpi", "failed")
TCP = [("btl_tcp_if_include", "lo")]
# Without an exclusivity of its own verbs leaves local peers to vader; with the same one messages use both.
BTLS = {"verbs": ("verbs,self", []), "verbs+vader": ("verbs,vader,self", []), "vader": ("vader,self", []),
        "tcp": ("tcp,self", TCP), "tcp2": ("tcp,self", [*TCP, ("btl_tcp_links", 2)]), "faults": ("verbs,self", []),
        "vader+tcp": ("vader,tcp,self", TCP)}
SAMPLED = ("verbs", "verbs+vader", "vader", "tcp", "tcp2", "faults")
RULES = 40


class Job:
    """One way to run programs: BTLs, rails, threads, and what fails."""

    def __init__(self, btl, rails, threads, pml="bfo", mca=()):
        self.btl, self.rails, self.threads, self.pml, self.mca = btl, rails, threads, pml, list(mca)

    @property
    def name(self):
        return f"{self.btl}/{self.rails}/{self.threads}" + ("" if self.pml == "bfo" else f"/{self.pml}") + \
            "".join(f"/{key}={value}" for key, value in self.mca)

    @staticmethod
    def named(name):
        btl, rails, threads, *rest = name.split("/")
        pml = [r for r in rest if "=" not in r]
        return Job(btl, int(rails), threads, pml[0] if pml else "bfo", [tuple(r.split("=")) for r in rest if "=" in r])

    def point(self):
        return {"btl": self.btl, "rails": self.rails, "threads": self.threads}

    def children(self):
        """vader does not reach processes that are spawned."""
        return 0 if self.btl == "vader" else generator.CHILDREN

    def over_verbs(self):
        return "verbs" in BTLS[self.btl][0]


def all_jobs():
    """The jobs of the fixed sample: BTLs x rails, each with one thread or two."""
    found = []
    for number, rails in enumerate((1, 2, 3, 4)):
        for k, btl in enumerate(("verbs", "verbs+vader", "faults")):
            found.append(Job(btl, rails, ("single", "multiple")[(number + k) % 2]))
    for k, btl in enumerate(("vader", "tcp", "tcp2")):
        found += [Job(btl, 0, "single"), Job(btl, 0, "multiple")][:2 if k != 2 else 1]
    return [*found, Job("tcp2", 0, "multiple")]


def reference(threads):
    return Job("vader+tcp", 0, threads, "ob1")


def limits():
    """The limits of the BTLs and the PML, as Open MPI has them; where it does not say, the usual ones."""
    env = dict(os.environ, OMPI_MCA_mca_base_component_path=jobs.build_env().get("OMPI_COMPONENT_DIR", "") + ":" +
               os.path.join(jobs.BUILD, "components"))
    names = {"short": "pml_bfo_short_limit", "slot": "btl_verbs_slot_size", "inline": "btl_verbs_max_inline",
             "self eager": "btl_self_eager_limit", "vader eager": "btl_vader_eager_limit",
             "verbs eager": "btl_verbs_eager_limit", "blocking": "pml_bfo_blocking_eager_limit",
             "self max send": "btl_self_max_send_size",
             "vader max send": "btl_vader_max_send_size", "verbs max send, rdma": "pml_bfo_rdma_threshold",
             "tcp max send": "btl_tcp_max_send_size", "tcp pipeline": "btl_tcp_min_rdma_pipeline_size",
             "verbs pipeline": "btl_verbs_rdma_pipeline_send_length", "verbs min pipeline": "btl_verbs_min_rdma_pipeline_size"}
    said = subprocess.run(["ompi_info", "--all", "--parsable"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False).stdout
    values = dict(re.findall(r"^mca:[^:]*:[^:]*:param:(\w+):value:(\d+)$", said, re.MULTILINE))
    return {k: int(values.get(jobs.named(v), generator.USUAL_LIMITS[k])) for k, v in names.items()}


def fault_rules(seed, rails, children):
    """Losses on random rails, early and often enough that each program of the job meets one."""
    draw = random.Random(seed)
    processes = generator.PARENTS + children
    rules, after = [], ""
    # From 5.0 on MPI_Comm_spawn waits in PMIx without progress: what is lost in it is sent after it, and the others need it to
    # get there (contrib/doc/using.md). So nothing is lost before a process that was spawned has sent something.
    if children and not jobs.RELEASE.startswith("4."):
        rules.append(f"joined: when node={generator.PARENTS} service=RC message=1 count=1 do delay 1us")
        after = " after=joined+1ms"
    for k in range(RULES):
        where = f"node={draw.randrange(processes)} device=softhca{draw.randrange(rails)} service=RC"
        where += after
        first = int(2 ** draw.uniform(2, 8.5))
        down = draw.choice([2, 10, 40])
        what = draw.choice([f"offset=50% count=1 do port-down for={down}ms" if rails > 1 else "do complete RETRY_EXC_ERR",
                            "do drop-ack", "do complete RETRY_EXC_ERR", "do complete RETRY_EXC_ERR"])
        rules.append(f"random{k}: when {where} message={first} {what}")
    return rules


class Played:
    """What a job has left: exit code, output, the log of each program by (program, process)."""

    def __init__(self, result, folder, programs):
        self.result = result
        self.logs = {}
        self.begun, self.ended = set(), set()
        self.left_in = {}  # {"process.thread": the program that it has begun and not ended}
        self.failovers = 0
        self.unseen = []  # failed receives that MPI_Waitany and MPI_Testany of libmpi have freed without telling (player/finish.h)
        self.with_failover = set()  # programs in whose time a rail failed and its messages went on
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), errors="replace") as f:
                self.take(name, f.read().splitlines())
        self.missing = {p["name"] for p in programs} - self.ended

    def take(self, log, lines):
        process, current, before = log.split(".")[0], None, 0
        for line in lines:
            if line.startswith("begin "):
                current = line.split()[1]
                self.begun.add(current)
                self.left_in[log] = current
            if line.startswith("end "):
                self.ended.add(line.split()[1])
                self.left_in.pop(log, None)
            if line.startswith("# failovers "):
                count = int(line.split()[3])
                if count > before:
                    self.with_failover.add(line.split()[2])
                before = count
                self.failovers = max(self.failovers, count)
            elif line.startswith("# unseen "):
                self.unseen.append(line)
            elif current:
                self.logs.setdefault((current, process), []).append(line)

    def wrong(self, program):
        return [line for (name, process), lines in sorted(self.logs.items()) if name == program
                for line in lines if line.startswith("WRONG")]


def environment(job, folder):
    """What a job needs in a build with AddressSanitizer: ob1 copies a restarted MPI_Bsend_init from where the last message was in
    the attached buffer, which may overlap where it puts this one. Of ob1's jobs alone, copies that libopen-pal makes count for nothing."""
    if job.pml != "ob1":
        return {}
    path = os.path.join(folder, "suppressions")
    with open(path, "w") as f:
        f.write("interceptor_via_lib:libopen-pal\n")
    given = os.environ.get("ASAN_OPTIONS", "")
    return {"ASAN_OPTIONS": f"{given}{':' if given else ''}suppressions={path}"}


def play(job, programs, limit_s, fault_seed=1):
    folder = tempfile.mkdtemp(prefix="bfo-diff-")
    try:
        path, logs = os.path.join(folder, "programs"), os.path.join(folder, "logs")
        os.mkdir(logs)
        with open(path, "w") as f:
            f.write(generator.text(programs))
        children = generator.CHILDREN if any(m["comm"] == "spawned" for p in programs for b in p["batches"]
                                             for m in b["messages"]) else 0
        faults = None
        if job.btl == "faults":
            faults = os.path.join(folder, "faults")
            with open(faults, "w") as f:
                f.write("\n".join(fault_rules(fault_seed, job.rails, children)) + "\n")
        btl, mca = BTLS[job.btl]
        transport = jobs.Transport(job.name, job.pml, btl, softhca=job.over_verbs(), faults=faults, rails=job.rails or 2,
                                   counters=False)
        why = transport.missing()
        if why:
            raise jobs.Skip(why)
        command = [PLAYER, path, logs, "--threads", "2" if job.threads == "multiple" else "1", "--children", str(children)]
        result = transport.run(generator.PARENTS, command, limit_s, env=environment(job, folder),
                               mca=[*mca, *job.mca])
        return Played(result, logs, programs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def differences(played, wanted, program):
    """What is wrong with one program, in lines; empty when nothing is."""
    own = wanted.wrong(program) if wanted else []
    # What ob1 gets wrong in the very same way is libmpi's, or is ob1's own.
    found = [line for line in played.wrong(program) if line not in own]
    if wanted is None or own:
        return found
    processes = {process for _, process in played.logs}  # fewer than of the reference where none can be spawned
    for key in sorted(k for k in set(played.logs) | set(wanted.logs) if k[0] == program and k[1] in processes):
        ours, theirs = played.logs.get(key, []), wanted.logs.get(key, [])
        if f"end {program}" not in theirs:
            continue  # stock ob1 did not survive it
        if ours != theirs and not found:
            first = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            found.append(f"process {key[1]}: bfo {ours[first:first + 1]}, ob1 {theirs[first:first + 1]}")
    return found


def where(result):
    """What a job that ended badly says; of the stacks of one that hung, what our code and MPI were doing."""
    if result.code is not None:
        return result.tail(12)
    lines = result.output.splitlines()
    wanted = re.compile(r"WRONG|^---|bfo::glue|PMPI_|player::Play::(rec|post|wave|exch|match|fin)")
    told = [line for line in lines if wanted.search(line)]
    if all(line.startswith("---") for line in told):  # not in MPI
        told = [line for line in lines if line.startswith(("---", "#"))]
    return "\n".join(told)[:4000]


def judge(played, wanted, programs):
    """{program name: lines} of all that is wrong; a job that died or hung is charged to the programs it was in."""
    bad = {}
    for p in programs:
        if p["name"] in played.ended:
            lines = differences(played, wanted, p["name"])
            if lines:
                bad[p["name"]] = lines
    result = played.result
    explained = bad or any(played.wrong(p["name"]) for p in programs)  # the player's exit code tells of ob1's own as well
    if result.code is None or (result.code != 0 and not explained) or played.missing:
        how = f"killed after {result.limit_s:g} s" if result.code is None else f"exit code {result.code}"
        charged = sorted(played.missing & played.begun | set(played.left_in.values())) or ["(job)"]
        inside = ", ".join(f"{log} in {name}" for log, name in sorted(played.left_in.items())) or "all programs had ended"
        for name in charged:
            bad.setdefault(name, []).append(f"{how}; {inside}\n{where(result)}")
    if result.says(r"books of .* do not balance|Gave up on a peer"):
        bad.setdefault("(job)", []).append(result.tail(12))
    return bad


# ---- shrinking ----------------------------------------------------------------------------------------------------
def without_empty(program):
    batches = [b for b in program["batches"] if b["messages"]]
    return dict(program, batches=batches)


def smaller(program):
    """Programs that are a little simpler, the boldest first."""
    batches = program["batches"]
    if len(batches) > 1:
        half = len(batches) // 2
        yield dict(program, batches=batches[half:])
        yield dict(program, batches=batches[:half])
        for k in range(len(batches)):
            yield dict(program, batches=batches[:k] + batches[k + 1:])

    def changed(k, batch):
        return without_empty(dict(program, batches=[*batches[:k], batch, *batches[k + 1:]]))

    for k, batch in enumerate(batches):
        for i in range(len(batch["messages"])):
            if len(batch["messages"]) > 1:
                yield changed(k, dict(batch, messages=batch["messages"][:i] + batch["messages"][i + 1:]))
        if batch["waves"] > 1:
            yield changed(k, dict(batch, waves=1))
    for k, batch in enumerate(batches):
        for i, m in enumerate(batch["messages"]):
            def other(**values):
                new = dict(m, **values)
                return changed(k, dict(batch, messages=[*batch["messages"][:i], new, *batch["messages"][i + 1:]]))
            for part in (2, 1.25, 1.02):
                n = int(m["n"] / part)
                if n < m["n"]:
                    yield other(n=n, room=max(0, m["room"] - (m["n"] - n)))
            if m["sender"] != "contiguous" and m["send"] != "replace":
                yield other(sender="contiguous")
            if m["receiver"] != "contiguous" and m["send"] != "replace":
                yield other(receiver="contiguous")
            if m["base"] != "byte":
                yield other(base="byte", n=m["n"] * generator.SIZES[m["base"]], room=m["room"] * generator.SIZES[m["base"]])
            if m["comm"] not in ("world",):
                if m["comm"] != "spawned":
                    yield other(comm="world")


def fails(job, program, limit_s, fault_seed, tries):
    """Whether a program fails in one of `tries` jobs, in a way that is not ob1's own."""
    wanted = play(reference(job.threads), [program], limit_s)
    return any(judge(play(job, [program], limit_s, fault_seed), wanted, [program]) for _ in range(tries))


def shrink(job, program, limit_s, fault_seed, tries=2, budget=80, say=print):
    """The smallest program found that still fails; each candidate is played `tries` times."""
    found = True
    while found and budget > 0:
        found = False
        for candidate in smaller(program):
            budget -= 1
            if budget <= 0:
                break
            if fails(job, candidate, limit_s, fault_seed, tries):
                program, found = candidate, True
                count = sum(len(b["messages"]) for b in program["batches"])
                say(f"# shrunk to {count} messages in {len(program['batches'])} batches", flush=True)
                break
    return program


def save(program, name):
    os.makedirs(FAILED, exist_ok=True)
    path = os.path.join(FAILED, re.sub(r"[^\w.+=-]", "-", name) + ".program")
    with open(path, "w") as f:
        f.write(generator.text([program]))
    return path


def load(path):
    """Programs of a file, so that what was shrunk can be played and shrunk again."""
    with open(path) as f:
        return parsed(f)


def parsed(lines):
    """Programs from text."""
    programs = []
    for line in lines:
        word, *rest = line.split() or ["#"]
        values = {key: int(value) if value.lstrip("-").isdigit() else value
                  for key, value in (pair.split("=", 1) for pair in rest if "=" in pair)}
        if word == "program":
            programs.append({"name": str(values["name"]), "seed": values["seed"], "batches": []})
        elif word == "batch":
            programs[-1]["batches"].append(dict(values, finish=values["finish"].split(","), messages=[]))
        elif word == "message":
            programs[-1]["batches"][-1]["messages"].append(values)
    return programs


# ---- the fixed sample ---------------------------------------------------------------------------------------------
def sample(job_list, known_limits, seed=1, per_program=16):
    """{job name: programs} that together have every pair of values of two dimensions, and the Coverage."""
    draw = random.Random(seed)
    dimensions = {**generator.dimensions_of(generator.CHILDREN), "btl": SAMPLED, "rails": (0, 1, 2, 3, 4),
                  "threads": ("single", "multiple")}

    def possible(point):
        if {"btl", "rails", "threads"} & set(point):
            if not any(all(j.point().get(k, v) == v for k, v in point.items()) for j in job_list):
                return False
        if point.get("btl") == "vader" and point.get("comm") == "spawned":
            return False
        return generator.allowed(point)

    coverage = generator.Coverage(dimensions, possible)
    drawn = {job.name: [] for job in job_list}
    idle = 0
    while coverage.left and idle < 40 * len(job_list):
        for job in job_list:
            candidates = []
            kinds = generator.dimensions_of(job.children(), job.threads)
            if len(drawn[job.name]) % 4:  # messages of a batch complete in the same way
                kinds["finish"] = (drawn[job.name][-1]["finish"],)
            for _ in range(14):
                m = generator.draw(draw, kinds)
                candidates.append((coverage.gain({**m, **job.point()}), m))
            gain, best = max(candidates, key=lambda c: c[0])
            idle = idle + 1 if gain == 0 else 0
            if gain > 0 or len(drawn[job.name]) % 4:
                coverage.take({**best, **job.point()})
                drawn[job.name].append(best)
    programs = {}
    for job in job_list:
        messages = drawn[job.name]
        size = 6 if job.btl == "faults" else per_program  # so that many programs meet a fault
        parts = [messages[i:i + size] for i in range(0, len(messages), size)]
        programs[job.name] = [generator.program(f"{job.name}#{k}", seed * 1000 + k, part, draw, generator.CHILDREN, known_limits)
                              for k, part in enumerate(parts)]
    return programs, coverage


class Totals:
    """What all jobs of a run did."""

    def __init__(self):
        self.jobs = self.programs = self.messages = self.bad = 0
        self.over_verbs = self.with_fault = self.failovers = self.unseen = 0
        self.seconds = 0.0

    def take(self, job, played, programs):
        self.jobs += 1
        self.programs += len(played.ended)
        self.messages += sum(len(b["messages"]) * b["waves"] for p in programs for b in p["batches"])
        self.seconds += played.result.seconds
        self.unseen += len(played.unseen)
        if job.over_verbs():
            self.over_verbs += len(played.ended)
            self.with_fault += len(played.with_failover)
            self.failovers += played.failovers

    def short_of_faults(self):
        if self.with_fault * 4 < self.over_verbs:
            return f"only {self.with_fault} of {self.over_verbs} programs over verbs had a failover"
        return None

    def line(self):
        return (f"{self.programs} programs, {self.messages} messages in {self.jobs} jobs, {self.seconds:.0f} s; over verbs "
                f"{self.over_verbs}, {self.with_fault} of them with failovers ({self.failovers} in all); "
                f"{self.unseen} failed receives freed by libmpi unseen; {self.bad} wrong")


def report(job, bad, programs):
    """The failure of a job: what is wrong, and the line that replays each program."""
    lines = []
    by_name = {p["name"]: p for p in programs}
    for name, said in bad.items():
        lines += [name, *said[:12]]
        if name in by_name:
            path = save(by_name[name], f"{job.name}-{name}")
            lines.append(f"replay: BFO_BUILD={jobs.BUILD} {os.path.dirname(os.path.abspath(__file__))}/differ "
                         f"--job {job.name} --program {path} --shrink")
    return "\n".join(lines)
