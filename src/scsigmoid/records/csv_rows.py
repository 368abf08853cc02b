"""CSV files that another job reads: rows are numbered, and no field is a formula.

The last column, ``row``, contains the number of the row and the number of all rows, for example
``3 of 12``. A reader can therefore detect rows that were lost, repeated or cut. A table without
rows does not have this column. ``pandas.read_csv`` reads the files as they are. Floats of dataclass
instances are stored exactly.
"""

import csv
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, write_text

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")
#: Name of the last column.
NUMBER = "row"
#: First characters of a formula in a spreadsheet. Excel skips tabs and carriage returns.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: A number, or a value with its interval in brackets. Its sign does not make it a formula.
NUMERIC = re.compile(
    r"[-+]?(\d[\d.,]*(e[-+]?\d+)?|inf|nan)( ?%)?( \[[-+\d., \N{MINUS SIGN}\N{INFINITY}]*\])?", re.I
)


def write_rows(
    path: str | Path, row_type: type, rows: Iterable[Any], *, numbered: bool = True
) -> None:
    """Write instances of the dataclass ``row_type`` in order, atomically.

    ``numbered`` is False for files that people edit: they do not have the column ``row``.
    """
    types, column_of = get_type_hints(row_type), columns(row_type)
    lines = [[as_text(getattr(row, name), types[name]) for name in column_of] for row in rows]
    header = [*column_of.values()]
    if numbered and lines:
        header.append(NUMBER)
        for line, number in zip(lines, numbers(len(lines)), strict=True):
            line.append(number)
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        quoting_writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        for line in (header, *lines):
            # The module `csv` does not quote "\r" if the lines end with "\n".
            has_return = any("\r" in text for text in line)
            (quoting_writer if has_return else writer).writerow(line)


def numbers(count: int) -> list[str]:
    """Return the column ``row`` of a file with ``count`` rows."""
    return [f"{number} of {count}" for number in range(1, count + 1)]


def check_numbers(column: Sequence[str]) -> None:
    """Raise a ValueError if a column ``row`` shows that rows were lost, repeated or cut."""
    if not column or sorted(column) != sorted(numbers(len(column))):
        raise ValueError("rows were lost, repeated or cut")


def write_frame(path: str | Path, frame: "pd.DataFrame") -> None:
    """Write a data frame without its index, atomically. Floats have six digits."""
    if len(frame):
        frame = frame.assign(**{NUMBER: numbers(len(frame))})
    # Six digits are enough for all results and keep the files small.
    write_text(path, frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def read_frame(path: str | Path, **options: Any) -> "pd.DataFrame":
    """Read a data frame with ``options`` of ``pandas.read_csv``.

    Raise a UserError if the file is damaged.
    The result does not have the column ``row``. Files without it are not checked.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(path, **options)
        if NUMBER in frame:
            check_numbers([*map(str, frame.pop(NUMBER))])
    except ValueError as error:  # the errors of pandas' parser are ValueErrors
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path}: damaged ({reason}); make it again") from None
    return frame


def read_rows(path: str | Path, row_type: type[Row], *, exact: bool = False) -> list[Row]:
    """Read instances of the dataclass ``row_type`` from a CSV file.

    Fields are text, booleans, integers or floats. An empty float is NaN, an empty integer 0 and an
    empty boolean false. Additional columns are ignored, unless ``exact``. Files without the column
    ``row`` are from other programs, and are not checked for lost rows.

    Raises:
        KeyError: if a column is missing, or if ``exact`` and the columns or their order differ.
        ValueError: if rows were lost, repeated or cut, a row is not as long as the header, a value
            does not have the type of its field, or the file is not UTF-8.
    """
    types, column_of = get_type_hints(row_type), columns(row_type)
    # Excel writes a byte order mark, which "utf-8-sig" skips.
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        header = list(reader.fieldnames or ())
        expected = list(column_of.values())
        is_other = exact and header not in (expected, [*expected, NUMBER])
        if is_other or not set(expected) <= set(header):
            raise KeyError(f"columns {', '.join(header)}")
        try:
            rows = list(reader)
        except csv.Error as error:
            raise ValueError(str(error)) from None
    # csv.DictReader stores surplus fields under the key None, and missing fields as the value None.
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise ValueError(f"row {number} is not as long as the header")
    if NUMBER in header and NUMBER not in expected:
        check_numbers([row[NUMBER] for row in rows])
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
    return str(value).lower() if kind is bool else escape_formula(str(value))


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
    return unescape_formula(text)


def escape_formula(text: str) -> str:
    """Return text that no spreadsheet reads as a formula: if needed, an apostrophe is added."""
    return f"'{text}" if is_formula(text) else text


def unescape_formula(text: str) -> str:
    """Return the text from which :func:`escape_formula` made ``text``."""
    return text[1:] if text.startswith("'") and is_formula(text[1:]) else text


def is_formula(text: str) -> bool:
    """Return True for text that begins like a formula, also after apostrophes. False for numbers.

    Spreadsheets treat full-width characters like the plain ones.
    """
    text = text.lstrip("'")
    first = unicodedata.normalize("NFKC", text[:1])
    return first.startswith(FORMULA) and not NUMERIC.fullmatch(text)
