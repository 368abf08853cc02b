"""Measurements in files, and intervals."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from scsigmoid.errors import UserError
from scsigmoid.records.measurements import (
    Interval,
    Measurement,
    mean_interval,
    read_measurements,
    write_measurements,
)

ROWS = [
    Measurement(dataset="heart_oft", model="sigmoid_4k", metric="mmd", value=0.1 + 0.2, n=3),
    Measurement(
        dataset="a,b", group='Immune "x" vs Neural', model="softmax_4k", attention="softmax",
        context=4096, metric="loss", value=math.inf, low=1e-300, high=-0.0, n=10, seed=42,
        source="metrics/x.csv",
    ),
]  # fmt: skip


def test_values_read_back_to_the_bit(tmp_path: Path) -> None:
    write_measurements(tmp_path / "m.csv", ROWS)
    assert repr(read_measurements(tmp_path / "m.csv")) == repr(ROWS)


@pytest.mark.parametrize(
    ("content", "words"), [(b"a,b\n1,2\n", "not a table of measurements"), (b"\xff\xfe", "damaged")]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(UserError, match="no such result file"):
        read_measurements(tmp_path / "m.csv")
    (tmp_path / "m.csv").write_bytes(content)
    with pytest.raises(UserError, match=words):
        read_measurements(tmp_path / "m.csv")


@pytest.mark.parametrize("change", [("0.30000000000000004", "0.3x"), (",10,42,", ",inf,42,")])
def test_a_damaged_row_is_named(tmp_path: Path, change: tuple[str, str]) -> None:
    path = tmp_path / "m.csv"
    write_measurements(path, ROWS)
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match=r"m\.csv: damaged"):
        read_measurements(path)


def test_interval_of_independent_values():
    values = np.random.default_rng(0).normal(3, 2, 50)
    expected = stats.t.interval(0.9, 49, values.mean(), stats.sem(values))
    assert mean_interval(values, 0.9) == pytest.approx((values.mean(), *expected), rel=1e-12)
    assert [math.isnan(end) for end in mean_interval(values[:1], 0.9)] == [False, True, True]


def test_ratios_of_intervals_contain_the_ratios_of_all_values():
    """Compare with all combinations of values within the two intervals."""
    ours, theirs = Interval(6.0, 5.0, 8.0), Interval(2.0, 1.0, 4.0)
    grids = np.meshgrid(np.linspace(*ours[1:], 7), np.linspace(*theirs[1:], 7))
    for result, values in (
        (ours.over(theirs), grids[0] / grids[1]),
        (ours.map(lambda value: 1 / value), 1 / grids[0]),
    ):
        assert result[1:] == pytest.approx((values.min(), values.max()))
        assert result.low < result.value < result.high
