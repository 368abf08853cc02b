"""Speed-ups and training costs, computed from the rows of the benchmarks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scsigmoid.benchmarks.rows import (
    KernelRow,
    Shape,
    TrainingRow,
    median_interval,
    paired_readings,
)
from scsigmoid.kernels import OURS
from scsigmoid.records.measurements import Interval
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import context_label, provider_label

Row = TypeVar("Row", KernelRow, TrainingRow)
#: The kernel of standard PyTorch attention.
STANDARD = "pytorch"
#: Values of the column ``batch``: ``paper`` are the paper's shapes. ``jagged`` are sequences with
#: the lengths of cells, and ``even`` are sequences of equal length for comparison.
PAPER_BATCHES, CELL_BATCHES = ("paper",), ("jagged", "even")
#: Rows of the kernel benchmark by kernel (column ``provider``) and layout.
Series = dict[tuple[str, str], list[KernelRow]]


def timed_rows(rows: Sequence[KernelRow]) -> list[KernelRow]:
    """Return the rows that were timed. Other rows have NaN as their time."""
    return [row for row in rows if row.milliseconds > 0]


def our_backend(results: Results) -> str:
    """Return the first timed backend of :data:`OURS` (fastest first), or the last if none was."""
    timed = {row.provider for row in timed_rows(results.kernel_rows)}
    return next((name for name in OURS if name in timed), OURS[-1])


def series(results: Results, batches: Sequence[str] = PAPER_BATCHES) -> Series:
    """Return the timed rows by provider and layout, in the order of the file.

    The layout is "" unless the provider was timed in several layouts at one shape.
    """
    rows = [row for row in timed_rows(results.kernel_rows) if row.batch in batches]
    layouts: dict[tuple[str, Shape], set[str]] = {}
    for row in rows:
        layouts.setdefault((row.provider, row.shape), set()).add(row.layout)
    several = {provider for (provider, _), names in layouts.items() if len(names) > 1}
    by_series: Series = {}
    for row in rows:
        layout = row.layout if row.provider in several else ""
        by_series.setdefault((row.provider, layout), []).append(row)
    return by_series


def in_panel(row: KernelRow, padding: float, direction: str) -> bool:
    """Return True if a row is for one of the paper's shapes with this padding and pass."""
    return row.batch in PAPER_BATCHES and (row.padding, row.direction) == (padding, direction)


def speed_ups(
    rows: Sequence[KernelRow], standard: Sequence[KernelRow], padding: float, direction: str
) -> list[float]:
    """Return the speed-ups over ``standard``, rows of standard attention, at the shapes of both.

    Rows that are not :func:`in_panel` are ignored.
    """
    standard_time = {row.shape: row.milliseconds for row in standard}
    return [
        standard_time[row.shape] / row.milliseconds
        for row in rows
        if in_panel(row, padding, direction) and row.shape in standard_time
    ]


def ratio_of(ours: KernelRow, theirs: KernelRow, confidence: float) -> Interval:
    """Return our TFLOPS divided by theirs: the median over the rounds that timed both kernels.

    With too few rounds for an interval of the median, the ratio and its wider interval are computed
    from the TFLOPS of both rows and their intervals.
    """
    ratio = median_interval(paired_ratios(ours, theirs), confidence)
    if math.isnan(ratio.low):
        return estimate(ours, "tflops").over(estimate(theirs, "tflops"))
    return ratio


def estimate(row: KernelRow | TrainingRow, column: str) -> Interval:
    """Return the value of a column with its interval."""
    return Interval(*(getattr(row, f"{column}{end}") for end in ("", "_low", "_high")))


def paired_ratios(ours: KernelRow, theirs: KernelRow) -> list[float]:
    """Return our TFLOPS divided by theirs in each round that timed both kernels."""
    # TFLOPS times milliseconds is the number of operations, which differs between batches.
    work_ratio = ours.tflops * ours.milliseconds / (theirs.tflops * theirs.milliseconds)
    rounds = paired_readings(ours, theirs)
    ratios = [work_ratio * their_time / our_time for our_time, their_time in rounds]
    # The time is NaN in a round that did not time the kernel.
    return [ratio for ratio in ratios if not math.isnan(ratio)]


