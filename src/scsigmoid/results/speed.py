"""Comparisons within the benchmarks that tables, figures and the comparison share."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scsigmoid.benchmarks.rows import KernelRow, Shape, TrainingRow, median_interval
from scsigmoid.kernels import OURS
from scsigmoid.measurements import Interval
from scsigmoid.labels import context_label, provider_label
from scsigmoid.results.folder import Results

#: Standard attention.
STANDARD = "pytorch"
#: Batches of the kernel benchmark: the paper's shapes, and those of cells beside equal ones.
PAPER, CELLS = ("paper",), ("jagged", "even")
#: Timings by provider and layout.
Series = dict[tuple[str, str], list[KernelRow]]


def measured(timings: Sequence[KernelRow]) -> list[KernelRow]:
    return [timing for timing in timings if timing.milliseconds > 0]


def our_path(results: Results) -> str:
    """The fastest path of our kernel that was timed; the portable one where none was."""
    timed = {timing.provider for timing in measured(results.kernel)}
    return next((path for path in OURS if path in timed), OURS[-1])


def series(results: Results, batches: Sequence[str] = PAPER) -> Series:
    """Timings by provider, in the order of the file; what could not run is left out.

    The key is (provider, layout), the layout empty where the provider was timed in one form only at
    every shape.
    """
    timings = [timing for timing in measured(results.kernel) if timing.batch in batches]
    layouts: dict[tuple[str, Shape], set[str]] = {}
    for timing in timings:
        layouts.setdefault((timing.provider, timing.shape), set()).add(timing.layout)
    several = {provider for (provider, _), names in layouts.items() if len(names) > 1}
    found: Series = {}
    for timing in timings:
        layout = timing.layout if timing.provider in several else ""
        found.setdefault((timing.provider, layout), []).append(timing)
    return found


def in_panel(timing: KernelRow, padding: float, direction: str) -> bool:
    """Whether it is one of the paper's shapes with this padding and pass."""
    found = (timing.batch, timing.padding, timing.direction)
    return found == (*PAPER, padding, direction)


def matched(
    timings: Sequence[KernelRow],
    standard: Sequence[KernelRow],
    padding: float,
    direction: str,
) -> list[tuple[KernelRow, KernelRow]]:
    """The timings of a panel, each with the standard's of the same shape, where there is one."""
    base = {timing.shape: timing for timing in standard}
    return [
        (timing, base[timing.shape])
        for timing in timings
        if in_panel(timing, padding, direction) and timing.shape in base
    ]


def speed_ups(
    timings: Sequence[KernelRow],
    standard: Sequence[KernelRow],
    padding: float,
    direction: str,
) -> list[float]:
    """Time of the standard over time of a provider, one value a shape that both have."""
    found = matched(timings, standard, padding, direction)
    return [theirs.milliseconds / ours.milliseconds for ours, theirs in found]


def mean_tflops(timings: Sequence[KernelRow], padding: float, direction: str) -> float:
    """Mean TFLOPS over the shapes; NaN where there are none."""
    values = [timing.tflops for timing in timings if in_panel(timing, padding, direction)]
    return sum(values) / len(values) if values else math.nan


def ratio_of(ours: KernelRow, theirs: KernelRow, confidence: float) -> Interval:
    """Our rate over theirs: the median over the rounds that timed both, with its interval.

    Too few rounds for an interval leave the ends of both rates' intervals, which are wider.
    """
    values = paired(ours, theirs)
    found = median_interval(values, confidence) if values else Interval(math.nan)
    return rate(ours).over(rate(theirs)) if math.isnan(found.low) else found


def rate(row: KernelRow) -> Interval:
    return Interval(row.tflops, row.tflops_low, row.tflops_high)


def paired(ours: KernelRow, theirs: KernelRow) -> list[float]:
    """Our rate over theirs in each round that timed both."""
    work = ours.tflops * ours.milliseconds / (theirs.tflops * theirs.milliseconds)
    values = (work * other / own for own, other in zip(ours.rounds, theirs.rounds, strict=False))
    return [value for value in values if not math.isnan(value)]


@dataclass(frozen=True)
class Cost:
    """The cost of one size and context with each attention.

    Attributes:
        share: sigmoid's hours over softmax's.
        paired: whether ``share`` is the median over rounds that timed both arms on the same cells.
            Otherwise its interval comes from the ends of both arms' intervals, which is wider.
    """

    size: str
    context: int
    sigmoid: TrainingRow
    softmax: TrainingRow
    share: Interval
    paired: bool

    @property
    def host_bound(self) -> list[str]:
        """The arms that time the host's launches, by name: they say nothing of the GPU."""
        found = [row_label(arm) for arm in (self.sigmoid, self.softmax) if arm.host_bound]
        both = f"{self.size} at {context_label(self.context)}"
        return [both] if found[1:] else found

    @property
    def saved(self) -> Interval:
        """Hours that sigmoid saves, in percent of softmax's."""
        return self.share.map(lambda share: (1 - share) * 100)

    @property
    def hours(self) -> Interval:
        """Hours that sigmoid saves: that share of softmax's."""
        hours = self.softmax.gpu_hours / 100
        return self.saved.map(lambda saved: saved * hours)


