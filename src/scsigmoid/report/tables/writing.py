"""One table in three formats: CSV for machines, Markdown for people, LaTeX for papers."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scsigmoid.files import write_text

DASH, MINUS, TIMES = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
INFINITY = "\N{INFINITY}"
#: How the columns of a value and of the ends of its interval are called.
ENDS = ("", "_low", "_high")
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        TIMES: r"$\times$",
        MINUS: r"$-$",
        INFINITY: r"$\infty$",
        "β": r"$\beta$",
        "ε": r"$\epsilon$",
        DASH: "--",
    }
)
Records = Sequence[Mapping[str, object]] | Sequence[Sequence[object]]
MATHS = {"±": r"\pm ", TIMES: r"\times ", "%": r"\%", MINUS: "-", INFINITY: r"\infty "}


@dataclass(frozen=True)
class Cell:
    """What stands in one cell of a formatted table.

    Attributes:
        text: plain text.
        bold: whether it is the best of its row.
        maths: whether LaTeX sets it as a formula.
    """

    text: str
    bold: bool = False
    maths: bool = False

    @property
    def markdown(self) -> str:
        text = markdown_escape(self.text)
        return f"**{text}**" if self.bold and text else text

    @property
    def latex(self) -> str:
        if not self.maths:
            text = latex_escape(self.text)
            return rf"\textbf{{{text}}}" if self.bold else text
        formula = "".join(MATHS.get(letter, letter) for letter in self.text).replace(" [", r"\;[")
        return rf"$\mathbf{{{formula}}}$" if self.bold else f"${formula}$"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A finished table.

    Attributes:
        caption: title sentence and explanations, plain text.
        records: the CSV's rows by column, numbers in full precision.
        columns: names of the CSV's columns, where ``records`` are without or can be none.
        header: head of the formatted table.
        rows: the formatted table; a plain text stands for ``Cell(text)``, and a row of one cell is
            a line between two rules.
        align: one of ``l``, ``r``, ``c`` for each formatted column.
        latex_columns: how many of the formatted columns LaTeX gets; all where None.
        notes: lines below the formatted table.
    """

    caption: str
    records: Records
    columns: Sequence[str] | None = None
    header: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    align: str
    latex_columns: int | None = None
    notes: Sequence[str] = ()

    @property
    def cells(self) -> list[list[Cell]]:
        """The formatted rows, each text a cell."""
        return [[Cell(one) if isinstance(one, str) else one for one in row] for row in self.rows]


def picked(row: object, names: str) -> dict[str, Any]:
    """The attributes of an object that are named, by name."""
    return {name: getattr(row, name) for name in names.split()}


def with_ends(name: str, values: Sequence[float]) -> dict[str, object]:
    """A value and the ends of its interval, by column."""
    return {f"{name}{end}": value for end, value in zip(ENDS, values, strict=True)}


def write_table(table: Table, name: str, stem: str | Path) -> list[Path]:
    """Write ``<stem>.csv``, ``<stem>.md`` and ``<stem>.tex``.

    ``name`` becomes LaTeX's label.
    """
    texts = {
        ".csv": as_csv(table.records, table.columns),
        ".md": as_markdown(table),
        ".tex": as_latex(table, name),
    }
    paths = [Path(f"{stem}{suffix}") for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def as_csv(records: Records, columns: Sequence[str] | None = None) -> str:
    """Records as CSV: every digit of a float."""
    # Of type object, so that whole numbers beside empty cells stay whole.
    frame = pd.DataFrame(records, columns=columns, dtype=object)  # type: ignore[arg-type]
    return frame.map(plain).to_csv(index=False, lineterminator="\n")


def plain(value: object) -> str:
    """A value as a CSV cell: floats with every digit; nothing for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value)) if isinstance(value, float) else str(value)


def as_markdown(table: Table) -> str:
    """The formatted table as Markdown: caption, pipe table, notes."""
    rule = {"l": ":---", "r": "---:", "c": ":---:"}
    lines = [
        markdown_escape(table.caption),
        "",
        "| " + " | ".join(markdown_escape(text) for text in table.header) + " |",
        "| " + " | ".join(rule[side] for side in table.align) + " |",
    ]
    for row in table.cells:
        cells = [cell.markdown for cell in row] + [""] * (len(table.header) - len(row))
        lines.append("| " + " | ".join(cells) + " |")
    for note in table.notes:
        lines += ["", markdown_escape(note)]
    return "\n".join(lines) + "\n"


def as_latex(table: Table, name: str) -> str:
    """The formatted table as a LaTeX table environment, plain ``tabular`` with ``hline``."""
    kept = slice(table.latex_columns)
    first, _, rest = table.caption.partition(". ")
    caption = rf"\textbf{{{latex_escape(first.rstrip('.'))}.}}"
    words = " ".join([rest, *table.notes]).strip()
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{caption}{' ' + latex_escape(words) if words else ''}}}",
        rf"\label{{tab:{name}}}",
        r"\small",
        rf"\begin{{tabular}}{{{table.align[kept]}}}",
        r"\hline",
        " & ".join(rf"\textbf{{{latex_escape(text)}}}" for text in table.header[kept]) + r" \\",
        r"\hline",
    ]
    for row in table.cells:
        if len(row) == 1:
            whole = rf"\multicolumn{{{len(table.align[kept])}}}{{l}}{{{row[0].latex}}} \\"
            lines += [whole, r"\hline"] if lines[-1] == r"\hline" else [r"\hline", whole, r"\hline"]
        else:
            lines.append(" & ".join(cell.latex for cell in row[kept]) + r" \\")
    lines += [r"\hline", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def latex_escape(text: str) -> str:
    return text.translate(LATEX)


def markdown_escape(text: str) -> str:
    """Text that Markdown shows as it stands."""
    return " ".join(re.sub(r"[\\|*_`<>]", r"\\\g<0>", text).split())


def fixed(value: float, digits: int, sign: str = "-") -> str:
    """A number of fixed digits, with ``+`` its sign; an en dash where there is none."""
    if math.isinf(value):
        return INFINITY if value > 0 else MINUS + INFINITY
    if math.isnan(value):
        return DASH
    # Adding 0 leaves no negative zero.
    return f"{round(value, digits) + 0.0:{sign},.{digits}f}".replace("-", MINUS)


def signed(value: float, digits: int) -> str:
    return fixed(value, digits, "+")


def interval(value: float, low: float, high: float, digits: int, sign: str = "-") -> str:
    """``0.467 [0.461, 0.472]``, or the value alone where there is no interval."""
    if any(map(math.isnan, (value, low, high))):
        return fixed(value, digits, sign)
    middle, lower, upper = (fixed(number, digits, sign) for number in (value, low, high))
    return f"{middle} [{lower}, {upper}]"


def plus_minus(value: float, low: float, high: float, digits: int, sign: str = "-") -> str:
    """``2.526 ± 0.001``, the half width of the interval, or the value alone without an interval."""
    if math.isnan(high - low):
        return fixed(value, digits, sign)
    return f"{fixed(value, digits, sign)} ± {fixed((high - low) / 2, digits)}"


def significant(value: float) -> int:
    """Digits after the point that leave at least three significant ones."""
    return max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