@dataclass(frozen=True)
class Cost:
    """The training costs of sigmoid and softmax attention at one model size and context.

    ``hours_ratio`` is the hours of sigmoid divided by the hours of softmax: the median over the
    rounds, which time both attentions on the same cells. With too few rounds for an interval, it is
    computed from the hours of both rows and their intervals.
    """

    size: str
    context: int
    sigmoid: TrainingRow
    softmax: TrainingRow
    hours_ratio: Interval

    @property
    def saved_percent(self) -> Interval:
        """The hours that sigmoid saves, in percent of the hours of softmax."""
        return self.hours_ratio.map(lambda ratio: (1 - ratio) * 100)

    @property
    def saved_hours(self) -> Interval:
        """The hours that sigmoid saves."""
        hours_per_percent = self.softmax.gpu_hours / 100
        return self.saved_percent.map(lambda percent: percent * hours_per_percent)


def row_label(row: TrainingRow) -> str:
    return f"{row.attention} {row.size} at {context_label(row.context)}"


def cost_rows(results: Results) -> list[TrainingRow]:
    """Return the rows of the training benchmark with the fewest cells per step, as in the paper."""
    fewest = min((row.cells_per_step for row in results.training_rows), default=0)
    return [row for row in results.training_rows if row.cells_per_step == fewest]


def costs(results: Results) -> list[Cost]:
    """Return the cost of each size and context that was timed with sigmoid and with softmax.

    Costs have the order of :func:`cost_rows`. For each attention, the kernel with the fewest hours
    counts.
    """
    confidence = results.config.benchmarks.training.confidence
    timed = [row for row in cost_rows(results) if row.gpu_hours > 0]
    fastest = {(row.size, row.context): dict[str, TrainingRow]() for row in timed}
    for row in sorted(timed, key=lambda row: row.gpu_hours):
        fastest[row.size, row.context].setdefault(row.attention, row)  # keeps the faster row
    costs = []
    for (size, context), by_attention in fastest.items():
        if len(by_attention) == 2:
            sigmoid, softmax = by_attention["sigmoid"], by_attention["softmax"]
            # Softmax rate / sigmoid rate = sigmoid hours / softmax hours.
            hours_ratio = median_interval(softmax.over(sigmoid), confidence)
            if math.isnan(hours_ratio.low):
                hours_ratio = estimate(sigmoid, "gpu_hours").over(estimate(softmax, "gpu_hours"))
            costs.append(Cost(size, context, sigmoid, softmax, hours_ratio))
    return costs


def cost_notes(results: Results) -> list[str]:
    """Return the notes of rows in :func:`costs` and of rows whose size and context have no cost."""
    all_costs = costs(results)
    used = [row for cost in all_costs for row in (cost.sigmoid, cost.softmax)]
    with_cost = {(cost.size, cost.context) for cost in all_costs}
    others = [row for row in cost_rows(results) if (row.size, row.context) not in with_cost]
    return notes([*used, *others], row_label)


def notes(rows: Sequence[Row], label: Callable[[Row], str]) -> list[str]:
    """Return the notes of one benchmark's rows as sentences, each note once.

    A sentence on rows that were not timed contains their labels. A sentence on timed rows contains
    labels only in the training benchmark and only if timed rows have different notes.
    """
    # Labels by note and by whether the rows were timed. The inner dictionary is an ordered set.
    groups: dict[tuple[str, bool], dict[str, None]] = {}
    for row in rows:
        groups.setdefault((row.note, row.milliseconds > 0), {})[label(row)] = None
    timed_groups = [labels for (_, is_timed), labels in groups.items() if is_timed]
    has_different_notes = len(timed_groups) > 1
    timed_labels = set().union(*timed_groups)
    sentences = []
    for (note, is_timed), labels in groups.items():
        joined = "; ".join(labels)
        if not is_timed:
            # Rows with the same label, such as a kernel at other shapes, may have been timed.
            start = "Timed only in part" if timed_labels.issuperset(labels) else "Not timed"
            sentences.append(f"{start} ({note}): {joined}.")
        elif note and has_different_notes and isinstance(rows[0], TrainingRow):
            sentences.append(f"{note}: {joined}.")
        elif note:
            sentences.append(f"{note.removesuffix('.')}.")
    return sentences


def kernel_label(row: KernelRow) -> str:
    return provider_label(row.provider)


def device_name(results: Results, benchmark: str) -> str:
    """Return the name of the GPU or CPU that a benchmark, ``kernel`` or ``training``, ran on."""
    machine = results.machine(benchmark)
    if machine.get("device") == "cpu":
        return f"CPU ({machine['cpu']})" if machine.get("cpu") else "CPU"
    return str(machine.get("device") or "unknown device")
