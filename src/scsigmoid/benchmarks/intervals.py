"""Confidence intervals of timings."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """An estimate and the ends of its interval; the ends are NaN where none can be made."""

    value: float
    low: float
    high: float


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """Median, and an interval from order statistics.

    The interval runs from the k-th smallest to the k-th largest value with the largest k for which
    a binomial count keeps it within the confidence, whatever the distribution.  Timings have long
    tails, so the median, not the mean, is what a repetition would find again.

    Args:
        values: independent timings.
        confidence: between 0 and 1; reached or exceeded.
    """
    ordered = sorted(values)
    count = len(ordered)
    middle = float(np.median(ordered))
    # P(the interval misses on one side) = P(Binomial(count, 1/2) < k), in exact integers.
    limit = (1 - confidence) / 2 * 2**count
    k, below = 0, 0
    while k < count and below + math.comb(count, k) <= limit:
        below += math.comb(count, k)
        k += 1
    if k == 0:
        return Interval(middle, math.nan, math.nan)
    return Interval(middle, ordered[k - 1], ordered[count - k])


def mean_interval(values: Sequence[float], confidence: float) -> Interval:
    """Mean, and Student's t interval.

    Args:
        values: independent readings.
        confidence: between 0 and 1.
    """
    readings = np.asarray(values, dtype=np.float64)
    mean = float(readings.mean())
    if len(readings) < 2:
        return Interval(mean, math.nan, math.nan)
    error = float(readings.std(ddof=1)) / math.sqrt(len(readings))
    half = student_quantile((1 + confidence) / 2, len(readings) - 1) * error
    return Interval(mean, mean - half, mean + half)


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t distribution, for a probability above one half.

    By bisection on the closed form of the distribution (Abramowitz and Stegun, 26.7.3 and 26.7.4),
    since a machine that only times kernels need not have scipy.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        angle = (low + high) / 2
        if 0.5 + 0.5 * student_coverage(angle, freedom) < probability:
            low = angle
        else:
            high = angle
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def student_coverage(angle: float, freedom: int) -> float:
    """P(|t| <= tan(angle) * sqrt(freedom)) for t with so many degrees of freedom."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for index in range(2 + odd, freedom - 1, 2):
        term *= (index - 1) / index * cosine**2
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
