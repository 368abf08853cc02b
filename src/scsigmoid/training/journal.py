"""The measurements of a run: ``journal.csv`` and ``layers.csv``.

The journal starts with lines ``# key: value``. A checkpoint contains the rows up to its step, and a
resumed run measures later rows again.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scsigmoid.config.schema import MOST_STEPS
from scsigmoid.errors import UserError
from scsigmoid.files import report_full_disk, write_text
from scsigmoid.records.csv_rows import as_value

JOURNAL = "journal.csv"
LAYERS = "layers.csv"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the journal, written at a logging step. docs/training.md explains each column.

    Rates and fractions are averages since the previous row. None means unknown or not measured.
    """

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    attention_score_max: float
    cells_per_second: float
    tokens_per_second: float
    mfu: float | None
    packing_efficiency: float
    seconds: float
    data_wait: float
    peak_memory_gb: float
    validation_loss: float | None = None
    cuda_graphs: float = 0.0  # fraction of steps


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A row of ``layers.csv``: attention of one layer on fixed cells, before a step's update.

    Attributes:
        layer: index of the layer, from 0.
        score_max: largest |q . k / sqrt(dim)|.
        weight_max: largest attention weight.
        row_sum_low, row_sum, row_sum_high: 5th, 50th and 95th percentile of the sums of a query's
            attention weights in a head (softmax: 1).
        keys: effective number of keys of a query in a head, the median. It is exp(entropy) of the
            query's normalized weights, or 0 if all weights are 0.
        value_mean: |mean of v|^2 divided by the mean of |v|^2, averaged over heads and cells. 1 if
            all keys of a cell have the same v.
    """

    step: int
    layer: int
    score_max: float
    weight_max: float
    row_sum_low: float
    row_sum: float
    row_sum_high: float
    keys: float
    value_mean: float


COLUMNS = tuple(field.name for field in fields(Row))
LAYER_COLUMNS = tuple(field.name for field in fields(Layer))


def as_csv(rows: Sequence[Row | Layer]) -> str:
    """Return rows as CSV lines without column names. Floats are exact, None is an empty field."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(map(astuple, rows))
    return buffer.getvalue()


def append_rows(path: Path, rows: Sequence[Row | Layer]) -> str:
    """Append rows to a file that other processes may be reading. Return the appended text."""
    text = as_csv(rows)
    with report_full_disk(path), path.open("a", encoding="utf-8", newline="\n") as handle:
        handle.write(text)
    return text


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a file, without an incomplete last line.

    Raise a ValueError if the file is not UTF-8.
    """
    return path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


class Journal:
    """Writer of a journal. ``rows`` are its rows so far, CSV lines without column names."""

    def __init__(self, path: Path, header: Mapping[str, str], rows: str = "") -> None:
        """Write the file with a header and the rows so far."""
        self.path = path
        self.rows = rows
        lines = [f"# {key}: {' '.join(value.split())}\n" for key, value in header.items()]
        self._top = "".join(lines) + ",".join(COLUMNS) + "\n"
        self.write()

    def write(self) -> None:
        """Write the whole file, atomically."""
        write_text(self.path, self._top + self.rows)

    def append(self, row: Row) -> None:
        self.rows += append_rows(self.path, [row])


def validation_losses(rows: str) -> list[float]:
    """Return the validation losses in ``rows`` (CSV lines without column names)."""
    column = COLUMNS.index("validation_loss")
    return [float(row[column]) for row in csv.reader(rows.splitlines()) if row[column]]


def begin_layers(path: Path, step: int) -> None:
    """Create ``layers.csv``, or remove its rows after ``step``, from which the run resumes."""
    try:
        lines = whole_lines(path)[1:] if path.exists() else []  # without column names
        kept = [line for line in lines if as_step(line.split(",")[0]) <= step]
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); delete it to continue without it") from None
    write_text(path, "\n".join([",".join(LAYER_COLUMNS), *kept]) + "\n")


def as_step(text: str) -> int:
    """Return the number of a step. Raise a ValueError if it cannot be one."""
    step = as_value(text, int)
    if not 1 <= int(step) <= MOST_STEPS:
        raise ValueError(f"{text!r} is not the number of a step")
    return int(step)


def read_journal(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Read a journal, also while its run is writing it.

    Return the columns (``step`` int64, others float64 with NaN for empty values) and the header.
    Steps ascend, because a resumed run removes the rows after its first step. Raise a UserError if
    the file is missing or damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such journal; train the model first")
    try:
        return parse_journal(whole_lines(path))
    except ValueError as error:
        raise UserError(f"{path}: not a journal ({error}); train the model again") from None


def parse_journal(lines: list[str]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Return the columns and the header of a journal. Raise a ValueError if it is damaged."""
    comments = list(takewhile(lambda line: line.startswith("# "), lines))
    header = {}
    for comment in comments:
        key, _, value = comment.removeprefix("# ").partition(": ")
        header[key] = value
    rows = [line.split(",") for line in lines[len(comments) :]]
    if not rows:
        raise ValueError("it is empty")
    names = rows.pop(0)
    # Journals of docs/measurements lack the last column or the last two columns.
    if tuple(names) not in (COLUMNS, COLUMNS[:-1], COLUMNS[:-2]):
        raise ValueError("other columns")
    if any(len(row) != len(names) for row in rows):
        raise ValueError("a row is not as long as the line of column names")
    steps = [as_step(row[0]) for row in rows]
    if any(step >= following for step, following in pairwise(steps)):
        raise ValueError("its steps do not ascend")
    missing = [""] * (len(COLUMNS) - len(names))
    values = [[as_value(value, float) for value in [*row, *missing]] for row in rows]
    table = np.array(values, dtype=np.float64).reshape(-1, len(COLUMNS))
    columns: dict[str, npt.NDArray[Any]] = dict(zip(COLUMNS, table.T, strict=True))
    columns["step"] = np.array(steps, dtype=np.int64)
    return columns, header
