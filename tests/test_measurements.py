"""Measurements survive the file to the bit; damage is named."""

import math
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scsigmoid.errors import UserError
from scsigmoid.measurements import (
    Interval,
    Measurement,
    mean_interval,
    read_measurements,
    write_measurements,
)

ROWS = [
    Measurement(dataset="heart_oft", model="sigmoid_4k", metric="mmd", value=0.1 + 0.2, n=3),
    Measurement(
        dataset="a,b",
        group='Immune "x" vs Neural',
        model="softmax_4k",
        attention="softmax",
        context=4096,
        metric="loss",
        value=math.inf,
        low=1e-300,
        high=-0.0,
        n=10,
        seed=42,
        simulated=True,
        source="metrics/x.csv",
    ),
]


def test_values_read_back_to_the_bit(tmp_path: Path) -> None:
    write_measurements(tmp_path / "m.csv", ROWS)
    for before, after in zip(ROWS, read_measurements(tmp_path / "m.csv"), strict=True):
        assert repr(astuple(before)) == repr(astuple(after))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "not a table of measurements"),
        (b"\xff\xfe", "damaged"),
        (b"", "not a table of measurements"),
        (None, "no such result file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "m.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        read_measurements(path)


@pytest.mark.parametrize(
    "change",
    [
        ("0.30000000000000004", "0.3x"),
        ("true", "yes"),
        (",10,42,", ",10.5,42,"),
        (",10,42,", ",inf,42,"),
    ],
)
def test_a_damaged_row_is_named(tmp_path: Path, change: tuple[str, str]) -> None:
    path = tmp_path / "m.csv"
    write_measurements(path, ROWS)
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match=r"m\.csv: damaged"):
        read_measurements(path)


def test_a_table_that_pandas_wrote_is_read_alike(tmp_path: Path) -> None:
    write_measurements(tmp_path / "m.csv", ROWS)
    table = pd.read_csv(tmp_path / "m.csv", float_precision="round_trip")
    table.to_csv(tmp_path / "pandas.csv", index=False)
    assert ",True," in (tmp_path / "pandas.csv").read_text()
    assert repr(read_measurements(tmp_path / "pandas.csv")) == repr(ROWS)


def test_interval_of_independent_values():
    values = np.random.default_rng(0).normal(3, 2, 50)
    expected = stats.t.interval(0.9, 49, values.mean(), stats.sem(values))
    assert mean_interval(values, 0.9) == pytest.approx((values.mean(), *expected), rel=1e-12)
    # fewer than two known donors are no clusters
    for donors in ([""], ["A"], ["", "unknown"], ["A", "unknown"]):
        assert mean_interval(values, 0.9, np.resize(donors, 50)) == mean_interval(values, 0.9)
    assert [math.isnan(end) for end in mean_interval(values[:1], 0.9)] == [False, True, True]


def test_interval_of_clusters():
    """As statsmodels has it; cells without a known donor are one more cluster, not two."""
    import statsmodels.api as sm

    random = np.random.default_rng(1)
    names = np.array(["A", "B", "C", "D", "", "unknown"])
    codes = random.choice(6, 60, p=[0.1, 0.2, 0.3, 0.2, 0.1, 0.1])
    values = random.normal(size=6)[codes] + random.normal(size=60)
    groups = {"groups": np.minimum(codes, 4)}
    model = sm.OLS(values, np.ones(60)).fit(cov_type="cluster", cov_kwds=groups, use_t=True)
    expected = model.conf_int(0.05)[0]
    assert mean_interval(values, 0.95, names[codes])[1:] == pytest.approx(expected, rel=1e-12)
    two = mean_interval(np.array([1.0, 3.0]), 0.95)
    assert mean_interval(np.repeat([1.0, 3.0], 9), 0.95, np.repeat(["A", "B"], 9)) == two


def test_differences_and_ratios_of_intervals_hold_those_of_all_values():
    """Against every combination of values within the two intervals."""
    ours, theirs = Interval(6.0, 5.0, 8.0), Interval(2.0, 1.0, 4.0)
    grids = np.meshgrid(np.linspace(*ours[1:], 7), np.linspace(*theirs[1:], 7))
    for found, values in (
        (ours.minus(theirs), grids[0] - grids[1]),
        (ours.over(theirs), grids[0] / grids[1]),
        (ours.map(lambda one: 1 / one), 1 / grids[0]),
    ):
        assert found[1:] == pytest.approx((values.min(), values.max()))
        assert found.low < found.value < found.high
