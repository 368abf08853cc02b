"""Measures of the stress test (section "Training Stability"), from the journals."""

import math

import numpy as np

from scsigmoid.measurements import Interval
from scsigmoid.paper.claims.rules import AbsentError, Estimate, RefutedError, measure
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Journal, Results
from scsigmoid.paper.statistics import finite_or_inf, trailing_median

#: A run is lost when its loss, having fallen, has lost this share of the fall ...
LOST = 0.5
#: ... or when its gradient norm is so many times the median until the lowest loss.
EXPLODED = 100.0
STRESS = ("training/{model}/journal.csv", "figures/stability.png")


def divergence(journal: Journal) -> int | None:
    """Index of the row from which the run stays lost; None where it does not diverge.

    Lost means by :data:`LOST` or :data:`EXPLODED`, in the median of a trailing window, or not
    finite at the last row; so an explosion counts however late.  A run that is never finite is lost
    from its first row.
    """
    values = [finite_or_inf(journal[name]) for name in ("loss", "gradient_norm")]
    loss, norm = (trailing_median(column) for column in values)
    finite = np.isfinite(loss)
    if not finite.any():
        return 0
    lowest, start = int(np.argmin(loss)), loss[int(np.argmax(finite))]
    limits = (
        loss[lowest] + LOST * (start - loss[lowest]),
        EXPLODED * np.median(values[1][: lowest + 1]),
    )
    lost = (loss > limits[0]) | (norm > limits[1])
    lost[: lowest + 1] = False
    if not (lost[-1] or np.isinf(values[0][-1])):
        return None
    first = int(np.flatnonzero(~lost[:-1])[-1]) + 1
    # The median of a window follows its rows by half of it.
    rows = (values[0] > limits[0]) | (values[1] > limits[1])
    while first and rows[first - 1]:
        first -= 1
    return first


def journal_of(results: Results, claim: Claim) -> Journal:
    (model,) = claim.models
    return results.journal(model)


def lost_from(journal: Journal) -> int:
    """:func:`divergence` of a run that diverges.

    Raises:
        RefutedError: if it does not.
    """
    found = divergence(journal)
    if found is None:
        raise RefutedError("the run does not diverge")
    return found


@measure(*STRESS)
def diverges(results: Results, claim: Claim) -> Estimate:
    """1 where the run diverges, 0 where it does not."""
    journal = journal_of(results, claim)
    found = divergence(journal)
    note = "" if found is None else f"from step {int(journal['step'][found]):,}"
    return Estimate(Interval(found is not None), note)


@measure(*STRESS)
def stays_stable(results: Results, claim: Claim) -> Estimate:
    """1 where the run does not diverge, 0 where it does."""
    journal = journal_of(results, claim)
    found = divergence(journal)
    note = "" if found is None else f"diverges at step {int(journal['step'][found]):,}"
    return Estimate(Interval(found is None), note)


@measure(*STRESS)
def divergence_step(results: Results, claim: Claim) -> float:
    journal = journal_of(results, claim)
    return float(journal["step"][lost_from(journal)])


@measure(*STRESS)
def first_loss(results: Results, claim: Claim) -> float:
    return float(finite_or_inf(journal_of(results, claim)["loss"])[0])


@measure(*STRESS)
def lowest_loss(results: Results, claim: Claim) -> float:
    """Lowest smoothed loss."""
    return float(trailing_median(journal_of(results, claim)["loss"]).min())


@measure(*STRESS)
def half_way_loss(results: Results, claim: Claim) -> Estimate:
    """Smoothed loss of the row nearest to half of the steps."""
    journal = journal_of(results, claim)
    steps = journal["step"]
    row = int(np.argmin(np.abs(steps - steps[-1] / 2)))
    loss = trailing_median(journal["loss"])
    return Estimate(Interval(float(loss[row])), f"at step {int(steps[row]):,}")


@measure(*STRESS)
def loss_after_divergence(results: Results, claim: Claim) -> float:
    """Median loss after the divergence; infinite where it is not finite."""
    journal = journal_of(results, claim)
    return float(np.median(finite_or_inf(journal["loss"][lost_from(journal) :])))


@measure(*STRESS)
def final_loss(results: Results, claim: Claim) -> float:
    """Smoothed loss at the end."""
    return float(trailing_median(journal_of(results, claim)["loss"])[-1])


@measure(*STRESS)
def largest_rise(results: Results, claim: Claim) -> float:
    """How far the smoothed loss ever rises above what it was before; infinite where it is lost."""
    journal = journal_of(results, claim)
    loss = trailing_median(journal["loss"])
    if not np.isfinite(loss).all() or divergence(journal) is not None:
        return math.inf
    return float((loss - np.minimum.accumulate(loss)).max())


# Of a column: the gradient norm, or the largest attention score of layer 0.


@measure(*STRESS)
def usual(results: Results, claim: Claim) -> float:
    """Median of a column over the rows before the divergence."""
    journal = journal_of(results, claim)
    found = lost_from(journal)
    if found == 0:
        raise AbsentError("the run diverges from its first row")
    return float(np.median(finite_or_inf(journal[claim.of["column"]][:found])))


@measure(*STRESS)
def peak(results: Results, claim: Claim) -> float:
    """Largest value of a column; infinite where one is not finite."""
    return float(finite_or_inf(journal_of(results, claim)[claim.of["column"]]).max())


@measure(*STRESS)
def rise(results: Results, claim: Claim) -> float:
    """Powers of ten from a column's median before the divergence to its largest value.

    Of all rows: an explosion may show in the gradients some rows before it shows in the loss.
    """
    return float(np.log10(peak(results, claim) / usual(results, claim)))


@measure(*STRESS)
def whole_range(results: Results, claim: Claim) -> Estimate:
    """Median of a column, with its smallest and its largest value."""
    values = finite_or_inf(journal_of(results, claim)[claim.of["column"]])
    ends = (float(end) for end in (np.median(values), values.min(), values.max()))
    return Estimate(Interval(*ends), "median, smallest and largest")


@measure(*STRESS)
def trend(results: Results, claim: Claim) -> float:
    """Powers of ten from the first to the last quarter's median of a column.

    Infinite where the last quarter's is not finite, or a norm is 0.
    """
    values = finite_or_inf(journal_of(results, claim)[claim.of["column"]])
    quarter = max(1, len(values) // 4)
    first, last = (float(np.median(part)) for part in (values[:quarter], values[-quarter:]))
    return math.log10(last / first) if first > 0 and 0 < last < math.inf else math.inf
