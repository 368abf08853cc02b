"""Benchmark results as CSV: one row a configuration."""

import csv
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from scsigmoid.files import atomic_path


def write_rows(path: str | Path, kind: type, rows: Sequence[Any]) -> None:
    """Write dataclass instances as CSV, atomically; floats keep every bit.

    A field's column has its name, or what its metadata gives as ``column``.
    """
    columns = [field.metadata.get("column", field.name) for field in fields(kind)]
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as handle,
    ):
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([getattr(row, field.name) for field in fields(kind)] for row in rows)
