# SPDX-License-Identifier: BSD-3-Clause
"""What the scripts of this folder share: running programs on the software HCA, and TAP."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

SOURCE = pathlib.Path(os.environ.get("BFO_SRCDIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("BFO_BUILD", SOURCE / "build")).resolve()
LIBRARY = BUILD / "contrib/softhca/lib/libibverbs.so.1"
CTL = BUILD / "contrib/softhca/softhcactl-bin"
_count = 0


def preload():
    """Value of LD_PRELOAD for a program on the software HCA; a sanitizer's runtime must come first."""
    runtime = ""
    with contextlib.suppress(OSError):
        for line in (BUILD / "contrib/build-env").read_text().splitlines():
            if line.startswith("SANITIZER_RUNTIME="):
                runtime = line.split("=", 1)[1].strip("'\"")
    shim = LIBRARY.with_name("libsofthca-shim.so")
    return ":".join(str(part) for part in (runtime, LIBRARY, shim) if str(part))


def fabric_name():
    """A name no other test uses."""
    global _count
    _count += 1
    return f"test-{os.getpid()}-{_count}"


class Fabric:
    """One fabric: its environment, its programs, softhcactl on it. Use as a context: ends what it started."""

    def __init__(self, **settings):
        self.name = fabric_name()
        self.environment = dict(
            os.environ,
            BFO_BUILD=str(BUILD),
            SOFTHCA_FABRIC=self.name,
            LD_PRELOAD=preload(),
        )
        # Debian's programs free little before they end; what the device leaks, the conformance tests find.
        self.environment.setdefault("ASAN_OPTIONS", "detect_leaks=0")
        for key, value in settings.items():
            self.environment["SOFTHCA_" + key.upper()] = str(value)
        self.programs = []
        self.nodes = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            if program.poll() is None:
                program.kill()
            with contextlib.suppress(ValueError):  # read to its end before
                program.communicate()
        subprocess.run([CTL, "remove", self.name], stderr=subprocess.DEVNULL)

    def start(self, *command, node=None, **settings):
        """Starts a program as a node of its own, or as several (an MPI job) with node=False; returns the Popen."""
        environment = dict(self.environment)
        if node is not False:
            environment["SOFTHCA_NODE"] = str(self.nodes if node is None else node)
        self.nodes += 1
        for key, value in settings.items():
            environment["SOFTHCA_" + key.upper()] = str(value)
        program = subprocess.Popen(
            [str(part) for part in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.programs.append(program)
        return program

    def ctl(self, *arguments, check=True):
        """Runs softhcactl on this fabric; returns its standard output."""
        run = subprocess.run(
            [CTL, "--fabric", self.name, *arguments], capture_output=True, text=True, timeout=20, env=self.environment | {"LD_PRELOAD": ""}
        )
        if check and run.returncode != 0:
            raise Failure(f"softhcactl {' '.join(arguments)}: {run.stderr.strip()}")
        return run.stdout

    def json(self, *arguments):
        return [json.loads(line) for line in self.ctl("--json", *arguments).splitlines()]

    def wait_until_up(self, processes=1, seconds=10):
        """Until that many processes have joined the fabric."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(Failure):
                if sum(line["type"] == "process" and line["command"] != "softhcactl-bin" for line in self.json("list")) >= processes:
                    return
            time.sleep(0.02)
        raise Failure(f"not {processes} processes in the fabric after {seconds} s")


class Failure(Exception):
    """A test that failed, with the reason."""


class Skip(Exception):
    """A test that cannot run here, with the reason."""


def finish(program, seconds=60):
    """Output of a program that ends by itself; Failure when it does not."""
    try:
        output, _ = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        program.kill()
        output, _ = program.communicate()
        raise Failure(f"{program.args[0]} did not end within {seconds} s:\n{output[-2000:]}") from None
    return output


def expect(condition, text):
    if not condition:
        raise Failure(text)


def run_tap(tests):
    """Runs functions and prints TAP; their docstring is the name. Returns the exit status."""
    print(f"1..{len(tests)}", flush=True)
    bad = 0
    for number, test in enumerate(tests, 1):
        name = f"{test.__name__} - {test.__doc__.splitlines()[0]}"
        start = time.monotonic()
        try:
            test()
            line = f"ok {number} - {name}"
        except Skip as reason:
            line = f"ok {number} - {name} # SKIP {reason}"
        except Failure as reason:
            bad += 1
            line = f"not ok {number} - {name}"
            for part in str(reason).splitlines():
                line += f"\n# {part}"
        print(f"{line}\n# {time.monotonic() - start:.1f} s", flush=True)
    return 1 if bad else 0


def terminate(program):
    program.send_signal(signal.SIGTERM)
    return finish(program, 10)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def need(program):
    if shutil.which(program) is None:
        raise Skip(f"{program} is not installed")


def listening(port, server, seconds=15):
    """Until the server listens on the TCP port (looked up, not connected to: it takes one client only)."""
    wanted = f":{port:04X}"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table) as file:
                for line in file:
                    fields = line.split()
                    if fields[1].endswith(wanted) and fields[3] == "0A":
                        return
        if server.poll() is not None:
            break
        time.sleep(0.01)
    raise Failure(f"{server.args[0]} does not listen:\n{server.communicate()[0] if server.poll() is not None else ''}")
