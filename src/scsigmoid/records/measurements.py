"""Estimates with intervals, and the CSV files of measurements for tables and figures."""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.records.csv_rows import read_rows, write_rows

#: Missing cell types, batches and donors: "unknown" and "na" in CELLxGENE's schema, "NA" in R.
ABSENT = ("", "na", "nan", "unknown")


class Interval(NamedTuple):
    """An estimate and the ends of its interval, which are NaN if there is no interval."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def map(self, function: Callable[[float], float]) -> "Interval":
        """Apply a monotonic function to the estimate and to its ends."""
        value, *ends = map(function, self)
        return Interval(value, *sorted(ends))

    def over(self, other: "Interval") -> "Interval":
        """Return the ratio of two positive estimates. Its ends are low / high and high / low."""
        return Interval(self.value / other.value, self.low / other.high, self.high / other.low)

    def columns(self, name: str) -> dict[str, Any]:
        """Return the estimate as ``name``, and its ends as ``<name>_low`` and ``<name>_high``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measured value."""

    dataset: str  # evaluation dataset, e.g. heart_oft
    group: str = ""  # part of the dataset, e.g. a pair of cell types or a donor. Empty: all cells.
    model: str  # model or control, e.g. sigmoid_4k
    compared_with: str = ""  # second model of a ratio (the denominator) or a difference
    attention: str = ""  # sigmoid, softmax or empty
    context: int = 0  # context length in tokens, 0 for controls and for pairs with two contexts
    vocabulary: str = ""  # fingerprint of the vocabulary of the tokens
    metric: str  # e.g. validation_loss, silhouette_label
    value: float  # point estimate
    low: float = math.nan  # ends of the interval, NaN without an interval
    high: float = math.nan
    n: int = 0  # number of cells. For a mean over donors or pairs, their number.
    seed: int = -1  # seed of the random numbers, -1 if no random numbers are used
    note: str = ""  # why there is no interval, or which cells are left out
    source: str = ""  # file that the value was computed from, relative to the results folder

    @property
    def interval(self) -> Interval:
        return Interval(self.value, self.low, self.high)


def write_measurements(path: str | Path, rows: Iterable[Measurement]) -> None:
    write_rows(path, Measurement, rows)


def read_measurements(path: str | Path) -> list[Measurement]:
    """Read measurements. Raise a UserError if the file is missing, damaged or another table.

    A file without rows is damaged, because no metric is written without a value.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: no such result file; run the target that makes it")
    try:
        rows = read_rows(path, Measurement, exact=True)
        if not rows:
            raise ValueError("it has no rows")
    except KeyError:
        raise UserError(f"{path}: not a table of measurements; make it again") from None
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); make it again") from error
    return rows


def known_donors(donors: NDArray[Any]) -> list[str]:
    """Return the sorted names of donors, without missing names (:data:`ABSENT`) and ``pooled``.

    CELLxGENE names the cells of several donors ``pooled``.
    """
    names = map(str, np.unique(donors))
    return sorted(name for name in names if name.strip().casefold() not in (*ABSENT, "pooled"))


def mean_interval(values: NDArray[np.float64], confidence: float) -> Interval:
    """Return the mean of independent values and its Student interval.

    There is no interval from fewer than two values, and the mean of none is NaN.
    """
    from scipy.special import stdtrit  # as scipy.stats.t.ppf, whose import takes a second longer

    count = len(values)
    if count < 2:
        return Interval(float(values[0]) if count else math.nan)
    mean = float(values.mean())
    sum_of_squares = float(np.square(values - mean).sum())
    # Equal to sqrt(sum_of_squares / (count - 1)) / sqrt(count).
    standard_error = math.sqrt(count / (count - 1) * sum_of_squares) / count
    half_width = float(stdtrit(count - 1, (1 + confidence) / 2)) * standard_error
    return Interval(mean, mean - half_width, mean + half_width)


def split_interval(values: NDArray[np.float64], test_share: float, confidence: float) -> Interval:
    """Return the mean of scores, or of differences of scores, over splits, and its interval.

    Each split divides the same cells into ``test_share`` to test and the others to train on, so the
    values are correlated. Student's interval with the corrected variance of Nadeau and Bengio
    (2003): the factor 1 / splits becomes 1 / splits + test cells / training cells.
    """
    from scipy.special import stdtrit

    count, mean = len(values), float(values.mean())
    variance = float(values.var(ddof=1)) * (1 / count + test_share / (1 - test_share))
    half_width = float(stdtrit(count - 1, (1 + confidence) / 2)) * math.sqrt(variance)
    return Interval(mean, mean - half_width, mean + half_width)


class DonorMean(NamedTuple):
    """A mean over the means of donors."""

    interval: Interval
    donors: int  # number of known donors, i.e. without missing names and "unknown"
    note: str  # why there is no interval, or how many cells are left out. Otherwise empty.


def donor_mean(values: NDArray[np.float64], donors: NDArray[Any], confidence: float) -> DonorMean:
    """Return the mean over the means of donors, with Student's interval over donors.

    Every donor has the same weight, so the coverage of the interval does not depend on the numbers
    of cells (docs/evaluation.md). Cells without a known donor are left out. There is no interval
    from fewer than three known donors, or if more than half of the cells have no known donor.
    """
    names = known_donors(donors)
    means = np.array([values[donors == name].mean() for name in names], dtype=np.float64)
    interval = mean_interval(means, confidence)
    unknown = int((~np.isin(donors, names)).sum())
    too_few = f"no interval from fewer than 3 donors ({len(names)})" if len(names) < 3 else ""
    no_donor = f"{unknown} of {len(values)} cells have no known donor" if unknown else ""
    if too_few or 2 * unknown > len(values):
        note = "; ".join(filter(None, [too_few, no_donor]))
        return DonorMean(Interval(interval.value), len(names), note)
    return DonorMean(interval, len(names), f"{no_donor} and are left out" if unknown else "")


def source_of(output: Path, *inputs: Path) -> str:
    """Return the ``source`` of a measurement: the paths of ``inputs``, separated by spaces.

    Paths are relative to the deepest folder that contains all inputs and ``output``. This is the
    results folder if the files are from different stages.
    """
    paths = [path.absolute() for path in inputs]
    root = os.path.commonpath([output.absolute().parent, *(path.parent for path in paths)])
    return " ".join(path.relative_to(root).as_posix() for path in paths)
