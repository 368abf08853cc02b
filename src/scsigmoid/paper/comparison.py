"""The paper's numbers next to ours, and the rule for verdicts (docs/comparison.md)."""

import math
from dataclasses import dataclass

from scsigmoid.measurements import Interval
from scsigmoid.results.folder import Results

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
INCONCLUSIVE = "inconclusive"
NO_VERDICT = "no verdict"
#: Titles of the groups of numbers. All numbers of a group are comparable with the paper, or none.
GROUPS = {
    "quality": "Quality of the models",
    "stability": "Training stability",
    "kernel": "Attention kernel",
    "cost": "Training cost",
}
#: Factors by which a level, and an order of magnitude, may differ from the paper's number.
LEVEL, ORDER = 1.1, math.sqrt(10)
UNKNOWN = Interval(math.nan)


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number that the paper prints, and the same number of this run.

    Attributes:
        group: key of :data:`GROUPS`.
        title: name of the number.
        location: part of the paper with the number.
        unit: unit of the number.
        paper: the paper's number, with its interval if the paper has one.
        here: the number of this run with its interval. NaN if it was not measured.
        n: number of cells, pairs, shapes, rounds or steps behind ``here``.
        no_effect: value without a difference between the arms: 0 for a difference, 1 for a ratio,
            half of the cases for a count. None if the number is a level.
        factor: factor by which a level may differ from the paper's.
        our_kernel: the same number for this project's kernel, if ``here`` is for TritonSigmoid.
        headline: True for the paper's main statements.
    """

    group: str
    title: str
    location: str
    unit: str
    paper: Interval
    here: Interval = UNKNOWN
    n: int = 0
    no_effect: float | None = None
    factor: float = LEVEL
    our_kernel: Interval = UNKNOWN
    headline: bool = False

    @property
    def allowed(self) -> tuple[float, float]:
        """Lowest and highest value that reproduce the paper's number.

        A level may differ by ``factor`` from the paper's number or from the ends of its range. An
        effect must have the paper's direction and at least half of its size.
        """
        value, *ends = self.paper
        if self.no_effect is None:
            low, high = ends if math.isnan(value) else (value, value)
            return low / self.factor, high * self.factor
        half = (value + self.no_effect) / 2
        return (half, math.inf) if value > self.no_effect else (-math.inf, half)

    @property
    def verdict(self) -> str:
        """Verdict if the group is comparable, from the whole interval.

        A number without an interval (not measured, NaN, a single cell) has no verdict.
        """
        if not all(map(math.isfinite, self.here)):
            return NO_VERDICT
        low, high = self.allowed
        if low <= self.here.low and self.here.high <= high:
            return REPRODUCED
        if self.here.high < low or self.here.low > high:
            return NOT_REPRODUCED
        return INCONCLUSIVE


def numbers(results: Results) -> list[Number]:
    """Return every number, headlines first within their group.

    Raises:
        UserError: if a result file is missing or damaged.
    """
    from scsigmoid.paper import cost, kernel, quality, stability

    return [
        number
        for module in (quality, stability, kernel, cost)
        for number in sorted(module.numbers(results), key=lambda number: not number.headline)
    ]


def exact(value: float) -> Interval:
    """Return a number without uncertainty as an interval of zero width."""
    return Interval(value, value, value)


def count(leads: list[Interval]) -> Interval:
    """Return the number of leads above 0, with an interval.

    The lower end counts intervals that are above 0, the upper end those that reach above 0. All
    are NaN if a lead is unknown or has no interval.
    """
    if not leads or not all(map(math.isfinite, (end for lead in leads for end in lead))):
        return UNKNOWN
    return Interval(
        sum(lead.value > 0 for lead in leads),
        sum(lead.low > 0 for lead in leads),
        sum(lead.high > 0 for lead in leads),
    )
