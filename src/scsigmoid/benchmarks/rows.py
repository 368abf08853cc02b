"""Benchmark results as CSV, one row a configuration, and the interval of a median."""

import hashlib
import json
import math
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from scsigmoid import csv_rows
from scsigmoid.csv_rows import read_rows as read_rows
from scsigmoid.errors import UserError
from scsigmoid.files import checksum_path, compare_checksum, remove_checksum
from scsigmoid.measurements import Interval
from scsigmoid.progress import log

Row = TypeVar("Row")

#: How the note of a throughput row begins whose GPU waited for the host.
HOST_BOUND = "Bound by the host"


class Shape(NamedTuple):
    """What kernels are compared on; see :class:`KernelRow`."""

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
        padding: share of padding as the paper names it.
        tokens: valid tokens of the batch.
        milliseconds: median time, with ``milliseconds_low`` and ``_high``; NaN where ``note`` says
            why there is none.
        tflops: counted operations on valid tokens over that time.
        executed_tflops: operations that the kernel runs over that time.
        timing: ``graph`` (replay of a CUDA graph), ``events`` (calls queued on the GPU) or
            ``clock``.
        call_milliseconds: median time of a single call from Python, launch included; NaN on a CPU,
            where ``milliseconds`` is that.
        checked: whether this kernel, at this shape, passed the comparison with float64.
        relative_error: the largest error found there, of output and gradients.
        clock_mhz, power_w: median clock and power of the GPU while the shape was timed.
        iterations: number of readings.
        readings: milliseconds of each round, separated by spaces; ``nan`` where it sat out.  All
            kernels of a group of shapes share the rounds.
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
    executed_tflops: float
    timing: str
    call_milliseconds: float
    iterations: int
    checked: bool
    relative_error: float
    clock_mhz: float
    power_w: float
    note: str
    readings: str

    @property
    def shape(self) -> Shape:
        """What it is compared on."""
        return Shape(self.batch, self.padding, self.head_dimension, self.length, self.direction)

    @property
    def rounds(self) -> list[float]:
        """The readings as numbers."""
        return numbers(self.readings)


@dataclass(frozen=True, kw_only=True)
class ThroughputRow:
    """A row of ``throughput.csv``.

    Attributes:
        cells_per_step: cells of one step of one device.
        steps_per_second: mean over the readings, with its interval; NaN where ``note`` says why.
        gpu_hours: hours that one device needs for ``projected_cells`` at that rate.
        rates: steps per second of each reading, separated by spaces.  Both attentions of a size and
            context meet the same cells in the same reading.
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
    rates: str

    @property
    def host_bound(self) -> bool:
        """Whether the row times the host's launches, not the GPU."""
        return self.note.startswith(HOST_BOUND)


@dataclass(frozen=True, kw_only=True)
class TrainingRow:
    """A row of ``training.csv``: the encoder at one context with one attention kernel and layout.

    Attributes:
        kernel: name of the attention kernel.
        cells_per_step: cells of one step.
        tokens_per_step: valid tokens of a step, mean.
        padding: share of the tokens that the model computes which are padding.
        milliseconds: median time of a step, with ``milliseconds_low`` and ``_high``; NaN where
            ``note`` says why there is none.
        cells_per_second: from that.
        tokens_per_second: valid tokens over time, median of the rounds.
        mfu: counted work on valid tokens over what the GPU could have done at its peak, likewise;
            NaN where the peak is unknown.
        peak_memory_gb: most memory of a step with weights, gradients and optimiser of this model
            alone, in 10^9 bytes; NaN on a CPU.
        graphs: graphs that were compiled before the first round; models of other contexts may have
            left theirs.
        recompiled: graphs that were compiled during the rounds.
        loss: of the first step, nats; all models begin with the same weights and cells.
        relative_error: of the gradient of one layer, against plain PyTorch in float32.
        rounds: number of readings.
        readings: milliseconds a step of each round, separated by spaces.  All kernels of a context
            share the rounds, and in a round the cells.
    """

    size: str
    parameters: int
    context: int
    attention: str
    kernel: str
    layout: str
    device: str
    cells_per_step: int
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
    peak_memory_gb: float
    graphs: int
    recompiled: int
    loss: float
    relative_error: float
    rounds: int
    note: str
    readings: str

    def over(self, other: "TrainingRow") -> list[float]:
        """This one's rate over another's of the same context, in each round."""
        own, theirs = numbers(self.readings), numbers(other.readings)
        return [slow / fast for fast, slow in zip(own, theirs, strict=False)]


