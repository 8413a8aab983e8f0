# SPDX-License-Identifier: BSD-3-Clause
"""Pinned instruction counts of the PML per protocol and size class: instructions.txt beside this file.

A count is that of one send and one receive in a ping-pong of two ranks, inside the PML, without the functions that wait.
It is stable where times are not. test/integration/instructions_test holds the product to the file; a change that moves a
count on purpose updates it with `contrib/bench --pin`.
"""
import concurrent.futures
import os
import re
import subprocess

import free
import runs
from runs import jobs

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.txt")
TOLERANCE = 0.05  # how often a fragment is refused, and what one turn of progress finds, differs from run to run

# Whether a rail keeps up, and longer READs are used, depends on time: not with this size of a piece. And valgrind makes the
# processes fifty times slower: so are the rails, by what they say of themselves.
PIECES = {"OMPI_MCA_btl_verbs_rdma_pipeline_frag_size": "131072", "OMPI_MCA_btl_verbs_bandwidth": "200"}


class Pin:
    """One line of the file: what is counted, and the count."""

    def __init__(self, btl, size, layout, what, count):
        self.btl, self.size, self.layout, self.what, self.count = btl, int(size), layout, what, float(count)
        self.name = f"{what}, {self.size} B {layout} over {btl}"

    def measure(self):
        """The count now."""
        messages = 300 if self.size <= 4096 else 60
        return free.callgrind("bfo", self.btl, messages, self.size, self.layout == "strided", env=PIECES)[2]

    def holds(self, count):
        return abs(count / self.count - 1) <= TOLERANCE

    def line(self, count):
        return f"{self.btl:<6} {self.size:>8} {self.layout:<10} {count:>8.0f}  {self.what}"


def read():
    """(the compiler's first line, the pins)."""
    compiler, pins = "", []
    with open(FILE) as f:
        for line in f:
            found = re.match(r"^# compiler: (.*)$", line)
            if found:
                compiler = found.group(1)
            elif line.strip() and not line.startswith("#"):
                btl, size, layout, count, what = line.split(None, 4)
                pins.append(Pin(btl, size, layout, what.strip(), count))
    return compiler, pins


def compiler():
    """The first line of what the compiler of the build says of itself."""
    cxx = jobs.build_env().get("CXX") or "g++"
    result = subprocess.run([*cxx.split(), "--version"], stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    return result.stdout.splitlines()[0]


def measure_all(pins):
    """The counts now, in the order of the pins. Two jobs at a time: other load does not move a count."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda pin: min(pin.measure() for _ in range(2)), pins))


def rewrite():
    """Measures every line of the file anew and writes it."""
    _, pins = read()
    counts = measure_all(pins)
    with open(FILE) as f:
        comments = [line for line in f if line.startswith("#") and not line.startswith("# compiler:")]
    with open(FILE + ".new", "w") as f:
        f.writelines(comments)
        f.write(f"# compiler: {compiler()}\n")
        f.writelines(pin.line(count) + "\n" for pin, count in zip(pins, counts))
    os.replace(FILE + ".new", FILE)
    for pin, count in zip(pins, counts):
        print(f"{pin.name:<60} {pin.count:>8.0f} -> {count:>8.0f}")
