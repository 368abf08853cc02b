"""Intervals and smoothing of the cells', steps' or readings' own values, for tables, figures and
claims."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scsigmoid.errors import UserError
from scsigmoid.measurements import mean_interval
from scsigmoid.paper.results import Results

#: Share of the rows that a window spans.
WINDOW = 0.05
#: That of a trailing window: short, so that an explosion at the very end of a run shows.
RECENT = 0.01


@dataclass(frozen=True)
class Interval:
    """A mean with its interval, and the number of values behind it."""

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of_mean(
        cls, values: np.ndarray, confidence: float, clusters: np.ndarray | None = None
    ) -> "Interval":
        """:func:`scsigmoid.measurements.mean_interval`, with the number of values."""
        return cls(*mean_interval(values, confidence, clusters), len(values))


Values = Sequence[float] | np.ndarray


def ratio_interval(first: Values, second: Values, confidence: float) -> Interval:
    """Mean of ``first`` over mean of ``second``, and Student's interval of the ratio, linearised.

    Args:
        first, second: paired values, of which one pair is independent of the next.
        confidence: between 0 and 1.
    """
    ours, theirs = (np.asarray(values, dtype=np.float64) for values in (first, second))
    ratio = float(ours.mean() / theirs.mean())
    # The residuals have mean 0 and, over the mean of `second`, the ratio's spread.
    spread = Interval.of_mean((ours - ratio * theirs) / theirs.mean(), confidence)
    return Interval(ratio, ratio + spread.low, ratio + spread.high, len(ours))


def paired_difference(results: Results, dataset: str, first: str, second: str) -> Interval:
    """Validation loss of ``first`` minus that of ``second``, cell by cell (nats).

    Both models see the same masks, so the difference has a far smaller spread than either loss.
    Donors are clusters, as in the interval of either.

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
    return Interval.of_mean(losses - other_losses, confidence, donors)


def moving_mean(values: np.ndarray, share: float = WINDOW) -> np.ndarray:
    """Mean over a centred window that narrows at both ends.

    Args:
        values: one value a logging step.
        share: share of all rows that the window spans.

    Returns:
        As many values; not finite where the window holds a value that is not.
    """
    half = int(len(values) * share / 2)
    return np.array(
        [
            values[max(0, place - width) : place + width + 1].mean()
            for place in range(len(values))
            for width in [min(half, place, len(values) - 1 - place)]
        ]
    )


def trailing_median(values: np.ndarray, share: float = RECENT) -> np.ndarray:
    """Median over the window that ends at each row; what is not finite counts as infinitely large.

    Args:
        values: one value a logging step.
        share: share of all rows that the window spans; at least three rows.
    """
    rows = max(3, int(len(values) * share))
    whole = np.where(np.isfinite(values), values, np.inf)
    return np.array(
        [np.median(whole[max(0, end - rows) : end]) for end in range(1, len(values) + 1)]
    )
