# SPDX-License-Identifier: BSD-3-Clause
"""The programs of the fault tests: how each is started, and how it says that everything was right.

A Program's `judge` takes (result, folder) and returns None, or what is wrong; the job ran in `folder`.
"""
import os
import re
import shutil
import subprocess

import jobs

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # Debian's mpi4py belongs to Debian's python


class Program:
    def __init__(self, name, command, judge, missing=lambda: None, inputs=None, env=None):
        self.name = name
        self.command = list(command)
        self.judge = judge
        self.missing = missing  # why it cannot run here, or None
        self.inputs = dict(inputs or {})  # what it reads where it runs: the names and texts of files
        self.env = dict(env or {})

    def prepare(self, folder):
        for name, text in self.inputs.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)


def needs(tool, package):
    return lambda: None if shutil.which(tool) else f"{tool} is not installed (Debian: {package})"


def checker(*options):
    def judge(result, _folder):
        return jobs.check_said(r"^checker: ok: .* errors 0$")(result)

    return Program("checker", [jobs.CHECKER, *map(str, options)], judge)


def netpipe(largest=4194304):
    """NetPIPE's integrity mode. It cannot see a stale, doubled or reordered message (the checker can)."""
    def judge(result, _folder):
        problem = jobs.check_success(result)
        if problem:
            return problem
        good = len(re.findall(r"Integrity check passed", result.output))
        if re.search(r"Integrity check failed", result.output):
            return jobs.complain(result, "an integrity check failed")
        # 40 sizes below 4 MiB; the last of them must be there. What a rank says may stand in the middle of a line.
        if good < 40 or not result.says(rf"^ *\d+: *{largest * 3 // 4 + 1} bytes "):
            return jobs.complain(result, f"only {good} sizes were checked")
        return None

    return Program("NPopenmpi", ["NPopenmpi", "-i", "-u", str(largest)], judge, needs("NPopenmpi", "netpipe-openmpi"))


def hpcc_report_wrong(report):
    """What hpcc's result file says is wrong, or None."""
    if "End of HPC Challenge tests" not in report:
        return "the result file has no end"
    values = dict(re.findall(r"^(\w+)=(\S+)$", report, re.MULTILINE))
    if values.get("Success") != "1":
        return f"Success={values.get('Success')}"
    for name in ("MPIRandomAccess_Errors", "MPIRandomAccess_LCG_Errors", "PTRANS_residual"):
        if float(values.get(name, "nan")) != 0:
            return f"{name}={values.get(name)}"
    if not float(values.get("MPIFFT_maxErr", "nan")) < 1e-12:
        return f"MPIFFT_maxErr={values.get('MPIFFT_maxErr')}"
    if not float(values.get("HPL_Tflops", "nan")) > 0:
        return "HPL has no result"
    for bad in (r"\bFAILED\b", r"Found [1-9]\d* errors", r"Node\(s\) with error [1-9]",
                r"[1-9]\d* tests completed and failed"):
        found = re.search(bad, report)
        if found:
            return found.group(0)
    for good in (r"\.\.\. PASSED", r"Solution Validates", r"5 tests completed and passed residual checks",
                 r"Found 0 errors in \d+ locations \(passed\)"):
        if not re.search(good, report):
            return f"the result file does not say {good!r}"
    return None


def hpcc(size=500):
    """HPC Challenge on four ranks, with matrices of `size` rows, of which it makes the sizes of its other parts; its own
    verification of every part must pass."""
    with open(os.path.join(HERE, "input", "hpccinf.txt")) as f:
        text = re.sub(r"^\d+ +Ns$", f"{size} Ns", f.read(), flags=re.MULTILINE)

    def judge(result, folder):
        problem = jobs.check_success(result)
        if problem:
            return problem
        try:
            with open(os.path.join(folder, "hpccoutf.txt"), errors="replace") as f:
                wrong = hpcc_report_wrong(f.read())
        except OSError as error:
            wrong = str(error)
        return jobs.complain(result, "hpcc's verification: " + wrong) if wrong else None

    # One thread per rank: four ranks share the machine anyway.
    return Program("hpcc", ["hpcc"], judge, needs("hpcc", "hpcc"), {"hpccinf.txt": text},
                   {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})


def mpi4py(rounds):
    """numpy arrays, pickled objects, probes, threads."""
    def missing():
        have = subprocess.run([PYTHON, "-c", "import numpy, mpi4py"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0
        return None if have else f"{PYTHON} has no numpy and mpi4py (Debian: python3-numpy python3-mpi4py)"

    def judge(result, _folder):
        return jobs.check_said(r"^mpi4py_exchange: ok: .* errors 0$")(result)

    return Program("mpi4py", [PYTHON, os.path.join(HERE, "mpi4py_exchange.py"), str(rounds)], judge, missing)
