"""Measures of the stress test (section "Training Stability"), from the journals."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scsigmoid.paper.claims.rules import Estimate, measure
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Journal, Results
from scsigmoid.paper.statistics import trailing_median

#: A run is lost when its loss, having fallen, has lost this share of the fall ...
LOST = 0.5
#: ... or when its gradient norm is so many times the median until the lowest loss.
EXPLODED = 100.0
NO_DIVERGENCE = Estimate(refuted=True, note="the run does not diverge")


def finite_or_inf(values: np.ndarray) -> np.ndarray:
    """Values with infinity in place of what is not finite."""
    return np.where(np.isfinite(values), values, np.inf)


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


def of_journal(function: Callable[[Journal], Estimate | float]) -> None:
    """Enter a measure of the claim's one model, with its journal as evidence."""

    def measured(results: Results, claim: Claim) -> Estimate:
        (model,) = claim.models
        found = function(results.journal(model))
        estimate = found if isinstance(found, Estimate) else Estimate(value=float(found))
        evidence = (f"training/{model}/journal.csv", "figures/stability.png")
        return replace(estimate, evidence=evidence)

    measured.__name__ = function.__name__
    measure()(measured)


@of_journal
def diverges(journal: Journal) -> Estimate:
    """1 where the run diverges, 0 where it does not."""
    found = divergence(journal)
    note = "" if found is None else f"from step {int(journal['step'][found]):,}"
    return Estimate(value=float(found is not None), note=note)


@of_journal
def stays_stable(journal: Journal) -> Estimate:
    """1 where the run does not diverge, 0 where it does."""
    found = divergence(journal)
    note = "" if found is None else f"diverges at step {int(journal['step'][found]):,}"
    return Estimate(value=float(found is None), note=note)


@of_journal
def divergence_step(journal: Journal) -> Estimate | float:
    """The step at which the run diverges."""
    found = divergence(journal)
    return NO_DIVERGENCE if found is None else float(journal["step"][found])


@of_journal
def first_loss(journal: Journal) -> float:
    """Loss of the first row."""
    return float(finite_or_inf(journal["loss"])[0])


@of_journal
def lowest_loss(journal: Journal) -> float:
    """Lowest smoothed loss."""
    return float(trailing_median(journal["loss"]).min())


@of_journal
def half_way_loss(journal: Journal) -> Estimate:
    """Smoothed loss of the row nearest to half of the steps."""
    steps = journal["step"]
    row = int(np.argmin(np.abs(steps - steps[-1] / 2)))
    loss = trailing_median(journal["loss"])
    return Estimate(value=float(loss[row]), note=f"at step {int(steps[row]):,}")


@of_journal
def loss_after_divergence(journal: Journal) -> Estimate | float:
    """Median loss after the divergence; infinite where it is not finite."""
    found = divergence(journal)
    if found is None:
        return NO_DIVERGENCE
    return float(np.median(finite_or_inf(journal["loss"][found:])))


@of_journal
def final_loss(journal: Journal) -> float:
    """Smoothed loss at the end."""
    return float(trailing_median(journal["loss"])[-1])


@of_journal
def largest_rise(journal: Journal) -> float:
    """How far the smoothed loss ever rises above what it was before; infinite where it is lost."""
    loss = trailing_median(journal["loss"])
    if not np.isfinite(loss).all() or divergence(journal) is not None:
        return math.inf
    return float((loss - np.minimum.accumulate(loss)).max())


def before(journal: Journal, column: str) -> Estimate:
    """Median of a column over the rows before the divergence."""
    found = divergence(journal)
    if found is None:
        return NO_DIVERGENCE
    if found == 0:
        return Estimate(missing="the run diverges from its first row")
    return Estimate(value=float(np.median(finite_or_inf(journal[column][:found]))))


def peak(journal: Journal, column: str) -> float:
    """Largest value of a column; infinite where one is not finite."""
    return float(finite_or_inf(journal[column]).max())


def ranged(journal: Journal, column: str) -> Estimate:
    """Median, smallest and largest value of a column."""
    values = finite_or_inf(journal[column])
    return Estimate(
        value=float(np.median(values)),
        low=float(values.min()),
        high=float(values.max()),
        note="median, smallest and largest",
    )


@of_journal
def gradient_before(journal: Journal) -> Estimate:
    """Median gradient norm before the divergence."""
    return before(journal, "gradient_norm")


@of_journal
def gradient_peak(journal: Journal) -> float:
    """Largest gradient norm."""
    return peak(journal, "gradient_norm")


@of_journal
def gradient_orders(journal: Journal) -> Estimate | float:
    """Powers of ten from the median gradient norm before the divergence to the peak after it."""
    usual = before(journal, "gradient_norm")
    if math.isnan(usual.value):
        return usual
    # The explosion may show in the gradients some rows before it shows in the loss.
    return float(np.log10(peak(journal, "gradient_norm") / usual.value))


@of_journal
def gradient_range(journal: Journal) -> Estimate:
    """Median gradient norm, with the smallest and the largest."""
    return ranged(journal, "gradient_norm")


@of_journal
def gradient_trend(journal: Journal) -> float:
    """Powers of ten from the first to the last quarter's median gradient norm.

    Infinite where the last quarter's is not finite, or a norm is 0.
    """
    norm = finite_or_inf(journal["gradient_norm"])
    quarter = max(1, len(norm) // 4)
    first, last = (float(np.median(part)) for part in (norm[:quarter], norm[-quarter:]))
    return math.log10(last / first) if first > 0 and 0 < last < math.inf else math.inf


@of_journal
def score_before(journal: Journal) -> Estimate:
    """Median of the largest score of layer 0 before the divergence."""
    return before(journal, "attention_score_max")


@of_journal
def score_peak(journal: Journal) -> float:
    """Largest attention score of layer 0."""
    return peak(journal, "attention_score_max")


@of_journal
def score_range(journal: Journal) -> Estimate:
    """Median of the largest score of layer 0, with the smallest and the largest."""
    return ranged(journal, "attention_score_max")
