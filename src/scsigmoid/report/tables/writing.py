"""Tables in two formats: CSV and Markdown."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from scsigmoid.files import write_text
from scsigmoid.records.csv_rows import escape_formula
from scsigmoid.records.measurements import Interval

DASH, MINUS, TIMES = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
INFINITY = "\N{INFINITY}"

#: Control characters except tab and line breaks, and characters without a shape that change the
#: direction or the joining of the text around them.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
#: Characters that are special in Markdown: everywhere, or where they would begin a link.
MARKDOWN = re.compile(r"[\\|*_`<>~$&@]|\](?=[(\[:])|:(?=//)|(?<=www)\.", re.IGNORECASE)
#: Second line of a table in Markdown, by the alignment of a column.
RULES = {"l": ":---", "r": "---:", "c": ":---:"}


@dataclass(frozen=True)
class Cell:
    """A cell of a formatted table, in plain text. The best value of a row is bold."""

    text: str
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as CSV rows (``records``) and formatted for Markdown and the report page.

    Attributes:
        caption: plain text.
        records: rows of the CSV file, numbers in full precision.
        header: column titles of the formatted table.
        rows: rows of the formatted table. A string is short for ``Cell(string)``. A row with a
            single cell is the title of the rows below.
        align: ``l``, ``r`` or ``c`` for each column. Further columns are centered.
        notes: sentences below the formatted table, in plain text.
    """

    caption: str
    records: Sequence[Mapping[str, object]] = ()
    header: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    align: str = "l"
    notes: Sequence[str] = ()

    @property
    def sides(self) -> str:
        """The alignment of every formatted column, one letter each."""
        return self.align.ljust(len(self.header), "c")

    @property
    def cells(self) -> list[list[Cell]]:
        return [
            [Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows
        ]


def pick(row: object, names: str) -> dict[str, Any]:
    """Return the attributes ``names`` (separated by spaces) of a row, by name."""
    return {name: getattr(row, name) for name in names.split()}


def without_empty_columns(table: Table) -> Table:
    """Return a table without formatted columns that have only dashes or empty cells."""
    rows = [row for row in table.cells if len(row) > 1]  # without titles of rows below
    kept = [
        index
        for index in range(len(table.header))
        if index == 0 or not rows or any(row[index].text not in ("", DASH) for row in rows)
    ]
    return replace(
        table,
        header=[table.header[index] for index in kept],
        rows=[[row[i] for i in kept] if len(row) > 1 else row for row in table.rows],
        align="".join(table.sides[index] for index in kept),
    )


def write_table(table: Table, stem: str | Path) -> list[Path]:
    """Write ``<stem>.csv``, and ``<stem>.md`` without formatted columns that have no values."""
    texts = {"csv": as_csv(table), "md": as_markdown(without_empty_columns(table))}
    for suffix, text in texts.items():
        write_text(f"{stem}.{suffix}", text)
    return [Path(f"{stem}.{suffix}") for suffix in texts]


def as_csv(table: Table) -> str:
    """Return the records as CSV in full precision. None and NaN are empty fields.

    A text that a spreadsheet would read as a formula begins with an apostrophe.
    """

    def text(value: object) -> str:
        if isinstance(value, str):
            return escape_formula(one_line(value))
        return str(value).lower() if isinstance(value, bool) else str(value)

    # With dtype object, integers stay integers in columns with empty fields.
    frame = pd.DataFrame(table.records, dtype=object)
    return frame.map(text, na_action="ignore").to_csv(index=False, lineterminator="\n")


def as_markdown(table: Table) -> str:
    """Return the formatted table as Markdown: caption, table, notes.

    :func:`read_markdown` is the inverse.
    """

    def formatted(cell: Cell) -> str:
        text = markdown_escape(cell.text)
        return f"**{text}**" if cell.bold and text else text

    rows = [[markdown_escape(text) for text in table.header], [RULES[side] for side in table.sides]]
    for row in table.cells:
        rows.append([*map(formatted, row), *[""] * (len(table.header) - len(row))])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    paragraphs = [markdown_escape(table.caption), lines, *map(markdown_escape, table.notes)]
    return "\n\n".join(paragraphs) + "\n"


def read_markdown(text: str) -> Table:
    """Return the table that :func:`as_markdown` wrote, without the rows of its CSV file.

    Raise a ValueError if the text is damaged.
    """

    def cells(line: str) -> list[str]:
        return [cell.strip() for cell in re.findall(r"((?:\\.|[^\\|])*)\|", line)[1:]]

    def plain(text: str) -> str:
        return re.sub(r"\\(.)", r"\1", text)

    def cell(text: str) -> Cell:
        is_bold = text.startswith("**")  # asterisks of labels have a backslash
        return Cell(plain(text.removeprefix("**").removesuffix("**")), is_bold)

    caption, lines, *notes = text.rstrip("\n").split("\n\n")
    header, rules, *rows = map(cells, lines.split("\n"))
    if any(len(row) != len(header) for row in (rules, *rows)):
        raise ValueError("a row is not as long as the header")
    sides = {rule: side for side, rule in RULES.items()}
    return Table(
        caption=plain(caption),
        header=[*map(plain, header)],
        # A row whose other cells are empty is the title of the rows below.
        rows=[[*map(cell, row if any(row[1:]) else row[:1])] for row in rows],
        align="".join(sides.get(rule, "c") for rule in rules),
        notes=[*map(plain, notes)],
    )


def visible(text: str) -> str:
    """Return a text without :data:`INVISIBLE` characters."""
    return INVISIBLE.sub("", text)


def one_line(text: str) -> str:
    """Return a visible text with single spaces in place of spaces, tabs and line breaks."""
    return " ".join(visible(text).split())


def markdown_escape(text: str) -> str:
    return MARKDOWN.sub(r"\\\g<0>", one_line(text))


def fixed(value: float, digits: int, sign: str = "-") -> str:
    """Return a number with ``digits`` decimals, or a dash for NaN. ``sign="+"`` adds plus signs."""
    if math.isinf(value):
        return INFINITY if value > 0 else MINUS + INFINITY
    if math.isnan(value):
        return DASH
    return f"{value:{sign}z,.{digits}f}".replace("-", MINUS)  # z: no minus sign before a zero


def interval(value: float, low: float, high: float, digits: int, sign: str = "-") -> str:
    """Return ``0.467 [0.461, 0.472]``, or only the value if an end is missing or both are infinite.

    A ratio has one infinite end if the denominator of a resample is 0.
    """
    middle, lower, upper = (fixed(number, digits, sign) for number in (value, low, high))
    is_known = math.isfinite(low) or math.isfinite(high)
    return f"{middle} [{lower}, {upper}]" if is_known and not math.isnan(low + high) else middle


def excludes_zero(difference: Interval) -> bool:
    """Return True if the interval of a difference has finite ends and does not contain 0."""
    return math.isfinite(difference.high - difference.low) and not (
        difference.low <= 0 <= difference.high
    )


def plus_minus(value: float, low: float, high: float, digits: int, sign: str = "-") -> str:
    """Return ``2.526 ± 0.001`` (half the width), or only the value if there is no interval."""
    middle = fixed(value, digits, sign)
    return middle if math.isnan(high - low) else f"{middle} ± {fixed((high - low) / 2, digits)}"


def millions(count: float) -> str:
    """Return a number of parameters, e.g. ``"1,402M"``, or ``"0.27M"`` below ten million."""
    value = count / 1e6
    return f"{value:,.0f}M" if value >= 10 else f"{value:.2g}M"


def decimals_for(value: float) -> int:
    """Return the number of decimals for at least three significant digits."""
    return max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
