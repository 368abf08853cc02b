"""Our side of a claim, and how it is compared with the paper's.

A measure computes our side; :func:`measure` enters it in the registry under its own name, which
``reported.yaml`` uses.  A rule names the values that the paper's statement allows.  Our whole
interval must lie among them for the statement to be reproduced, and none of it for the opposite;
what straddles an end decides nothing.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results

NAN = float("nan")
#: What counts as equal for a number that needs no measurement: rounding of float64.
EXACT = 1e-9
#: Half a power of ten.
HALF = math.sqrt(10)


class Ends(Protocol):
    """A value with the ends of its interval."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Our side of a claim.

    Attributes:
        value: our value; NaN where there is none.
        low: lower end of its interval or range; NaN where there is none.
        high: upper end.
        evidence: files below the results folder that it comes from; the measure's own where empty.
        note: what a reader of the verdict should know.
        missing: why no verdict is possible; empty otherwise.
        refuted: whether the result contradicts the claim outright, so that there is no value.
    """

    value: float = NAN
    low: float = NAN
    high: float = NAN
    evidence: tuple[str, ...] = ()
    note: str = ""
    missing: str = ""
    refuted: bool = False

    @classmethod
    def of(cls, found: Ends, note: str = "", evidence: tuple[str, ...] = ()) -> "Estimate":
        """A value with its interval."""
        return cls(value=found.value, low=found.low, high=found.high, note=note, evidence=evidence)

    @classmethod
    def counted(
        cls, won: Sequence[bool], sure: Sequence[bool], lost: Sequence[bool], note: str = ""
    ) -> "Estimate":
        """How many are won: by the values, certainly, and at most (all but those surely lost)."""
        return cls(value=sum(won), low=sum(sure), high=len(lost) - sum(lost), note=note)


class AbsentError(Exception):
    """There is no value of ours, for a reason; ``evidence`` has the files that show it."""

    def __init__(self, reason: str, *evidence: str) -> None:
        super().__init__(reason)
        self.evidence = evidence


Measure = Callable[[Results, Claim], Estimate]
#: Every measure by its name.
MEASURES: dict[str, Measure] = {}


def measure(*evidence: str) -> Callable[[Measure], Measure]:
    """Enter a measure in the registry.

    Args:
        evidence: tables, figures and result files that its value comes from.
    """

    def entered(function: Measure) -> Measure:
        @functools.wraps(function)
        def measured(results: Results, claim: Claim) -> Estimate:
            try:
                check_present(results, claim)
                found = function(results, claim)
            except AbsentError as absent:
                return Estimate(missing=str(absent), evidence=absent.evidence)
            return replace(found, evidence=found.evidence or evidence)

        MEASURES[function.__name__] = measured
        return measured

    return entered


def check_present(results: Results, claim: Claim) -> None:
    """Check that the claim's models and one of its datasets are configured.

    Raises:
        AbsentError: if they are not.
    """
    for name in claim.models:
        if name not in results.config.models:
            raise AbsentError(f"there is no model {name}")
    if claim.datasets and not present(results, claim):
        own = claim.group == "data"  # the claim is about this dataset itself
        raise AbsentError("not among the datasets" if own else "none of the datasets was evaluated")


def present(results: Results, claim: Claim) -> list[str]:
    """The claim's datasets that are configured."""
    return [name for name in claim.datasets if name in results.config.datasets]


def allowed(claim: Claim) -> tuple[float, float, str]:
    """The least and the largest value that the statement allows, and both in words.

    ``within`` and ``at_least``, ``at_most`` have a relative tolerance, ``points`` one in the
    value's own unit.  ``count`` asks for at least as many cases.  ``order`` allows half a power of
    ten to either side.
    """
    if isinstance(claim.value, tuple):
        return *claim.value, f"within {number(claim.value[0])} to {number(claim.value[1])}"
    value, tolerance = claim.value, claim.tolerance
    room, shown = abs(value) * tolerance, number(value)
    equal = max(EXACT, EXACT * abs(value))
    least, most = value - room, value + room
    return {
        "within": (least, most, f"within {tolerance * 100:g} % of {shown}"),
        "points": (value - tolerance, value + tolerance, f"within {tolerance:g} of {shown}"),
        "at_least": (least, math.inf, f"at or above {number(least)}"),
        "at_most": (-math.inf, most, f"at or below {number(most)}"),
        "count": (value, math.inf, f"at or above {shown}"),
        "below": (-math.inf, math.nextafter(value, -math.inf), f"below {shown}"),
        "above": (math.nextafter(value, math.inf), math.inf, f"above {shown}"),
        "above_one": (math.nextafter(1.0, 2.0), math.inf, "above 1"),
        "same_sign": (math.ulp(0.0), math.inf, "above 0")
        if value > 0
        else (-math.inf, -math.ulp(0.0), "below 0"),
        "order": (value / HALF, value * HALF, f"within half a power of ten of {shown}"),
        "equal": (value - equal, value + equal, f"at {shown}"),
    }[claim.rule]


def compare(claim: Claim, ours: Estimate) -> tuple[bool | None, str]:
    """Whether the statement holds for our value, and why in words.

    Returns:
        True where our whole interval, or value, is allowed, False where none of it is, None where
        a part is.  A range that the paper states is left by a part of ours already.
    """
    least, most, words = allowed(claim)
    exact = math.isnan(ours.low) or math.isnan(ours.high)
    low, high = (ours.value, ours.value) if exact else (ours.low, ours.high)
    shown = number(ours.value) + ("" if exact else f" [{number(low)}, {number(high)}]")
    met: bool | None
    if least <= low and high <= most:
        met, verb = True, "lies"
    elif high < least or low > most or claim.rule == "between":
        met, verb = False, "does not lie"
    else:
        met, verb = None, "lies only partly"
    return met, f"{shown} {verb} {words}"


def number(value: float) -> str:
    """A number with four significant digits."""
    if math.isfinite(value) and abs(value) < 1e9 and (value == int(value) or abs(value) >= 1e4):
        return f"{value:,.0f}"
    return f"{value:.4g}"