def row_label(row: TrainingRow) -> str:
    return f"{row.attention} {row.size} at {context_label(row.context)}"


def hours_of(row: TrainingRow) -> Interval:
    return Interval(row.gpu_hours, row.gpu_hours_low, row.gpu_hours_high)


def cost_of(sigmoid: TrainingRow, softmax: TrainingRow, confidence: float) -> Cost:
    """The cost of one size and context: a row of each attention from the same group."""
    share = median_interval(softmax.over(sigmoid), confidence)
    paired = not math.isnan(share.low)
    if not paired:
        share = hours_of(sigmoid).over(hours_of(softmax))
    return Cost(sigmoid.size, sigmoid.context, sigmoid, softmax, share, paired)


def costs(results: Results) -> list[Cost]:
    """The sizes and contexts measured with both attentions; see :func:`costs_of`."""
    return costs_of(cost_rows(results), results.config.benchmarks.training.confidence)


def cost_rows(results: Results) -> list[TrainingRow]:
    """Rows of the training benchmark with the fewest cells a step, as in the paper."""
    fewest = min((row.cells_per_step for row in results.training), default=0)
    return [row for row in results.training if row.cells_per_step == fewest]


def costs_of(rows: Sequence[TrainingRow], confidence: float) -> list[Cost]:
    """The sizes and contexts measured with both attentions, in the order of the rows.

    If an attention was measured with several kernels, the one with the fewest hours counts.
    """
    best: dict[tuple[str, int], dict[str, TrainingRow]] = {}
    for row in rows:
        if row.gpu_hours > 0:
            arms = best.setdefault((row.size, row.context), {})
            known = arms.get(row.attention, row)
            arms[row.attention] = min(known, row, key=lambda one: one.gpu_hours)
    return [
        cost_of(arms["sigmoid"], arms["softmax"], confidence)
        for arms in best.values()
        if len(arms) == 2
    ]


def cost_notes(results: Results) -> list[str]:
    """The notes of the rows behind :func:`costs`, and of sizes and contexts without a cost."""
    both = costs(results)
    arms = [arm for cost in both for arm in (cost.sigmoid, cost.softmax)]
    places = {(arm.size, arm.context) for arm in arms}
    return notes([*arms, *(row for row in cost_rows(results) if row.group[:2] not in places)])


def notes(rows: Sequence[KernelRow] | Sequence[TrainingRow]) -> list[str]:
    """The notes of a benchmark's rows, each once; what has no time is named with its note.

    So are rows of the training benchmark, if a note is not of all.
    """
    missing: dict[str, dict[str, None]] = {}
    timed: dict[str, list[str]] = {}
    somewhere = set()
    for row in rows:
        if isinstance(row, KernelRow):
            name, has_time = provider_label(row.provider), row.milliseconds > 0
            somewhere |= {name} if has_time else set()
        else:
            name, has_time = f"{row.size} at {context_label(row.context)}", row.gpu_hours > 0
        names = missing.setdefault(row.note, {})
        if not has_time:
            names[name] = None
        elif isinstance(row, TrainingRow):
            timed.setdefault(row.note, []).append(row_label(row))
    found = []
    for note, names in missing.items():
        places = timed.get(note, [])
        if names:
            said = "Timed at some shapes only" if somewhere.issuperset(names) else "Not timed"
            found.append(f"{said} ({note}): {'; '.join(names)}.")
        elif note and 0 < len(places) < sum(map(len, timed.values())):
            found.append(f"{note}: {'; '.join(places)}.")
        elif note:
            found.append(sentence(note))
    return found


def sentence(text: str) -> str:
    """Text that ends with a full stop."""
    return text if text.endswith(".") else f"{text}."


def device_words(machine: dict[str, Any]) -> str:
    """What a benchmark ran on: the GPU's name, or the CPU's."""
    device = str(machine.get("device") or "unknown device")
    if device == "cpu":
        return f"CPU ({machine['cpu']})" if machine.get("cpu") else "CPU"
    return device


def named_size(name: str) -> float:
    """Parameters that a size's name states, e.g. 1.4e9 for ``1.4B``; NaN where it states none."""
    found = re.fullmatch(r"([\d.]+)([MB])", name)
    return float(found[1]) * {"M": 1e6, "B": 1e9}[found[2]] if found else math.nan
