"""How our value is compared with the paper's.

A rule names the values that the paper's statement allows.  Our whole interval must lie among them
for the statement to be reproduced, and none of it for the opposite; what straddles an end decides
nothing.
"""

import math

from scsigmoid.paper.claims.estimate import Estimate
from scsigmoid.paper.reported import Claim

#: What counts as equal for a number that needs no measurement: rounding of float64.
EXACT = 1e-9
#: Half a power of ten.
HALF = math.sqrt(10)


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
    low, high = ends(ours)
    met: bool | None
    if least <= low and high <= most:
        met, verb = True, "lies"
    elif high < least or low > most or claim.rule == "between":
        met, verb = False, "does not lie"
    else:
        met, verb = None, "lies only partly"
    return met, f"{shown(ours)} {verb} {words}"


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
