"""Speed-ups and costs from the rows of the benchmarks."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from scsigmoid.benchmarks.rows import KernelRow, Shape, TrainingRow, median_interval
from scsigmoid.kernels import OURS
from scsigmoid.labels import context_label, provider_label
from scsigmoid.measurements import Interval
from scsigmoid.results.folder import Results

Row = TypeVar("Row", KernelRow, TrainingRow)

#: The kernel of standard PyTorch attention.
STANDARD = "pytorch"
#: Batches of the kernel benchmark: with the paper's shapes, and with the lengths of real cells
#: (``jagged``) or sequences of equal length (``even``).
PAPER_BATCHES, CELL_BATCHES = ("paper",), ("jagged", "even")
#: Timings by provider (kernel) and layout.
Series = dict[tuple[str, str], list[KernelRow]]


def measured(timings: Sequence[KernelRow]) -> list[KernelRow]:
    """Return the rows that were timed."""
    return [timing for timing in timings if timing.milliseconds > 0]


def our_backend(results: Results) -> str:
    """Return the fastest of this project's backends that was timed, or the portable backend."""
    timed = {timing.provider for timing in measured(results.kernel)}
    return next((name for name in OURS if name in timed), OURS[-1])


def series(results: Results, batches: Sequence[str] = PAPER_BATCHES) -> Series:
    """Return the timings by provider and layout, in the order of the file.

    The layout is "" if the provider was timed in a single layout at every shape.
    """
    timings = [timing for timing in measured(results.kernel) if timing.batch in batches]
    layouts: dict[tuple[str, Shape], set[str]] = {}
    for timing in timings:
        layouts.setdefault((timing.provider, timing.shape), set()).add(timing.layout)
    with_layouts = {provider for (provider, _), names in layouts.items() if len(names) > 1}
    by_provider: Series = {}
    for timing in timings:
        layout = timing.layout if timing.provider in with_layouts else ""
        by_provider.setdefault((timing.provider, layout), []).append(timing)
    return by_provider


def in_panel(timing: KernelRow, padding: float, direction: str) -> bool:
    """Return True if a row has one of the paper's shapes with this padding and pass."""
    return (timing.batch, timing.padding, timing.direction) == (*PAPER_BATCHES, padding, direction)


def speed_ups(
    timings: Sequence[KernelRow],
    standard: Sequence[KernelRow],
    padding: float,
    direction: str,
) -> list[float]:
    """Return the speed-up of a provider over standard attention at each shape that both have."""
    base = {timing.shape: timing.milliseconds for timing in standard}
    return [
        base[timing.shape] / timing.milliseconds
        for timing in timings
        if in_panel(timing, padding, direction) and timing.shape in base
    ]


def ratio_of(ours: KernelRow, theirs: KernelRow, confidence: float) -> Interval:
    """Return our TFLOPS divided by theirs: the median over the rounds that timed both.

    With too few rounds, the ratio is computed from both rates and the ends of their intervals,
    which makes its interval wider.
    """
    values = paired(ours, theirs)
    ratio = median_interval(values, confidence) if values else Interval(math.nan)
    if math.isnan(ratio.low):
        return estimate(ours, "tflops").over(estimate(theirs, "tflops"))
    return ratio


def estimate(row: KernelRow | TrainingRow, column: str) -> Interval:
    """Return a value of a row with its interval."""
    return Interval(*(getattr(row, f"{column}{end}") for end in ("", "_low", "_high")))


def paired(ours: KernelRow, theirs: KernelRow) -> list[float]:
    """Return our TFLOPS divided by theirs in each round that timed both."""
    work = ours.tflops * ours.milliseconds / (theirs.tflops * theirs.milliseconds)
    values = (work * other / own for own, other in zip(ours.rounds, theirs.rounds, strict=False))
    return [value for value in values if not math.isnan(value)]


