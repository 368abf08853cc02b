"""Benchmark results as CSV files, one row per configuration, and the interval of a median."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.progress import log, track, warn
from scsigmoid.records.csv_rows import read_rows as read_rows
from scsigmoid.records.csv_rows import write_rows as write_rows
from scsigmoid.records.measurements import Interval

Row = TypeVar("Row")
Group = TypeVar("Group")


class Shape(NamedTuple):
    """The fields of a :class:`KernelRow` that are equal for all compared kernels."""

    batch: str
    padding: float
    head_dimension: int
    length: int
    direction: str


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """A row of ``kernel.csv``.

    Attributes:
        direction: ``forward`` or ``backward`` (column ``pass``).
        batch: ``paper``, ``jagged`` or ``even``, see :class:`scsigmoid.benchmarks.cases.Case`.
        length: tokens of a sequence, padding included.
        padding: see ``Case``. Not the fraction of padding.
        tokens: valid tokens of the batch.
        milliseconds: median time, with its interval ``milliseconds_low`` to ``_high``. NaN if the
            kernel was not timed. ``note`` is the reason.
        tflops: operations (:meth:`Case.flops`) divided by the median time, in 10^12 per second.
        timing: ``graph`` (replay of a CUDA graph), ``events`` (calls queued on the GPU) or
            ``clock`` (single calls).
        call_milliseconds: median time of a single call from Python, including the launch. NaN on a
            CPU, where ``milliseconds`` is this time.
        checked: whether the results at this shape passed the comparison with float64.
        relative_error: largest relative error of output and gradients in this comparison.
        iterations: number of readings.
        readings: milliseconds of each round, separated by spaces. ``nan`` if the kernel skipped the
            round. All kernels of a group of shapes have the same rounds.
    """

    attention: str
    provider: str
    layout: str
    direction: str = field(metadata={"column": "pass"})
    batch: str
    head_dimension: int
    heads: int
    length: int
    sequences: int
    padding: float
    tokens: int
    dtype: str
    device: str
    milliseconds: float
    milliseconds_low: float
    milliseconds_high: float
    tflops: float
    tflops_low: float
    tflops_high: float
    timing: str
    call_milliseconds: float
    iterations: int
    checked: bool
    relative_error: float
    note: str
    readings: str

    @property
    def shape(self) -> Shape:
        return Shape(self.batch, self.padding, self.head_dimension, self.length, self.direction)


@dataclass(frozen=True, kw_only=True)
class TrainingRow:
    """A row of ``training.csv``: one model size, context, batch size and attention kernel.

    Attributes:
        layout: ``packed``, or ``padded`` if each cell is padded to the context.
        cells_per_step: cells of a step on one device.
        tokens_per_step: mean number of valid tokens of a step.
        padding: fraction of padding among the tokens that the model computes.
        milliseconds: median time of a step, with its interval ``milliseconds_low`` to ``_high``.
            NaN if the kernel was not timed. ``note`` is the reason.
        cells_per_second: ``cells_per_step`` divided by the median time.
        tokens_per_second: valid tokens per second, median of the rounds.
        mfu: operations per second on valid tokens divided by the GPU's peak, median of the rounds.
            NaN if the peak is unknown.
        gpu_hours: hours that one device needs for ``projected_cells`` at this rate.
        peak_memory_gb: memory of the first steps, with weights, gradients and optimizer state, in
            10^9 bytes. NaN on a CPU.
        cuda_graphs: fraction of the timed steps whose gradient a CUDA graph computed.
        host_bound: whether the GPU waited for the host to launch kernels. If so, the times depend
            little on the kernel.
        compiled: graphs that ``torch.compile`` made before the first round. Rows of one size may
            share a graph.
        recompiled: graphs that ``torch.compile`` made during the rounds.
        loss: loss of the first step in nats. All models of a size have the same weights.
        relative_error: error of one layer's gradient, compared with plain PyTorch in float32.
        rounds: number of readings.
        readings: milliseconds per step of each round, separated by spaces. All kernels of a size,
            context and number of cells have the same rounds, with the same cells.
    """

    size: str
    parameters: int
    context: int
    cells_per_step: int
    attention: str
    kernel: str
    layout: str
    device: str
    tokens_per_step: float
    padding: float
    milliseconds: float
    milliseconds_low: float
    milliseconds_high: float
    cells_per_second: float
    cells_per_second_low: float
    cells_per_second_high: float
    tokens_per_second: float
    mfu: float
    gpu_hours: float
    gpu_hours_low: float
    gpu_hours_high: float
    projected_cells: float
    peak_memory_gb: float
    cuda_graphs: float
    host_bound: bool
    compiled: int
    recompiled: int
    loss: float
    relative_error: float
    rounds: int
    note: str
    readings: str

    @property
    def group(self) -> "TrainingGroup":
        return TrainingGroup(self.size, self.context, self.cells_per_step)

    def over(self, other: "TrainingRow") -> list[float]:
        """Return the rate divided by the rate of another row of the group, for each round."""
        # A rate is inversely proportional to the time.
        return [theirs / own for own, theirs in paired_readings(self, other)]


class TrainingGroup(NamedTuple):
    """A model size, context and number of cells, at which kernels are timed in the same rounds."""

    size: str
    context: int
    cells: int


def paired_readings(
    row: KernelRow | TrainingRow, other: KernelRow | TrainingRow
) -> list[tuple[float, float]]:
    """Return the readings of two rows for each round, or [] if one of the kernels was not timed.

    Raises:
        ValueError: if the rows have different numbers of rounds, so they are of different groups.
    """
    own, theirs = ([float(reading) for reading in each.readings.split()] for each in (row, other))
    return list(zip(own, theirs, strict=True)) if own and theirs else []


class Sweep(Generic[Row]):
    """The rows of a benchmark, kept in a partial file until the table ``output`` is complete.

    A stopped benchmark resumes with the rows of the partial file. This file is not an output of the
    workflow, because Snakemake deletes the outputs of a failed job. Its name contains a checksum of
    ``facts`` (machine, versions, code) and ``settings``, both values for JSON.

    Attributes:
        rows: all rows, both read from the partial file and added.
    """

    def __init__(
        self, kind: type[Row], output: str | Path, facts: dict[str, str], settings: list[object]
    ) -> None:
        self.kind, self.output, self.facts = kind, Path(output), facts
        digest = hashlib.sha256(json.dumps([facts, *settings], sort_keys=True).encode()).hexdigest()
        self.partial = self.output.with_name(f"{self.output.stem}.partial-{digest[:12]}.csv")
        for other in sorted(self.output.parent.glob(f"{self.output.stem}.partial-*.csv")):
            if other != self.partial:
                log(f"{other}: from another machine, version, code or setting; starting over")
                other.unlink()
        self.rows: list[Row] = []
        if self.partial.exists():
            try:
                self.rows = read_rows(self.partial, kind)
                if self.rows:
                    log(f"{self.partial}: resuming after {len(self.rows)} rows")
            except (UserError, KeyError, ValueError) as error:
                log(f"{self.partial}: damaged ({error}); starting over")
        # Fail before measuring if the file cannot be written.
        self.add([])

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows, and write all rows to the partial file."""
        self.rows += rows
        write_rows(self.partial, self.kind, self.rows)

    def measure(
        self,
        groups: Mapping[str, Group],
        run: Callable[[Group], list[Row]],
        deadline: float,
        output_json: str | Path,
    ) -> None:
        """Measure ``groups``, the missing groups by name, one by one. Then write the table.

        After ``deadline``, a value of ``time.monotonic``, no group starts. If this leaves groups
        missing, the partial file is kept. ``output_json`` is written with ``facts`` and, as long as
        groups are missing, ``not_measured``: their names.
        """
        missing = list(groups)
        write_json(output_json, self.facts | {"not_measured": "; ".join(missing)})
        for name, group in track(groups.items(), label="benchmark", unit="groups"):
            if time.monotonic() > deadline:
                warn(
                    f"{self.output}: incomplete: the time limit is reached, {len(missing)} groups "
                    "are missing; the same command continues"
                )
                break
            self.add(run(group))
            missing.remove(name)
        write_rows(self.output, self.kind, self.rows)
        not_measured = {"not_measured": "; ".join(missing)} if missing else {}
        write_json(output_json, self.facts | not_measured)
        if not missing:
            self.partial.unlink(missing_ok=True)


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """Return the median with an interval from order statistics, for any distribution.

    The interval is from the k-th smallest to the k-th largest value. k is the largest number for
    which the interval contains the median with probability ``confidence`` or more (binomial
    distribution). The median is used because timings have long tails. It is NaN without values.
    """
    if not values:
        return Interval(math.nan)
    from scipy.stats import quantile_test

    middle = float(np.median(values))
    # The ends are NaN if there are too few values for an interval.
    low, high = quantile_test(values, q=middle).confidence_interval(confidence)
    return Interval(middle, float(low), float(high))
