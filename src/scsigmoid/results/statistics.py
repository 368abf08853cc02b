"""Paired comparisons and smoothing, for tables, figures and the comparison with the paper."""

from collections.abc import Sequence

import numpy as np

from scsigmoid.errors import UserError
from scsigmoid.measurements import Interval, donor_mean, mean_interval
from scsigmoid.results.folder import Journal, Results

#: Share of the rows that a window spans.
WINDOW = 0.05
#: That of a trailing window: short, so that an explosion at the very end of a run shows.
RECENT = 0.01


def ratio_interval(
    first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray, confidence: float
) -> Interval:
    """Mean of ``first`` over mean of ``second``, with Student's interval (delta method).

    Args:
        first, second: paired values, of which one pair is independent of the next.
        confidence: between 0 and 1.
    """
    ours, theirs = (np.asarray(values, dtype=np.float64) for values in (first, second))
    ratio = float(ours.mean() / theirs.mean())
    # The residuals have mean 0 and, over the mean of `second`, the ratio's spread.
    _, low, high = mean_interval((ours - ratio * theirs) / theirs.mean(), confidence)
    return Interval(ratio, ratio + low, ratio + high)


def paired_difference(results: Results, dataset: str, first: str, second: str) -> Interval:
    """Validation loss of ``first`` minus that of ``second`` (nats), paired by cell: mean over donors.

    The interval is Student's over donors; it has no ends if there are too few.  Both models see the same masks, so the difference has a far smaller spread than either loss.

    Raises:
        UserError: if the two files do not hold the same cells.
    """
    cells, losses, donors = results.cell_losses(dataset, first)
    other_cells, other_losses, _ = results.cell_losses(dataset, second)
    if not np.array_equal(cells, other_cells):
        raise UserError(
            f"metrics/validation_loss/{dataset}: {first} and {second} were evaluated on different "
            "cells; delete both and run again"
        )
    confidence = results.config.evaluation.validation_loss.confidence
    return donor_mean(losses - other_losses, donors, confidence).interval


def moving_mean(values: np.ndarray, share: float = WINDOW) -> np.ndarray:
    """Mean over a centred window, this share of all rows, that narrows at both ends.

    Not finite where the window holds a value that is not.
    """
    half = int(len(values) * share / 2)
    return np.array(
        [
            values[max(0, place - width) : place + width + 1].mean()
            for place in range(len(values))
            for width in [min(half, place, len(values) - 1 - place)]
        ]
    )


def finite_or_inf(values: np.ndarray) -> np.ndarray:
    """Values with infinity in place of what is not finite."""
    return np.where(np.isfinite(values), values, np.inf)


def trailing_median(values: np.ndarray) -> np.ndarray:
    """Median over the window that ends at each row: :data:`RECENT` of all rows, at least three.

    What is not finite counts as infinitely large.
    """
    rows = max(3, int(len(values) * RECENT))
    whole = finite_or_inf(values)
    return np.array(
        [np.median(whole[max(0, end - rows) : end]) for end in range(1, len(values) + 1)]
    )


#: Nats that a run must learn before it can diverge, and lose again to have diverged.
NATS = 1.0


def has_learned(journal: Journal) -> bool:
    """Return whether a run's smoothed loss ever fell by :data:`NATS` below its first value."""
    loss = trailing_median(journal["loss"])
    first = loss[int(np.argmax(np.isfinite(loss)))]
    return bool(np.isfinite(first) and loss.min() <= first - NATS)


def divergence(journal: Journal) -> int | None:
    """Return the row from which a run stays diverged, or None if it does not diverge.

    A run diverges if it has learned (:func:`has_learned`) and from some row to the end its smoothed
    loss is at least :data:`NATS` above its lowest value, or its last loss is not finite.
    """
    if not has_learned(journal):
        return None
    loss, smooth = finite_or_inf(journal["loss"]), trailing_median(journal["loss"])
    lowest = int(np.argmin(smooth))
    lost = smooth >= smooth[lowest] + NATS
    lost[: lowest + 1] = False
    if not (lost[-1] or np.isinf(loss[-1])):
        return None
    first = int(np.flatnonzero(~lost[:-1])[-1]) + 1
    # The median of a window follows its rows by half of it.
    while first > lowest + 1 and loss[first - 1] >= smooth[lowest] + NATS:
        first -= 1
    return first
