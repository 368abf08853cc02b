"""The paper's numbers next to ours, and one rule for the verdict (docs/comparison.md)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scsigmoid.measurements import Interval
from scsigmoid.results.folder import Results

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
INCONCLUSIVE = "inconclusive"
NO_VERDICT = "no verdict"
#: The groups of numbers that are comparable with the paper together or not at all.
GROUPS = {
    "quality": "Quality of the models",
    "stability": "Training stability",
    "kernel": "Attention kernel",
    "cost": "Training cost",
}
#: The factor by which a level may differ from the paper's number ...
LEVEL = 1.1
#: ... and a number that the paper gives as an order of magnitude.
ORDER = math.sqrt(10)
UNKNOWN = Interval(math.nan)


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number that the paper prints, and ours.

    Attributes:
        group: key of :data:`GROUPS`.
        words: what the number is.
        location: where the paper prints it.
        unit: of the number.
        paper: the paper's number, with its interval if the paper has one.
        here: ours with its interval; NaN if it was not measured.
        n: how many cells, pairs, shapes, rounds or steps ours is made of.
        none: of an effect, the value that means no difference: 0 for a difference, 1 for a ratio,
            half of the cases for a count. None for a level.
        factor: of a level, by how much it may differ from the paper's.
        our_kernel: the same number of this project's kernel, for numbers of TritonSigmoid.
        headline: whether it is one of the paper's main statements.
    """

    group: str
    words: str
    location: str
    unit: str
    paper: Interval
    here: Interval = UNKNOWN
    n: int = 0
    none: float | None = None
    factor: float = LEVEL
    our_kernel: Interval = UNKNOWN
    headline: bool = False

    @property
    def allowed(self) -> tuple[float, float]:
        """The least and the largest value that reproduces the paper's number.

        A level is reproduced within a factor of the paper's number, or of the ends of its range.
        An effect is reproduced in the paper's direction with at least half of its size.
        """
        value, *ends = self.paper
        if self.none is None:
            low, high = ends if math.isnan(value) else (value, value)
            return low / self.factor, high * self.factor
        half = (value + self.none) / 2
        return (half, math.inf) if value > self.none else (-math.inf, half)

    @property
    def verdict(self) -> str:
        """The verdict, if the group is comparable.

        The whole interval decides. A number without one (not measured, NaN, a single cell) has no
        verdict.
        """
        if not all(map(math.isfinite, self.here)):
            return NO_VERDICT
        least, most = self.allowed
        if least <= self.here.low and self.here.high <= most:
            return REPRODUCED
        if self.here.high < least or self.here.low > most:
            return NOT_REPRODUCED
        return INCONCLUSIVE


def numbers(results: Results) -> list[Number]:
    """Return every number, headlines first within their group.

    Raises:
        UserError: if a result file is missing or damaged.
    """
    from scsigmoid.paper import cost, kernel, quality, stability

    sources: tuple[Callable[[Results], Iterator[Number]], ...] = (
        quality.numbers,
        stability.numbers,
        kernel.numbers,
        cost.numbers,
    )
    return [
        number
        for source in sources
        for number in sorted(source(results), key=lambda number: not number.headline)
    ]


def exact(value: float) -> Interval:
    """Return a number that was read off, not estimated."""
    return Interval(value, value, value)


def count(leads: list[Interval]) -> Interval:
    """Return how many leads are above 0: by their values, certainly, and possibly.

    NaN if a lead is unknown or has no interval.
    """
    if not leads or not all(map(math.isfinite, (end for lead in leads for end in lead))):
        return UNKNOWN
    return Interval(
        sum(lead.value > 0 for lead in leads),
        sum(lead.low > 0 for lead in leads),
        sum(lead.high > 0 for lead in leads),
    )
