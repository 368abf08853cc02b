"""What a measure of a claim gives."""

from collections.abc import Callable
from dataclasses import dataclass

from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results

NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Our side of a claim.

    Attributes:
        value: our value; NaN where there is none.
        low: lower end of its interval or range; NaN where there is none.
        high: upper end.
        evidence: files below the results folder that it comes from.
        note: what a reader of the verdict should know.
        missing: why there is no value and no verdict is possible; empty otherwise.
        refuted: whether the result contradicts the claim outright, so that there is no value.
    """

    value: float = NAN
    low: float = NAN
    high: float = NAN
    evidence: tuple[str, ...] = ()
    note: str = ""
    missing: str = ""
    refuted: bool = False


Measure = Callable[[Results, Claim], Estimate]


def absent(reason: str, *evidence: str) -> Estimate:
    """No value, for a reason."""
    return Estimate(missing=reason, evidence=evidence)
