"""A number of the paper, the same number of a run, and its verdict (docs/comparison.md)."""

import math
from dataclasses import dataclass

import numpy as np

from scsigmoid.records.measurements import Interval

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
INCONCLUSIVE = "inconclusive"
NO_VERDICT = "no verdict"
#: Numbers are effects (such as a difference of sigmoid and softmax) or levels (such as a loss). A
#: level may differ by ``LEVEL_FACTOR`` from the paper's number, or by ``ORDER_FACTOR`` if the paper
#: states only an order of magnitude.
LEVEL_FACTOR, ORDER_FACTOR = 1.1, math.sqrt(10)
UNKNOWN = Interval(math.nan)  # a number that was not measured


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number that the paper prints, and the same number of this run.

    Attributes:
        group: key of :data:`~scsigmoid.paper.all_numbers.GROUPS`.
        location: part of the paper with the number.
        paper: the paper's number, with its interval if the paper has one.
        here: the number of this run with its interval, :data:`UNKNOWN` if it was not measured.
        n: number of cells, pairs, shapes, rounds or steps that ``here`` was computed from.
        no_effect: for an effect, its value if the compared models or kernels do not differ: 0 for a
            difference, 1 for a ratio, half of the cases for a count. None for a level.
        factor: for a level, the factor by which ``here`` may differ from ``paper``.
        our_kernel: the number of this project's kernel, if ``here`` is for TritonSigmoid.
        headline: True if the number is one of the paper's main statements.
    """

    group: str
    title: str
    location: str
    unit: str
    paper: Interval
    here: Interval = UNKNOWN
    n: int = 0
    no_effect: float | None = None
    factor: float = LEVEL_FACTOR
    our_kernel: Interval = UNKNOWN
    headline: bool = False

    @property
    def allowed(self) -> tuple[float, float]:
        """The lowest and the highest value that reproduce the paper's number.

        A level may differ by ``factor`` from the paper's number, or from the ends of a range. An
        effect must have the paper's direction and at least half of its size.
        """
        value, low, high = self.paper
        if self.no_effect is not None:
            half_effect = (value + self.no_effect) / 2
            is_increase = value > self.no_effect
            return (half_effect, math.inf) if is_increase else (-math.inf, half_effect)
        # The value is NaN if the paper prints only a range. The interval of a value is not used.
        lowest, highest = (low, high) if math.isnan(value) else (value, value)
        return lowest / self.factor, highest * self.factor

    @property
    def verdict(self) -> str:
        """The verdict, if the group has no :mod:`~scsigmoid.paper.differences`."""
        if not all(map(math.isfinite, self.here)):
            return NO_VERDICT
        low, high = self.allowed
        if low <= self.here.low and self.here.high <= high:
            return REPRODUCED
        if self.here.high < low or self.here.low > high:
            return NOT_REPRODUCED
        return INCONCLUSIVE


def exact(value: float) -> Interval:
    """Return the interval of zero width of a number without uncertainty."""
    return Interval(value, value, value)


def count(leads: list[Interval]) -> Interval:
    """Return how many leads (advantages of one model) are above 0, with an interval.

    The low end counts the leads whose whole interval is above 0. The high end counts the leads
    whose interval reaches above 0. The result is :data:`UNKNOWN` without leads, or if a lead is
    unknown or has no interval.
    """
    if not leads or not np.isfinite(leads).all():
        return UNKNOWN
    is_above = np.array(leads) > 0  # leads x (value, low, high)
    return Interval(*is_above.sum(axis=0).tolist())