@dataclass(frozen=True)
class Cost:
    """The training cost of one size and context with each attention.

    Attributes:
        size: name of the model size.
        context: context length in tokens.
        sigmoid: the row of the training benchmark for sigmoid attention.
        softmax: the row for softmax attention.
        share: hours of sigmoid divided by hours of softmax: the median over rounds, which time both
            arms on the same cells. With too few rounds, it is computed from both arms' hours and
            the ends of their intervals, which makes its interval wider.
    """

    size: str
    context: int
    sigmoid: TrainingRow
    softmax: TrainingRow
    share: Interval

    @property
    def host_bound(self) -> bool:
        """Whether an arm's steps are limited by the host and not by the GPU."""
        return self.sigmoid.host_bound or self.softmax.host_bound

    @property
    def has_other_size(self) -> bool:
        """Whether the number of parameters differs from the size's name by more than 15 %."""
        match = re.fullmatch(r"([\d.]+)([MB])", self.size)
        named = float(match[1]) * {"M": 1e6, "B": 1e9}[match[2]] if match else math.nan
        return abs(self.sigmoid.parameters / named - 1) > 0.15

    @property
    def saved(self) -> Interval:
        """The hours that sigmoid saves, in percent of the hours of softmax."""
        return self.share.map(lambda share: (1 - share) * 100)

    @property
    def hours(self) -> Interval:
        """The hours that sigmoid saves."""
        hours = self.softmax.gpu_hours / 100
        return self.saved.map(lambda saved: saved * hours)


def row_label(row: TrainingRow) -> str:
    """Return the attention, size and context of a row."""
    return f"{row.attention} {row.size} at {context_label(row.context)}"


def cost_rows(results: Results) -> list[TrainingRow]:
    """Return the rows of the training benchmark with the fewest cells per step, as in the paper."""
    fewest = min((row.cells_per_step for row in results.training), default=0)
    return [row for row in results.training if row.cells_per_step == fewest]


def costs(results: Results) -> list[Cost]:
    """Return the sizes and contexts measured with both attentions, in the order of the rows.

    They are computed from :func:`cost_rows`. If an attention was measured with several kernels, the
    kernel with the fewest hours is used.
    """
    best: dict[tuple[str, int], dict[str, TrainingRow]] = {}
    for row in cost_rows(results):
        if row.gpu_hours > 0:
            arms = best.setdefault((row.size, row.context), {})
            other = arms.get(row.attention, row)
            arms[row.attention] = min(other, row, key=lambda arm: arm.gpu_hours)
    costs = []
    for key, arms in best.items():
        if len(arms) == 2:
            sigmoid, softmax = arms["sigmoid"], arms["softmax"]
            confidence = results.config.benchmarks.training.confidence
            share = median_interval(softmax.over(sigmoid), confidence)
            if math.isnan(share.low):
                share = estimate(sigmoid, "gpu_hours").over(estimate(softmax, "gpu_hours"))
            costs.append(Cost(*key, sigmoid, softmax, share))
    return costs


def cost_notes(results: Results) -> list[str]:
    """Return the notes of the rows of :func:`costs`, and of sizes and contexts without a cost."""
    arms = [arm for cost in costs(results) for arm in (cost.sigmoid, cost.softmax)]
    with_cost = {(arm.size, arm.context) for arm in arms}
    others = (row for row in cost_rows(results) if row.group[:2] not in with_cost)
    return notes([*arms, *others], row_label)


def notes(rows: Sequence[Row], label: Callable[[Row], str]) -> list[str]:
    """Return the notes of a benchmark's rows as sentences, each note once.

    A note on rows that were not timed names these rows. A note on timed rows names them only in the
    training benchmark, and only if the timed rows differ in their notes.

    Args:
        rows: rows of one benchmark.
        label: returns the name of a row.
    """
    labels: dict[tuple[str, bool], dict[str, None]] = {}
    for row in rows:
        labels.setdefault((row.note, row.milliseconds > 0), {})[label(row)] = None
    timed = [names for (_, is_timed), names in labels.items() if is_timed]
    sentences = []
    for (note, is_timed), names in labels.items():
        words = "; ".join(names)
        if not is_timed:
            # True if these kernels were timed at other shapes.
            is_partly = set().union(*timed).issuperset(names)
            start = "Timed only in part" if is_partly else "Not timed"
            sentences.append(f"{start} ({note}): {words}.")
        elif note and len(timed) > 1 and isinstance(rows[0], TrainingRow):
            sentences.append(f"{note}: {words}.")
        elif note:
            sentences.append(f"{note.removesuffix('.')}.")
    return sentences


def kernel_label(row: KernelRow) -> str:
    """Return the label of the kernel of a row."""
    return provider_label(row.provider)


def device_name(machine: dict[str, Any]) -> str:
    """Return the name of the GPU or CPU that a benchmark ran on."""
    device = str(machine.get("device") or "unknown device")
    if device == "cpu":
        return f"CPU ({machine['cpu']})" if machine.get("cpu") else "CPU"
    return device
