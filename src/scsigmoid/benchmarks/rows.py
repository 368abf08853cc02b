"""Benchmark results as CSV: one row a configuration."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from scsigmoid.files import atomic_path


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """A row of ``kernel.csv``.

    Attributes:
        direction: ``forward`` or ``backward`` (column ``pass``).
        length: tokens of a sequence, padding included.
        padding: mean share of padding.
        milliseconds: median time, with ``milliseconds_low`` and ``_high``; NaN where ``note`` says
            why there is none.
        tflops: counted operations on valid tokens over that time.
    """

    attention: str
    provider: str
    layout: str
    direction: str = field(metadata={"column": "pass"})
    head_dimension: int
    heads: int
    length: int
    sequences: int
    padding: float
    dtype: str
    device: str
    milliseconds: float
    milliseconds_low: float
    milliseconds_high: float
    tflops: float
    tflops_low: float
    tflops_high: float
    iterations: int
    note: str

    @property
    def shape(self) -> tuple[float, int, int, str]:
        """Padding, head dimension, length and pass: what kernels are compared on."""
        return (self.padding, self.head_dimension, self.length, self.direction)


@dataclass(frozen=True, kw_only=True)
class ThroughputRow:
    """A row of ``throughput.csv``.

    Attributes:
        cells_per_step: cells of one step of one device.
        steps_per_second: mean over the readings, with its interval; NaN where ``note`` says why.
        gpu_hours: hours that one device needs for ``projected_cells`` at that rate.
    """

    size: str
    parameters: int
    context: int
    attention: str
    backend: str
    layout: str
    device: str
    cells_per_step: int
    steps_per_second: float
    steps_per_second_low: float
    steps_per_second_high: float
    readings: int
    cells_per_second: float
    gpu_hours: float
    gpu_hours_low: float
    gpu_hours_high: float
    projected_cells: float
    note: str


def write_rows(path: str | Path, kind: type, rows: Sequence[Any]) -> None:
    """Write dataclass instances as CSV, atomically; floats keep every bit.

    A field's column has its name, or what its metadata gives as ``column``.
    """
    columns = [one.metadata.get("column", one.name) for one in fields(kind)]
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as handle,
    ):
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([getattr(row, one.name) for one in fields(kind)] for row in rows)
