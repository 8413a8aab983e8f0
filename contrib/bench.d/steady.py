# SPDX-License-Identifier: BSD-3-Clause
"""Tells whether the processors are as far apart as before.

A virtual machine is moved: its two processors then share no cache for a while, each line that one has written reaches the
other one several times later, and all figures of two ranks change, also their ratios. What is asked is the machine
alone, with no MPI and no verbs, so no figure is chosen by what it says.
"""
import time


class Steady:
    """Keeps pairs to the times in which one process copies the memory of another one as fast as it has in this run."""

    SLOWER = 1.5
    PATIENCE_S = 600  # of a run; after that all pairs count
    FIRST = 5  # a second apart, to find out how fast it is

    def __init__(self, copy_us):
        """`copy_us`: microseconds of a copy between two processes, None when it cannot be had."""
        self.copy_us = copy_us
        self.best = None
        self.lost_s = 0.0
        self.again = 0
        self.slow = 0  # pairs that count although the machine was slower

    def holds(self):
        """Is the machine as fast as in its best state so far?"""
        now = self.copy_us()
        if now is None:
            return True
        self.best = now if self.best is None else min(self.best, now)
        return now <= self.SLOWER * self.best

    def wait(self):
        """Until it is, as long as there is patience left. True: it is."""
        for _ in range(0 if self.best else self.FIRST):
            self.holds()
            if self.best is None:
                return True  # nothing is known of the machine
            time.sleep(1)
        fast = self.holds()
        begun = time.monotonic()
        while not fast and self.lost_s + time.monotonic() - begun < self.PATIENCE_S:
            time.sleep(1)
            fast = self.holds()
        if time.monotonic() - begun > 1:
            self.lost_s += time.monotonic() - begun
        return fast

    def during(self, pair):
        """What `pair()` returns. It is called again if the machine was slower before or after it."""
        while True:
            fast = self.wait()
            best = self.best
            begun = time.monotonic()
            values = pair()
            # A better state than ever seen, after it: the one before was a slow one.
            if self.holds() and fast and (best is None or best <= self.SLOWER * self.best):
                return values
            if self.lost_s >= self.PATIENCE_S:
                self.slow += 1
                return values
            self.again += 1
            self.lost_s += time.monotonic() - begun

    def report(self):
        """A sentence for the end of the table, or None."""
        if self.again + self.slow == 0:
            return None
        return (f"the processors copied from each other slower than before in {self.again + self.slow} pairs: "
                f"{self.again} were measured again, {self.slow} count; {self.lost_s:.0f} s were lost with it")
