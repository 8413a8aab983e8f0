# SPDX-License-Identifier: BSD-3-Clause
"""The virtual machine: boots, runs commands, ends. Every wait has a limit, and what is left over is killed by pid.

Its root file system is this machine's, read-only, with a layer in memory over it. A folder of the host (self.folder, there
/lab) takes scripts to it and output back; lines on a serial port say when to start a script and that it has ended.
Environment: BFO_RXE_ACCEL=kvm or tcg (default: kvm where it boots, else tcg).
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import kernel

BOOT_LIMIT_S = {"kvm": 12, "tcg": 150}
# Without KVM the guest would read its clocks from an emulated HPET: a call of the kernel and an exit of the machine each time.
CLOCK = " tsc=reliable clocksource=tsc"
CPUS = 2
MEMORY_MB = 4096


class Broken(Exception):
    """The machine does not boot or does not answer; the text has the end of its console."""


def this_boot():
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


def accelerators():
    """What to try, best first. KVM that hung once is not tried again until the host has booted."""
    if os.environ.get("BFO_RXE_ACCEL"):
        return [os.environ["BFO_RXE_ACCEL"]]
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return ["tcg"]
    try:
        with open(os.path.join(kernel.CACHE, "kvm-hangs")) as f:
            return ["tcg"] if f.read().strip() == this_boot() else ["kvm", "tcg"]
    except OSError:
        return ["kvm", "tcg"]


def remember_that_kvm_hangs():
    try:
        os.makedirs(kernel.CACHE, exist_ok=True)
        with open(os.path.join(kernel.CACHE, "kvm-hangs"), "w") as f:
            f.write(this_boot() + "\n")
    except OSError:
        pass  # it will be tried again


class Command:
    """A script that runs in the machine."""

    def __init__(self, machine, name):
        self.machine = machine
        self.name = name
        self.started = time.monotonic()
        self.seconds = None
        self.code = None  # None: not ended

    def wait(self, limit_s):
        """Waits for the end; False when the limit comes first (the script is then still running)."""
        with self.machine.changed:
            return self.machine.changed.wait_for(lambda: self.code is not None or self.machine.dead(), limit_s) \
                and self.code is not None

    @property
    def output(self):
        try:
            with open(os.path.join(self.machine.folder, self.name + ".out"), errors="replace") as f:
                return f.read()
        except OSError:
            return ""


class Machine:
    """One virtual machine, a context manager."""

    def __init__(self):
        self.scratch = tempfile.mkdtemp(prefix="bfo-rxe-")
        self.folder = os.path.join(self.scratch, "lab")
        os.mkdir(self.folder)
        self.changed = threading.Condition()
        self.commands = {}
        self.process = self.port = None
        self.ready = False
        self.accel = self.version = None
        self.boot_s = None

    def __enter__(self):
        try:
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.power_off()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # ---- life ----
    def boot(self):
        found = kernel.find()
        self.version = found.version
        for name in ("agent", "cables", "rank"):
            shutil.copy(os.path.join(kernel.HERE, name), self.folder)
        ramfs = os.path.join(self.scratch, "initramfs")
        kernel.initramfs(found, ramfs)
        for accel in accelerators():
            started = time.monotonic()
            self.start(found, ramfs, accel)
            with self.changed:
                self.changed.wait_for(lambda: self.ready or self.dead(), BOOT_LIMIT_S[accel])
            if self.ready:
                self.accel = accel
                self.boot_s = time.monotonic() - started
                return
            self.power_off()
            if accel == "kvm":
                remember_that_kvm_hangs()
        raise Broken(f"the virtual machine did not boot within {BOOT_LIMIT_S[accel]} s; its console ends:\n{self.console()}")

    def start(self, found, ramfs, accel):
        qemu = shutil.which("qemu-system-x86_64")
        if not qemu:
            raise kernel.Missing("qemu-system-x86_64 is not installed; contrib/check --kernel installs it")
        port = os.path.join(self.scratch, "port")
        speed = ["-accel", "kvm", "-cpu", "host,-arch-capabilities"] if accel == "kvm" else ["-accel", "tcg,thread=multi", "-cpu", "max"]
        command = [qemu, *speed, "-smp", str(CPUS), "-m", str(MEMORY_MB), "-nodefaults", "-display", "none", "-no-reboot",
                   "-kernel", found.image, "-initrd", ramfs, "-append", "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off" + ("" if accel == "kvm" else CLOCK),
                   "-serial", "file:" + os.path.join(self.scratch, "console"), "-serial", f"unix:{port},server=on,wait=off",
                   "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
                   "-virtfs", f"local,path={self.folder},mount_tag=lab,security_model=none"]
        with open(os.path.join(self.scratch, "qemu"), "w") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                                            start_new_session=True)
        deadline = time.monotonic() + 10
        while not os.path.exists(port) and not self.dead() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.port = socket.socket(socket.AF_UNIX)
        try:
            self.port.connect(port)
        except OSError:
            return  # QEMU has ended, or will be found not to boot
        threading.Thread(target=self.listen, args=(self.port, self.process), daemon=True).start()

    def listen(self, port, process):
        with port.makefile("r", errors="replace") as lines:
            for line in lines:
                words = line.split()
                with self.changed:
                    if words == ["ready"]:
                        self.ready = True
                    elif len(words) == 3 and words[0] == "done" and words[1] in self.commands:
                        command = self.commands[words[1]]
                        command.seconds = time.monotonic() - command.started
                        command.code = int(words[2])
                    self.changed.notify_all()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        with self.changed:
            self.changed.notify_all()

    def dead(self):
        return self.process is None or self.process.poll() is not None

    def host_time(self):
        """(seconds this machine ran on the host's processors, seconds it wanted to and the host ran something else), of all
        its threads. The guest knows neither."""
        ran = waited = 0
        try:
            for task in os.listdir(f"/proc/{self.process.pid}/task"):
                with open(f"/proc/{self.process.pid}/task/{task}/schedstat") as f:
                    numbers = f.read().split()
                ran += int(numbers[0])
                waited += int(numbers[1])
        except (OSError, IndexError, ValueError, AttributeError):
            pass  # it has ended, or the host does not count
        return ran * 1e-9, waited * 1e-9

    def power_off(self):
        if self.process is None:
            return
        if not self.dead():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self.process = None
        self.ready = False
        if self.port:
            self.port.close()
        port = os.path.join(self.scratch, "port")
        if os.path.exists(port):
            os.unlink(port)

    def console(self):
        text = ""
        for name in ("qemu", "console"):
            try:
                with open(os.path.join(self.scratch, name), errors="replace") as f:
                    text += "".join(f.readlines()[-15:])
            except OSError:
                pass
        return text

    # ---- commands ----
    def begin(self, script):
        """Starts a shell script in the machine and returns a Command."""
        name = f"c{len(self.commands) + 1}"
        with open(os.path.join(self.folder, name + ".sh"), "w") as f:
            f.write(script + "\n")
        command = self.commands[name] = Command(self, name)
        self.port.sendall(f"run {name}\n".encode())
        return command

    def run(self, script, limit_s=60):
        """Runs a script to its end and returns its Command. Raises Broken when it fails or does not end in time."""
        command = self.begin(script)
        if not command.wait(limit_s):
            raise Broken(f"no answer after {limit_s} s to: {script}\n{command.output}\n{self.console()}")
        if command.code:
            raise Broken(f"failed with status {command.code}: {script}\n{command.output}")
        return command
