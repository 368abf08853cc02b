"""Measurements survive the file to the bit; damage is named."""

import math
from dataclasses import astuple
from pathlib import Path

import pytest

from scsigmoid.errors import UserError
from scsigmoid.measurements import Measurement, read_measurements, write_measurements

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
    ("text", "words"),
    [("a,b\n1,2\n", "not a table of measurements"), (None, "no such result file")],
)
def test_other_files_are_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "m.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_measurements(path)


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    write_measurements(path, ROWS)
    path.write_text(path.read_text().replace("0.30000000000000004", "0.3x"))
    with pytest.raises(UserError, match=r"m\.csv: damaged"):
        read_measurements(path)
