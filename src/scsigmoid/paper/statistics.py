"""Intervals that tables and claims compute from the cells' or steps' own values."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from scsigmoid.errors import UserError
from scsigmoid.paper.results import Results


@dataclass(frozen=True)
class Interval:
    """A mean with its interval, and the number of values behind it."""

    value: float
    low: float
    high: float
    n: int


def mean_interval(values: np.ndarray, confidence: float) -> Interval:
    """Mean and normal-theory interval of the mean.

    Args:
        values: independent values, float64.
        confidence: e.g. 0.95.

    Returns:
        The interval; its ends are NaN for fewer than two values.
    """
    n = len(values)
    mean = float(values.mean()) if n else math.nan
    if n < 2:
        return Interval(mean, math.nan, math.nan, n)
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * float(values.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def paired_difference(results: Results, dataset: str, first: str, second: str) -> Interval:
    """Validation loss of ``first`` minus that of ``second``, cell by cell (nats).

    Both models see the same masks, so the difference has a far smaller spread than either loss.

    Raises:
        UserError: if the two files do not hold the same cells.
    """
    cells, losses = results.cell_losses(dataset, first)
    other_cells, other_losses = results.cell_losses(dataset, second)
    if not np.array_equal(cells, other_cells):
        raise UserError(
            f"metrics/validation_loss/{dataset}: {first} and {second} were evaluated on different "
            "cells; delete both and run again"
        )
    confidence = results.config.evaluation.validation_loss.confidence
    return mean_interval(losses - other_losses, confidence)
