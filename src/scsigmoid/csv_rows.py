"""CSV files with dataclass instances as rows. Floats are stored exactly."""

import csv
import math
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from scsigmoid.files import atomic_path

Row = TypeVar("Row")

csv.field_size_limit(2**31 - 1)  # one field of a manifest can exceed the default of 128 kB


def write_rows(path: str | Path, row_type: type, rows: Iterable[Any]) -> None:
    """Write instances of the dataclass ``row_type`` in order, atomically."""
    types, column_of = get_type_hints(row_type), columns(row_type)
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column_of.values())
        for row in rows:
            writer.writerow([as_text(getattr(row, name), types[name]) for name in column_of])


def read_rows(path: str | Path, row_type: type[Row], *, exact: bool = False) -> list[Row]:
    """Read instances of the dataclass ``row_type`` from a CSV file.

    Fields are text, booleans, integers or floats. An empty float is NaN, an empty integer 0 and an
    empty boolean false. Additional columns are ignored, unless ``exact``.

    Raises:
        KeyError: if a column is missing, or if ``exact`` and the columns or their order differ.
        ValueError: if a row is not as long as the header, a value does not have the type of its
            field, or the file is not UTF-8.
    """
    types, column_of = get_type_hints(row_type), columns(row_type)
    with Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        header = list(reader.fieldnames or ())
        if exact and header != list(column_of.values()):
            raise KeyError(f"columns {', '.join(header)}")
        try:
            rows = list(reader)
        except csv.Error as error:
            raise ValueError(str(error)) from None
    # csv.DictReader stores surplus fields under the key None, and missing fields as the value None.
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise ValueError(f"row {number} is not as long as the header")
    return [
        row_type(**{name: as_value(row[column], types[name]) for name, column in column_of.items()})
        for row in rows
    ]


def columns(row_type: type) -> dict[str, str]:
    """Return the columns of a dataclass, by field name.

    A column has the name of its field, unless the field's metadata contains another ``column``.
    """
    return {field.name: field.metadata.get("column", field.name) for field in fields(row_type)}


def as_text(value: Any, kind: type) -> str:
    """Return a value as text for a file. :func:`as_value` returns the same value from this text."""
    if kind is float:
        return repr(float(value))
    return str(value).lower() if kind is bool else str(value)


def as_value(text: str, kind: type) -> str | bool | int | float:
    """Convert text from a file to ``kind``. Raise a ValueError if this is not possible."""
    # int() and float() also accept the digits of other scripts, and underscores.
    if kind in (int, float) and (not text.isascii() or "_" in text):
        raise ValueError(f"{text!r} is not a number")
    if kind is bool:  # pandas writes True, a spreadsheet TRUE
        if text.lower() not in ("true", "false", ""):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() == "true"
    if kind is int:  # pandas writes 3.0 in a column with gaps
        number = float(text or 0)
        if not number.is_integer():
            raise ValueError(f"{text!r} is not a whole number")
        return int(number)
    if kind is float:
        return float(text) if text else math.nan
    return text