def numbers(readings: str) -> list[float]:
    """Numbers separated by spaces."""
    return [float(reading) for reading in readings.split()]


def write_rows(path: str | Path, kind: type, rows: Sequence[Any]) -> None:
    """Write dataclass instances as CSV, atomically, with a checksum."""
    with checksum_path(path) as temporary:
        csv_rows.write_rows(temporary, kind, rows)


class Sweep(Generic[Row]):
    """The rows of a benchmark, kept beside its table until all are there.

    A sweep that was stopped resumes with the rows that it kept.  Their file is no output of the
    workflow, which deletes those of a failed job.  Its name holds a checksum of all that a
    measurement depends on, so only rows measured alike are taken up.

    Args:
        kind: of the rows.
        output: the table.
        conditions: machine, versions, code and settings, as plain values.

    Attributes:
        rows: those that are there.
    """

    def __init__(self, kind: type[Row], output: str | Path, conditions: object) -> None:
        self.kind, self.output = kind, Path(output)
        digest = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()
        self.partial = self.output.with_name(f"{self.output.stem}.partial-{digest[:12]}.csv")
        for other in sorted(self.output.parent.glob(f"{self.output.stem}.partial-*.csv")):
            if other != self.partial:
                log(f"{other}: of another machine, version, code or setting; measuring anew")
                discard(other)
        self.rows: list[Row] = []
        if self.partial.exists():
            try:
                compare_checksum(self.partial)
                self.rows = read_rows(self.partial, kind)
                if self.rows:
                    log(f"{self.partial}: resuming after {len(self.rows)} rows")
            except (UserError, KeyError, ValueError) as error:
                log(f"{self.partial}: damaged ({error}); measuring anew")
        # Where nothing can be written, nothing need be measured.
        self.add([])

    def add(self, rows: Sequence[Row]) -> None:
        """Keep further rows."""
        self.rows += rows
        write_rows(self.partial, self.kind, self.rows)

    def finish(self) -> None:
        """Write the table."""
        write_rows(self.output, self.kind, self.rows)
        discard(self.partial)


def discard(path: Path) -> None:
    """Remove a table and its checksum."""
    remove_checksum(path)
    path.unlink(missing_ok=True)


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """Median, and an interval from order statistics.

    The interval runs from the k-th smallest to the k-th largest value with the largest k for which
    a binomial count keeps it within the confidence, whatever the distribution.  Timings have long
    tails, so the median, not the mean, is what a repetition would find again.

    Args:
        values: independent timings; NaN for none.
        confidence: between 0 and 1; reached or exceeded.
    """
    if not values:
        return Interval(math.nan, math.nan, math.nan)
    ordered = sorted(values)
    count = len(ordered)
    middle = float(np.median(ordered))
    # P(the interval misses on one side) = P(Binomial(count, 1/2) < k), in exact integers.
    limit = Fraction((1 - confidence) / 2) * 2**count
    k, below = 0, 0
    while k < count and below + math.comb(count, k) <= limit:
        below += math.comb(count, k)
        k += 1
    if k == 0:
        return Interval(middle)
    return Interval(middle, ordered[k - 1], ordered[count - k])


def cpu_name() -> str:
    """The CPU's model, as Linux or the platform names it; here, where PyTorch is not imported."""
    described = Path("/proc/cpuinfo")
    text = described.read_text(encoding="utf-8") if described.is_file() else ""
    found = re.search(r"^model name\s*:\s*(.+)", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
