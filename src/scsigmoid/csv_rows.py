"""Dataclasses as rows of a CSV file; floats keep every bit."""

import csv
import math
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

Row = TypeVar("Row")

csv.field_size_limit(2**31 - 1)  # a list of rows in a manifest can exceed the default of 128 kB


def write_rows(path: str | Path, kind: type, rows: Iterable[Any]) -> None:
    """Write dataclass instances in the order given.

    A field's column has its name, or what its metadata gives as ``column``.
    """
    types = get_type_hints(kind)
    with Path(path).open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(columns(kind).values())
        writer.writerows(
            [as_text(getattr(row, name), types[name]) for name in columns(kind)] for row in rows
        )


def read_rows(path: str | Path, kind: type[Row], *, exact: bool = False) -> list[Row]:
    """Read what :func:`write_rows` wrote.

    An empty number is NaN, or 0 where an integer is expected; an empty boolean is false.

    Args:
        kind: a dataclass of text, booleans, integers and floats.
        exact: refuse other columns than its fields'; without it they are ignored.

    Raises:
        KeyError: for a missing column, or another one.
        ValueError: for a cell that is missing, no UTF-8, or no number or boolean where one is
            expected.
    """
    types = get_type_hints(kind)
    with Path(path).open(newline="", encoding="utf-8") as handle:
        reader = csv.DictReader(handle)
        header = list(reader.fieldnames or ())
        if exact and header != [*columns(kind).values()]:
            raise KeyError(f"columns {', '.join(header)}")
        try:
            rows = list(reader)
        except csv.Error as error:
            raise ValueError(str(error)) from None
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise ValueError(f"row {number} is not as long as the header")
    return [
        kind(**{name: as_type(row[column], types[name]) for name, column in columns(kind).items()})
        for row in rows
    ]


def columns(kind: type) -> dict[str, str]:
    """The columns of a dataclass, by field."""
    return {one.name: one.metadata.get("column", one.name) for one in fields(kind)}


def as_text(value: Any, kind: type) -> str:
    """A value as the file has it."""
    if kind is float:
        return repr(float(value))
    return str(value).lower() if kind is bool else str(value)


def as_type(text: str, kind: type) -> str | bool | int | float:
    """A cell of the file as a field's type."""
    if kind is bool:  # pandas writes True, a spreadsheet TRUE
        if text.lower() not in ("true", "false", ""):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() == "true"
    if kind is int:  # pandas writes 3.0 in a column with gaps
        if not (number := float(text or 0)).is_integer():
            raise ValueError(f"{text!r} is no whole number")
        return int(number)
    if kind is float:
        return float(text) if text else math.nan
    return text
