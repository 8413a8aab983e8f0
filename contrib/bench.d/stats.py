# SPDX-License-Identifier: BSD-3-Clause
"""Medians, quantiles and bootstrap intervals for contrib/bench."""
import random
import statistics


def median(values):
    return statistics.median(values)


def quantile(values, q):
    """The value below which a share `q` of the values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * (len(ordered) - 1) + 0.5))]


def bootstrap(values, estimate=median, rounds=4000, level=0.95):
    """A percentile bootstrap interval [low, high] of estimate(values); the same for the same values."""
    if len(values) < 2:
        return [values[0], values[0]] if values else [None, None]
    generator = random.Random(len(values))
    estimates = sorted(estimate(generator.choices(values, k=len(values))) for _ in range(rounds))
    cut = (1 - level) / 2
    return [estimates[int(cut * rounds)], estimates[min(rounds - 1, int((1 - cut) * rounds))]]
