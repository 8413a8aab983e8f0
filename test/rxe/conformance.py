# SPDX-License-Identifier: BSD-3-Clause
"""The conformance tests of the software HCA on the kernel's device: emulator and kernel are held to the same table.

A row is "same" when its test passes here too; "emulator only" when the test injects a fault by rule or looks behind the
device; or it "differs", and then conformance.tsv must say why. The whole table goes to BUILD/test/rxe/conformance.table.
"""
import csv
import os
import re
import shlex
import subprocess

import lab

PROGRAM = os.path.join(lab.jobs.BUILD, "test", "conformance", "conformance_test")
EMULATOR_ONLY = "needs the emulator"
LIMIT_S = 300
MOST_STARTS = 10


class Differs(Exception):
    """A row differs and conformance.tsv does not say so."""


def read_tsv(path):
    with open(path, newline="") as f:
        return [row for row in csv.reader(f, delimiter="\t", quoting=csv.QUOTE_NONE) if row and not row[0].startswith("#")]


def run_once(the_lab, done):
    """Runs the tests that are not in `done`. Returns {test: None or what failed}; a test that never ended is in it, too."""
    without = "-" + ":".join(done) if done else "*"
    script = f"export BFO_CONFORMANCE_DEVICES=ra0,ra1\nexec timeout {LIMIT_S} {PROGRAM} --gtest_filter={shlex.quote(without)}"
    command = the_lab.vm.begin(script)
    if not command.wait(LIMIT_S + 20):
        raise lab.Hang("the conformance tests cannot be ended")
    found, running, text = {}, None, []
    for line in command.output.splitlines():
        began = re.match(r"\[ RUN      \] (\S+)", line)
        ended = re.match(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+) \(", line)
        if began:
            running, text = began.group(1), []
        elif ended and running:
            found[running] = None if ended.group(1) == "OK" else summary(text)
            running = None
        elif running:
            text.append(line)
    if running:
        found[running] = f"ended the program with status {command.code}: " + " ".join(text[-2:])
    return found


def summary(text):
    joined = " ".join(line.strip() for line in text if line.strip())
    return EMULATOR_ONLY if EMULATOR_ONLY in joined else re.sub(r"\S*/test/conformance/", "", joined)[:300]


def verdict(problem, why):
    if problem is None:
        return "same"
    if problem == EMULATOR_ONLY:
        return "emulator only"
    return f"differs: {why}" if why else f"DIFFERS, and nothing says why: {problem}"


def listed():
    """The tests of the program. Those of the others are about faults that only the emulator injects."""
    run = subprocess.run([PROGRAM, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    tests, suite = set(), ""
    for line in run.stdout.splitlines():
        if line.startswith(" "):
            tests.add(suite + line.split()[0])
        else:
            suite = line.split()[0] if line.endswith(".") else ""
    return tests


def table(the_lab):
    results = {}
    for _ in range(MOST_STARTS):
        found = run_once(the_lab, results)
        results.update(found)
        if not found or not any(text and text.startswith("ended the program") for text in found.values()):
            break
    known = {row[0]: row[1] for row in read_tsv(os.path.join(lab.HERE, "conformance.tsv"))}
    rows = read_tsv(os.path.join(lab.jobs.SRCDIR, "test", "conformance", "rows.tsv"))
    for test in {row[3] for row in rows} - listed():
        results[test] = EMULATOR_ONLY
    verdicts = [(row, verdict(results[row[3]], known.get(row[3])) if row[3] in results else "not run") for row in rows]
    with open(os.path.join(lab.jobs.BUILD, "test", "rxe", "conformance.table"), "w") as out:
        for row, what in verdicts:
            out.write("\t".join([row[0], row[2], what]) + "\n")
    count = {word: sum(what.startswith(word) for _, what in verdicts) for word in ("same", "emulator only", "differs", "DIFFERS", "not run")}
    note = f"{len(rows)} rows: " + ", ".join(f"{number} {word}" for word, number in count.items() if number)
    bad = [f"{row[0]} {row[3]}: {what}" for row, what in verdicts if what.startswith(("DIFFERS", "not run"))]
    if bad:
        raise Differs("\n".join([note, *bad]))
    return note
