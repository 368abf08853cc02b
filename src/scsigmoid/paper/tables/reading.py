"""A table read back from the Markdown that :mod:`scsigmoid.paper.tables.writing` wrote."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PageTable:
    """A table read from Markdown.

    Attributes:
        caption: the line above it.
        header: head of the columns.
        align: CSS class of each column.
        rows: cells as (text, bold); a row of one cell spans all columns.
        notes: lines below.
    """

    caption: str
    header: list[str]
    align: list[str]
    rows: list[list[tuple[str, bool]]]
    notes: list[str]


def read_markdown(path: Path) -> PageTable:
    """Read a table that :func:`scsigmoid.paper.tables.make_table` wrote."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    piped = [line for line in lines if line.startswith("|")]
    side = {":---": "left", "---:": "right", ":---:": "middle"}
    rows = []
    for line in piped[2:]:
        cells = [read_cell(cell) for cell in split(line)]
        rows.append(cells[:1] if not any(text for text, _ in cells[1:]) else cells)
    return PageTable(
        caption=unescape(lines[0]),
        header=[unescape(cell) for cell in split(piped[0])],
        align=[side[cell] for cell in split(piped[1])],
        rows=rows,
        notes=[unescape(line) for line in lines[1:] if not line.startswith("|")],
    )


def split(line: str) -> list[str]:
    """The cells of a line, as written."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def read_cell(cell: str) -> tuple[str, bool]:
    """Text of a cell and whether it is bold."""
    bold = len(cell) > 4 and cell.startswith("**") and cell.endswith("**")
    return unescape(cell[2:-2] if bold else cell), bold


def unescape(text: str) -> str:
    """Markdown's escapes undone."""
    return re.sub(r"\\([\\|*_`<>])", r"\1", text)
