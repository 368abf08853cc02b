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

#: The provider of standard attention.
STANDARD = "pytorch"
#: Batches of the kernel benchmark: the paper's shapes, and batches with the lengths of real cells
#: (``jagged``) and with sequences of one length (``even``).
PAPER, CELLS = ("paper",), ("jagged", "even")
#: Timings by provider and layout.
Series = dict[tuple[str, str], list[KernelRow]]


def measured(timings: Sequence[KernelRow]) -> list[KernelRow]:
    """Return the rows that have a time."""
    return [timing for timing in timings if timing.milliseconds > 0]


def our_path(results: Results) -> str:
    """Return the fastest path of our kernel that was timed, or the portable one."""
    timed = {timing.provider for timing in measured(results.kernel)}
    return next((path for path in OURS if path in timed), OURS[-1])


def series(results: Results, batches: Sequence[str] = PAPER) -> Series:
    """Return the timings by provider and layout, in the order of the file.

    The layout is empty if the provider was timed in one layout at every shape.
    """
    timings = [timing for timing in measured(results.kernel) if timing.batch in batches]
    layouts: dict[tuple[str, Shape], set[str]] = {}
    for timing in timings:
        layouts.setdefault((timing.provider, timing.shape), set()).add(timing.layout)
    several = {provider for (provider, _), names in layouts.items() if len(names) > 1}
    by_provider: Series = {}
    for timing in timings:
        layout = timing.layout if timing.provider in several else ""
        by_provider.setdefault((timing.provider, layout), []).append(timing)
    return by_provider


def in_panel(timing: KernelRow, padding: float, direction: str) -> bool:
    """Return whether a row is one of the paper's shapes with this padding and pass."""
    return (timing.batch, timing.padding, timing.direction) == (*PAPER, padding, direction)


def speed_ups(
    timings: Sequence[KernelRow],
    standard: Sequence[KernelRow],
    padding: float,
    direction: str,
) -> list[float]:
    """Return the speed-up of a provider over the standard at each shape that both have."""
    base = {timing.shape: timing.milliseconds for timing in standard}
    return [
        base[timing.shape] / timing.milliseconds
        for timing in timings
        if in_panel(timing, padding, direction) and timing.shape in base
    ]


def ratio_of(ours: KernelRow, theirs: KernelRow, confidence: float) -> Interval:
    """Return our TFLOPS over theirs: the median over the rounds that timed both.

    With too few rounds, the interval is computed from the ends of both rates' intervals, and wider.
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
    """Return our TFLOPS over theirs in each round that timed both."""
    work = ours.tflops * ours.milliseconds / (theirs.tflops * theirs.milliseconds)
    values = (work * other / own for own, other in zip(ours.rounds, theirs.rounds, strict=False))
    return [value for value in values if not math.isnan(value)]


@dataclass(frozen=True)
class Cost:
    """The cost of one size and context with each attention.

    Attributes:
        share: sigmoid's hours over softmax's: the median over rounds that timed both arms on the
            same cells. With too few rounds, its interval is computed from the ends of both arms'
            intervals, and wider.
    """

    size: str
    context: int
    sigmoid: TrainingRow
    softmax: TrainingRow
    share: Interval

    @property
    def host_bound(self) -> bool:
        """Whether steps of an arm wait for the host instead of the GPU."""
        return self.sigmoid.host_bound or self.softmax.host_bound

    @property
    def has_other_size(self) -> bool:
        """Whether the number of parameters differs from the size's name by more than 15 %."""
        match = re.fullmatch(r"([\d.]+)([MB])", self.size)
        named = float(match[1]) * {"M": 1e6, "B": 1e9}[match[2]] if match else math.nan
        return abs(self.sigmoid.parameters / named - 1) > 0.15

    @property
    def saved(self) -> Interval:
        """The hours that sigmoid saves, in percent of softmax's."""
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

    Only :func:`cost_rows` count. If an attention was measured with several kernels, the kernel with
    the fewest hours counts.
    """
    best: dict[tuple[str, int], dict[str, TrainingRow]] = {}
    for row in cost_rows(results):
        if row.gpu_hours > 0:
            arms = best.setdefault((row.size, row.context), {})
            known = arms.get(row.attention, row)
            arms[row.attention] = min(known, row, key=lambda arm: arm.gpu_hours)
    costs = []
    for place, arms in best.items():
        if len(arms) == 2:
            sigmoid, softmax = arms["sigmoid"], arms["softmax"]
            confidence = results.config.benchmarks.training.confidence
            share = median_interval(softmax.over(sigmoid), confidence)
            if math.isnan(share.low):
                share = estimate(sigmoid, "gpu_hours").over(estimate(softmax, "gpu_hours"))
            costs.append(Cost(*place, sigmoid, softmax, share))
    return costs


def cost_notes(results: Results) -> list[str]:
    """Return the notes of the rows of :func:`costs`, and of sizes and contexts without a cost."""
    both = costs(results)
    arms = [arm for cost in both for arm in (cost.sigmoid, cost.softmax)]
    places = {(arm.size, arm.context) for arm in arms}
    others = (row for row in cost_rows(results) if row.group[:2] not in places)
    return notes([*arms, *others], row_label)


def notes(rows: Sequence[Row], label: Callable[[Row], str]) -> list[str]:
    """Return the notes of a benchmark's rows, each once.

    A note names the rows that were not timed. In the training benchmark, it also names the timed
    rows that have it, unless all timed rows do.

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


def device_words(machine: dict[str, Any]) -> str:
    """Return the name of the GPU or CPU that a benchmark ran on."""
    device = str(machine.get("device") or "unknown device")
    if device == "cpu":
        return f"CPU ({machine['cpu']})" if machine.get("cpu") else "CPU"
    return device
