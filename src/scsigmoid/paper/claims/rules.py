"""How our value is compared with the paper's.

A rule says whether a claim is reproduced, and in words why.  Intervals decide wherever there are
any: a difference counts only where the interval leaves 0 out.
"""

import math
from collections.abc import Callable

from scsigmoid.paper.claims.estimate import Estimate
from scsigmoid.paper.reported import Claim

Outcome = tuple[bool, str]


def within(claim: Claim, ours: Estimate) -> Outcome:
    """Our interval, or value, comes within a relative tolerance of the paper's value."""
    value = single(claim)
    room = abs(value) * claim.tolerance
    return near(ours, value, room, f"{claim.tolerance * 100:g} % of {number(value)}")


def points(claim: Claim, ours: Estimate) -> Outcome:
    """Our interval, or value, comes within a tolerance in the value's own unit."""
    value = single(claim)
    return near(ours, value, claim.tolerance, f"{claim.tolerance:g} of {number(value)}")


def near(ours: Estimate, value: float, room: float, words: str) -> Outcome:
    """Whether our interval, or value, meets ``value`` plus or minus ``room``."""
    low, high = ends(ours)
    met = low <= value + room and high >= value - room
    return met, f"{shown(ours)} {'lies' if met else 'does not lie'} within {words}"


def at_least(claim: Claim, ours: Estimate) -> Outcome:
    """Our value reaches the paper's, less the tolerance, and its interval lies above 0."""
    threshold = single(claim) * (1 - claim.tolerance)
    if not math.isnan(ours.low) and ours.low <= 0 < threshold:
        return False, f"the interval of {shown(ours)} does not leave out 0"
    met = ours.value >= threshold
    return met, f"{shown(ours)} {'reaches' if met else 'does not reach'} {number(threshold)}"


def at_most(claim: Claim, ours: Estimate) -> Outcome:
    """Our value does not exceed the paper's by more than the tolerance."""
    threshold = single(claim) * (1 + claim.tolerance)
    met = ours.value <= threshold
    return met, f"{shown(ours)} {'stays below' if met else 'exceeds'} {number(threshold)}"


def count(claim: Claim, ours: Estimate) -> Outcome:
    """So many cases as in the paper are certain: their intervals leave out a tie."""
    certain = ours.value if math.isnan(ours.low) else ours.low
    met = certain >= single(claim)
    words = f"{number(ours.value)}"
    if not math.isnan(ours.low):
        words += f", of which {number(certain)} with an interval that leaves out a tie"
    return met, f"{words}; the paper has {number(single(claim))}"


def below(claim: Claim, ours: Estimate) -> Outcome:
    """Our interval lies below the paper's value."""
    return beside(ours, single(claim), -1)


def above_one(_: Claim, ours: Estimate) -> Outcome:
    """Our interval lies above 1: the ratio is certain to favour sigmoid."""
    return beside(ours, 1.0, 1)


def above(claim: Claim, ours: Estimate) -> Outcome:
    """Our interval lies above the paper's value."""
    return beside(ours, single(claim), 1)


def same_sign(claim: Claim, ours: Estimate) -> Outcome:
    """Our interval lies on the same side of 0 as the paper's value."""
    return beside(ours, 0.0, 1 if single(claim) > 0 else -1)


def beside(ours: Estimate, border: float, side: int) -> Outcome:
    """Whether our interval, or value, lies above (1) or below (-1) a border."""
    low, high = ends(ours)
    met = low > border if side > 0 else high < border
    where = "above" if side > 0 else "below"
    return met, f"{shown(ours)} {'lies' if met else 'does not lie'} {where} {number(border)}"


def between(claim: Claim, ours: Estimate) -> Outcome:
    """Our whole range lies within the paper's."""
    assert isinstance(claim.value, tuple)
    low, high = ends(ours)
    met = claim.value[0] <= low and high <= claim.value[1]
    words = f"{number(claim.value[0])} to {number(claim.value[1])}"
    return met, f"{shown(ours)} {'stays' if met else 'does not stay'} within {words}"


def order(claim: Claim, ours: Estimate) -> Outcome:
    """Our value has the paper's order of magnitude: half a power of ten up or down."""
    value = single(claim)
    met = ours.value > 0 and abs(math.log10(ours.value / value)) <= 0.5
    return met, f"{shown(ours)} is {'' if met else 'not '}of the order of {number(value)}"


def equal(claim: Claim, ours: Estimate) -> Outcome:
    """Our value equals the paper's, up to rounding of float64."""
    met = math.isclose(ours.value, single(claim), rel_tol=1e-9, abs_tol=1e-9)
    return met, f"{shown(ours)} {'equals' if met else 'differs from'} {number(single(claim))}"


def rounds(claim: Claim, ours: Estimate) -> Outcome:
    """Our value, rounded as the paper prints it, is the paper's value."""
    value = single(claim)
    met = math.isclose(round(ours.value, claim.decimals), value, rel_tol=1e-9)
    return met, f"{shown(ours)} {'rounds' if met else 'does not round'} to {number(value)}"


RULES: dict[str, Callable[[Claim, Estimate], Outcome]] = {
    "within": within,
    "points": points,
    "at_least": at_least,
    "at_most": at_most,
    "count": count,
    "below": below,
    "above": above,
    "above_one": above_one,
    "same_sign": same_sign,
    "between": between,
    "order": order,
    "equal": equal,
    "rounds": rounds,
}


def single(claim: Claim) -> float:
    """The paper's value where it is one number."""
    assert not isinstance(claim.value, tuple)
    return claim.value


def ends(ours: Estimate) -> tuple[float, float]:
    """Our interval; the value itself where there is none."""
    if math.isnan(ours.low) or math.isnan(ours.high):
        return ours.value, ours.value
    return ours.low, ours.high


def shown(ours: Estimate) -> str:
    """Our value with its interval, in words."""
    if math.isnan(ours.low) or math.isnan(ours.high):
        return number(ours.value)
    return f"{number(ours.value)} [{number(ours.low)}, {number(ours.high)}]"


def number(value: float) -> str:
    """A number with four significant digits."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    if math.isfinite(value) and 1e4 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"
