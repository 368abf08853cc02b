"""Intervals that tables and claims compute from the cells', steps' or readings' own values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scsigmoid import measurements
from scsigmoid.errors import UserError
from scsigmoid.paper.results import Results


@dataclass(frozen=True)
class Interval:
    """A mean with its interval, and the number of values behind it."""

    value: float
    low: float
    high: float
    n: int


def mean_interval(
    values: np.ndarray, confidence: float, clusters: np.ndarray | None = None
) -> Interval:
    """:func:`scsigmoid.measurements.mean_interval`, with the number of values."""
    return Interval(*measurements.mean_interval(values, confidence, clusters), len(values))


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
    spread = mean_interval((ours - ratio * theirs) / theirs.mean(), confidence)
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
    return mean_interval(losses - other_losses, confidence, donors)
