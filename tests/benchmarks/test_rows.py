"""Rows of the benchmarks written to CSV files and read again."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas
import pytest
from scipy import stats

from scsigmoid.benchmarks.rows import median_interval, read_rows, write_rows


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A row of every type."""

    name: str
    direction: str = field(metadata={"column": "pass"})
    number: int
    value: float
    checked: bool


ROWS = [
    Reading(name='a, "b"', direction="forward", number=3, value=0.1 + 0.2, checked=True),
    Reading(name="", direction="backward", number=0, value=math.inf, checked=False),
]


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", Reading, ROWS)
    assert read_rows(tmp_path / "rows.csv", Reading) == ROWS
    table = pandas.read_csv(tmp_path / "rows.csv", float_precision="round_trip")
    assert list(table) == ["name", "pass", "number", "value", "checked"]
    assert table["value"].tolist() == [row.value for row in ROWS]
    assert table["checked"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("count", "confidence"), [(10, 0.99), (250, 0.99), (50, 0.95), (7, 0.5), (2000, 0.99)]
)
def test_median_interval_is_scipys(count: int, confidence: float):
    values = np.random.default_rng(1).exponential(size=count)
    interval = median_interval(values.tolist(), confidence)
    # Coverage of the k-th smallest to the k-th largest value, for every k.
    coverage = [1 - 2 * stats.binom.cdf(k - 1, count, 0.5) for k in range(1, count // 2 + 1)]
    k = max(index + 1 for index, share in enumerate(coverage) if share >= confidence)
    ordered = np.sort(values)
    assert interval == (np.median(values), ordered[k - 1], ordered[-k])


def test_too_few_readings_have_no_interval():
    interval = median_interval([1.0, 2.0, 9.0], 0.99)
    assert interval.value == 2.0
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
