"""Rows of the benchmarks as CSV, there and back."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas
import pytest

from scsigmoid.benchmarks.rows import read_rows, write_rows


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


def test_rows_come_back_to_the_bit(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", Reading, ROWS)
    assert read_rows(tmp_path / "rows.csv", Reading) == ROWS
    table = pandas.read_csv(tmp_path / "rows.csv", float_precision="round_trip")
    assert list(table) == ["name", "pass", "number", "value", "checked"]
    assert table["value"].tolist() == [row.value for row in ROWS]
    assert table["checked"].tolist() == [True, False]


def test_an_empty_number_is_none(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("name,pass,number,value,checked\nx,forward,,,true\n")
    (row,) = read_rows(tmp_path / "rows.csv", Reading)
    assert math.isnan(row.value)
    assert asdict(row) | {"value": None} == {
        "name": "x",
        "direction": "forward",
        "number": 0,
        "value": None,
        "checked": True,
    }


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("name,number,value,checked\nx,1,1.0,true\n")
    with pytest.raises(KeyError):
        read_rows(path, Reading)
    path.write_text("name,pass,number,value,checked\nx,forward,1,fast,true\n")
    with pytest.raises(ValueError, match="fast"):
        read_rows(path, Reading)
