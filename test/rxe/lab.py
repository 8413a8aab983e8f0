# SPDX-License-Identifier: BSD-3-Clause
"""The lab: a virtual machine with two cables between two hosts, and MPI jobs in it.

A cable is a veth pair with an rxe device at both ends; a host is a list of devices (`rank`). Cables a and b are whole;
cable x never is: both its ports are ACTIVE, and nothing reaches the other end.
"""
import json
import os
import re
import shlex
import sys

import machine

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import jobs  # noqa: E402  (for the paths of the build)

CHECKER = jobs.CHECKER
ROUNDS = os.path.join(jobs.BUILD, "test", "rxe", "rounds")
SYSTEM_LIBRARIES = "/usr/lib/x86_64-linux-gnu"  # rdma-core's libibverbs, not the software HCA's


class Hang(Exception):
    """Something did not end in time; the machine must be booted again."""


class Job:
    """An MPI job in the machine. `timeout` ends it there; finish() does not wait longer than that."""

    def __init__(self, command, limit_s, folder):
        self.command = command
        self.limit_s = limit_s
        self.events_file = os.path.join(folder, command.name + ".events")

    def finish(self):
        """Waits for the end and returns self. Raises Hang when the job had to be killed."""
        ended = self.command.wait(self.limit_s + 30)
        if not ended or (self.command.code in (124, 137) and self.command.seconds >= self.limit_s):  # 137: a rank was killed
            raise Hang(f"still running after {self.limit_s:g} s\n{tail(self.output)}")
        return self

    @property
    def code(self):
        return self.command.code

    @property
    def output(self):
        return self.command.output

    @property
    def seconds(self):
        return self.command.seconds

    def events(self, what="failover"):
        """The events of all ranks whose kind is `what`; "": any."""
        try:
            with open(self.events_file, errors="replace") as f:
                found = [json.loads(line) for line in f]
                return [e for e in found if what in ("", e["what"])]
        except OSError:
            return []

    def rounds(self):
        """What the program `rounds` printed, as a dictionary of numbers; {} when it did not get there."""
        found = re.search(r"^rounds: (\d+) rounds in ([\d.]+) s, (\d+) bytes wrong, longest round (\d+) ms, longest call (\d+) ms, "
                          r"(\d+) calls over \d+ ms, (\d+) not by", self.output, re.MULTILINE)
        return dict(zip(("rounds", "seconds", "wrong", "round_ms", "call_ms", "slow_calls", "slow_beyond"), map(float, found.groups()))) if found else {}

    def parts(self):
        """What the long calls of `rounds` were made of: its lines about them."""
        return re.findall(r"^rounds: ((?:the longest|calls over|all calls).*)", self.output, re.MULTILINE)

    def wrong(self):
        """Whether a byte was wrong."""
        return bool(re.search(r"^rounds: rank .*instead of|[1-9]\d* bytes wrong|^checker: rank .* instead of", self.output, re.MULTILINE))


def tail(text, lines=12):
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


class Lab:
    """A machine with its cables laid."""

    def __init__(self, vm):
        self.vm = vm
        vm.run("/lab/cables lay a b && /lab/cables lay-apart x && /lab/cables ready", 90)

    def cables(self, *words, limit_s=60):
        return self.vm.run(" ".join(["/lab/cables", *words]), limit_s)

    def begin(self, program, ranks=2, cables="a b", pml="bfo", mca=(), limit_s=120, before=""):
        """Starts an MPI job. `before`: a command put before each rank's program; `mca`: pairs of name and value."""
        found = jobs.build_env()
        name = f"c{len(self.vm.commands) + 1}"
        settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                    "OMPI_MCA_mca_base_component_path": found["OMPI_COMPONENT_DIR"] + ":" + os.path.join(jobs.BUILD, "components"),
                    "OMPI_MCA_pml_bfo_event_file": f"/lab/{name}.events", "LD_LIBRARY_PATH": SYSTEM_LIBRARIES, "BFO_CABLES": cables}
        command = ["timeout", "-k", "10", str(limit_s), found["MPIRUN"], "-np", str(ranks), "--mca", "pml", pml,
                   "--mca", "btl", "verbs,self"]
        for key, value in mca:
            command += ["--mca", key, str(value)]
        command += ["/lab/rank", *shlex.split(before), *program]
        script = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in settings.items())
        return Job(self.vm.begin(script + "exec " + " ".join(map(shlex.quote, command))), limit_s, self.vm.folder)

    def job(self, program, **options):
        """Runs an MPI job to its end."""
        return self.begin(program, **options).finish()
