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


def write_rows(path: str | Path, kind: type, rows: Iterable[Any]) -> None:
    """Write instances of the dataclass ``kind`` in order, atomically.

    The name of a column is the name of its field, or ``column`` in the metadata of the field.
    """
    types = get_type_hints(kind)
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns(kind).values())
        for row in rows:
            writer.writerow([as_text(getattr(row, name), types[name]) for name in columns(kind)])


def read_rows(path: str | Path, kind: type[Row], *, exact: bool = False) -> list[Row]:
    """Read dataclass instances from a CSV file.

    Fields are text, booleans, integers or floats. An empty float is NaN, an empty integer 0 and an
    empty boolean false. Additional columns are ignored, unless ``exact``.

    Raises:
        KeyError: if a column is missing, or if ``exact`` and the columns or their order differ.
        ValueError: if a row is not as long as the header, a value has another type, or the file is
            not UTF-8.
    """
    types = get_type_hints(kind)
    with Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        header = list(reader.fieldnames or ())
        if exact and header != list(columns(kind).values()):
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
        kind(**{name: as_value(row[column], types[name]) for name, column in columns(kind).items()})
        for row in rows
    ]


def columns(kind: type) -> dict[str, str]:
    """Return the name of the column of each field of a dataclass, by the name of the field."""
    return {field.name: field.metadata.get("column", field.name) for field in fields(kind)}


def as_text(value: Any, kind: type) -> str:
    """Return a value as text for a file. :func:`as_value` returns exactly the same value."""
    if kind is float:
        return repr(float(value))
    return str(value).lower() if kind is bool else str(value)


def as_value(text: str, kind: type) -> str | bool | int | float:
    """Convert text from a file to ``kind``. Raise a ValueError if this is not possible."""
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
