"""Paired differences, smoothing and divergence of training runs."""

import numpy as np

from scsigmoid.errors import UserError
from scsigmoid.measurements import Interval, donor_mean
from scsigmoid.results.folder import Journal, Results

#: The window of a moving mean, as a share of all rows.
WINDOW = 0.05
#: The window of a trailing median, as a share of all rows. A short window detects a divergence at
#: the end of a run.
RECENT = 0.01
#: Nats that a run must learn before it can diverge, and lose again to have diverged.
NATS = 1.0


def paired_difference(results: Results, dataset: str, first: str, second: str) -> Interval:
    """Return the validation loss of ``first`` minus that of ``second`` in nats.

    Losses are paired by cell: both models see the same masks, so the difference varies far less
    than either loss. The mean and Student's interval are over donors. Without enough donors there
    is no interval.

    Raises:
        UserError: if the two models were evaluated on different cells.
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
    """Return the mean over a centered window of a share of all rows, narrower at both ends.

    A mean is not finite if a value in its window is not.
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
    """Return values with infinity in place of those that are not finite."""
    return np.where(np.isfinite(values), values, np.inf)


def trailing_median(values: np.ndarray) -> np.ndarray:
    """Return the median over the window that ends at each row.

    The window has :data:`RECENT` of all rows, at least three. Values that are not finite count as
    infinitely large.
    """
    rows = max(3, int(len(values) * RECENT))
    whole = finite_or_inf(values)
    return np.array(
        [np.median(whole[max(0, end - rows) : end]) for end in range(1, len(values) + 1)]
    )


def has_learned(journal: Journal) -> bool:
    """Return True if a run's smoothed loss ever fell by :data:`NATS` below its first value."""
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
    # The trailing median lags behind the loss by half a window.
    while first > lowest + 1 and loss[first - 1] >= smooth[lowest] + NATS:
        first -= 1
    return first
