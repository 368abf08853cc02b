"""Our side of a claim, and how it is compared with the paper's.

A measure computes our side; :func:`measure` enters it in the registry under its own name, which
``reported.yaml`` uses.  A rule names the values that the paper's statement allows.  Our whole
interval must lie among them for the statement to be reproduced, and none of it for the opposite;
an interval that is allowed in part decides nothing.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from scsigmoid.measurements import Interval
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results

#: What counts as equal for a number that needs no measurement: rounding of float64.
EXACT = 1e-9
#: Half a power of ten.
HALF = math.sqrt(10)


@dataclass(frozen=True)
class Estimate:
    """Our side of a claim.

    Attributes:
        value: our value with its interval or range; NaN where there is none.
        note: what a reader of the verdict should know.
        evidence: files below the results folder that it comes from; the measure's own where empty.
        missing: why no verdict is possible; empty otherwise.
        refuted: whether the result contradicts the claim outright, so that there is no value.
    """

    value: Interval
    note: str = ""
    evidence: tuple[str, ...] = ()
    missing: str = ""
    refuted: bool = False


class AbsentError(Exception):
    """There is no value of ours, for a reason."""


class RefutedError(Exception):
    """There is no value of ours, which contradicts the claim."""


Measure = TypeVar("Measure", bound=Callable[[Results, Claim], Estimate | Interval | float])
#: Every measure by its name.
MEASURES: dict[str, Callable[[Results, Claim], Estimate]] = {}


def measure(*evidence: str) -> Callable[[Measure], Measure]:
    """Enter a measure in the registry.

    Args:
        evidence: tables, figures and result files that its value comes from; ``{model}`` stands for
            each of the claim's.
    """

    def enter(function: Measure) -> Measure:
        def measured(results: Results, claim: Claim) -> Estimate:
            nothing = Interval(math.nan)
            try:
                check_present(results, claim)
            except AbsentError as absent:
                return Estimate(nothing, missing=str(absent))
            every = (file.format(model=name) for file in evidence for name in claim.models or [""])
            files = tuple(dict.fromkeys(every))
            try:
                found = function(results, claim)
            except AbsentError as absent:
                return Estimate(nothing, evidence=files, missing=str(absent))
            except RefutedError as refuted:
                return Estimate(nothing, str(refuted), files, refuted=True)
            if isinstance(found, Estimate):
                return replace(found, evidence=found.evidence or files)
            return Estimate(found if isinstance(found, Interval) else Interval(found), "", files)

        MEASURES[function.__name__] = measured
        return function

    return enter


def above(found: Interval, limit: float) -> tuple[bool, bool, bool]:
    """Whether an estimate is above a limit: by its value, certainly, and possibly."""
    return found.value > limit, found.low > limit, not found.high <= limit


def all_above(found: Iterable[Interval], limit: float) -> tuple[bool, bool, bool]:
    """Whether all of several estimates are above a limit, likewise."""
    value, surely, possibly = zip(*(above(one, limit) for one in found), strict=True)
    return all(value), all(surely), all(possibly)


def counted(cases: Iterable[tuple[bool, bool, bool]]) -> Interval:
    """In how many cases something holds: by the values, certainly, and possibly."""
    return Interval(*(sum(column) for column in zip((0, 0, 0), *cases, strict=True)))


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


def compare(claim: Claim, ours: Interval) -> tuple[bool | None, str]:
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
