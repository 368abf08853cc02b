"""Comparisons within the benchmarks that tables, figures and claims share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scsigmoid.paper.results import KernelTiming, Results, Throughput

OURS = "triton"
STANDARD = "pytorch"


def measured(timings: Sequence[KernelTiming]) -> list[KernelTiming]:
    """The timings that hold a time."""
    return [timing for timing in timings if timing.milliseconds > 0]


def series(results: Results) -> dict[tuple[str, str], list[KernelTiming]]:
    """Timings by (provider, layout), in the order of the file; what could not run is left out."""
    found: dict[tuple[str, str], list[KernelTiming]] = {}
    for timing in measured(results.kernel):
        found.setdefault((timing.provider, timing.layout), []).append(timing)
    return found


def speed_ups(
    timings: Sequence[KernelTiming],
    standard: Sequence[KernelTiming],
    padding: float,
    direction: str,
) -> list[float]:
    """Time of the standard over time of a provider, one value a shape that both have."""
    base = {timing.shape: timing for timing in standard}
    return [
        base[timing.shape].milliseconds / timing.milliseconds
        for timing in timings
        if timing.padding == padding and timing.direction == direction and timing.shape in base
    ]


def mean_tflops(timings: Sequence[KernelTiming], padding: float, direction: str) -> float:
    """Mean TFLOPS over the shapes; NaN where there are none."""
    values = [
        timing.tflops
        for timing in timings
        if timing.padding == padding and timing.direction == direction
    ]
    return sum(values) / len(values) if values else math.nan


@dataclass(frozen=True)
class Cost:
    """What one configuration costs with each attention, in the same layout."""

    size: str
    context: int
    sigmoid: Throughput
    softmax: Throughput

    @property
    def saved(self) -> float:
        """Hours that sigmoid saves, in percent of softmax's."""
        return (1 - self.sigmoid.gpu_hours / self.softmax.gpu_hours) * 100

    @property
    def saved_interval(self) -> tuple[float, float]:
        """The two ends of ``saved``, from the ends of both intervals (conservative)."""
        return (
            (1 - self.sigmoid.gpu_hours_high / self.softmax.gpu_hours_low) * 100,
            (1 - self.sigmoid.gpu_hours_low / self.softmax.gpu_hours_high) * 100,
        )


def costs(results: Results) -> list[Cost]:
    """The configurations measured with both attentions, in the order of the file.

    Where an attention was measured in several ways, the one with the fewest hours counts.
    """
    best: dict[tuple[str, int], dict[str, Throughput]] = {}
    for row in results.throughput:
        if not row.gpu_hours > 0:
            continue
        arms = best.setdefault((row.size, row.context), {})
        if row.attention not in arms or row.gpu_hours < arms[row.attention].gpu_hours:
            arms[row.attention] = row
    return [
        Cost(size, context, arms["sigmoid"], arms["softmax"])
        for (size, context), arms in best.items()
        if len(arms) == 2
    ]


def notes(rows: Sequence[KernelTiming] | Sequence[Throughput]) -> list[str]:
    """The different notes of a benchmark's rows, each once, in the order of the file."""
    return list(dict.fromkeys(row.note for row in rows if row.note))
