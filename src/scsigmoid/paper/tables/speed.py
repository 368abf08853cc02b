"""Speed: the attention kernel (fig:tflops) and training (fig:throughput)."""

import math
from collections.abc import Sequence

from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.paper.labels import context_label, provider_label
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import (
    STANDARD,
    costs,
    device_words,
    mean_tflops,
    notes,
    series,
    speed_ups,
)
from scsigmoid.paper.tables.writing import DASH, TIMES, Cell, Table, fixed, interval

PASSES = ("forward", "backward")


def kernel_speed(results: Results) -> Table:
    """TFLOPS by shape and provider, speed-ups over standard PyTorch attention, padding's cost."""
    found = series(results)
    shapes = sorted({timing.shape for timings in found.values() for timing in timings})
    rows: list[list[Cell]] = []
    for padding in sorted({shape[0] for shape in shapes}):
        for direction in PASSES:
            rows.append([Cell(f"TFLOPS, {direction}, {padding * 100:g} % padding")])
            rows += [
                shape_row(shape, found)
                for shape in shapes
                if shape[0] == padding and shape[3] == direction
            ]
            rows.append(speed_up_row(found, padding, direction))
    rows.append([Cell("Decrease of the mean TFLOPS by padding")])
    rows += [padding_row(found, direction) for direction in PASSES]
    machine = device_words(results.machine("kernel"))
    confidence = results.config.benchmarks.kernel.confidence * 100
    return Table(
        caption=f"Speed of the attention kernels on {machine}. TFLOPS of each shape (higher is "
        "better), the fastest in bold, and the mean speed-up over standard PyTorch attention with "
        f"its range. The CSV has the times and their {confidence:g} % intervals.",
        columns=(
            "attention",
            "provider",
            "layout",
            "pass",
            "head_dimension",
            "heads",
            "length",
            "sequences",
            "padding",
            "dtype",
            "device",
            "milliseconds",
            "milliseconds_low",
            "milliseconds_high",
            "tflops",
            "tflops_low",
            "tflops_high",
            "speed_up_over_pytorch",
            "paper_tflops",
            "note",
        ),
        records=[record(timing, found) for timing in results.kernel],
        header=(f"Head dimension {TIMES} length", *(series_label(key, found) for key in found)),
        rows=rows,
        align="l" + "c" * len(found),
        notes=notes(results.kernel),
    )


def series_label(key: tuple[str, str], found: dict[tuple[str, str], list[KernelRow]]) -> str:
    """A provider's label, with the layout where it was timed in several."""
    provider, layout = key
    several = sum(name == provider for name, _ in found) > 1
    return provider_label(provider) + (f", {layout}" if several else "")


def shape_row(
    shape: tuple[float, int, int, str], found: dict[tuple[str, str], list[KernelRow]]
) -> list[Cell]:
    """TFLOPS of every series at one shape."""
    values = []
    for timings in found.values():
        at_shape = [timing.tflops for timing in timings if timing.shape == shape]
        values.append(at_shape[0] if at_shape else math.nan)
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    digits = significant(best)
    return [
        Cell(f"{shape[1]} {TIMES} {shape[2]:,}"),
        *(Cell(fixed(value, digits), bold=value == best) for value in values),
    ]


def speed_up_row(
    found: dict[tuple[str, str], list[KernelRow]], padding: float, direction: str
) -> list[Cell]:
    """Mean speed-up over standard PyTorch attention and its range."""
    cells = [Cell("Speed-up over PyTorch, mean [range]")]
    for timings in found.values():
        values = speed_ups(timings, standard(found), padding, direction)
        mean = sum(values) / len(values) if values else math.nan
        ends = (min(values), max(values)) if values else (math.nan, math.nan)
        cells.append(Cell(interval(mean, *ends, 2)))
    return cells


def standard(found: dict[tuple[str, str], list[KernelRow]]) -> list[KernelRow]:
    """The timings of standard PyTorch attention."""
    return [timing for (name, _), rows in found.items() if name == STANDARD for timing in rows]


def padding_row(found: dict[tuple[str, str], list[KernelRow]], direction: str) -> list[Cell]:
    """Decrease of the mean TFLOPS from no padding to the most padding, in percent."""
    cells = [Cell(direction.capitalize())]
    for timings in found.values():
        levels = sorted({timing.padding for timing in timings})
        if len(levels) < 2:
            cells.append(Cell(DASH))
            continue
        full = mean_tflops(timings, levels[0], direction)
        padded = mean_tflops(timings, levels[-1], direction)
        cells.append(Cell(f"{fixed((1 - padded / full) * 100, 1)} %"))
    return cells


def record(timing: KernelRow, found: dict[tuple[str, str], list[KernelRow]]) -> Sequence[object]:
    """A CSV row."""
    base = {row.shape: row.milliseconds for row in standard(found)}.get(timing.shape, math.nan)
    paper = reported()["tflops"]
    peak = paper["shape"]
    at_peak = (timing.padding, timing.head_dimension, timing.length) == (
        peak["padding"],
        peak["head_dimension"],
        peak["length"],
    )
    theirs = paper.get(timing.provider, {}).get(timing.direction) if at_peak else None
    return (
        timing.attention,
        timing.provider,
        timing.layout,
        timing.direction,
        timing.head_dimension,
        timing.heads,
        timing.length,
        timing.sequences,
        timing.padding,
        timing.dtype,
        timing.device,
        timing.milliseconds,
        timing.milliseconds_low,
        timing.milliseconds_high,
        timing.tflops,
        timing.tflops_low,
        timing.tflops_high,
        base / timing.milliseconds,
        theirs,
        timing.note,
    )


def training_cost(results: Results) -> Table:
    """GPU-hours of every size and context with both attentions, the paper's beside ours."""
    paper = {(row["size"], row["context"]): row for row in reported()["gpu_hours"]}
    found = costs(results)
    rows = []
    for cost in found:
        theirs = paper.get((cost.size, cost.context))
        arms = (cost.sigmoid, cost.softmax)
        low, high = cost.saved_interval
        best = min(arms, key=lambda arm: arm.gpu_hours)
        rows.append(
            [
                Cell(cost.size),
                Cell(f"{cost.sigmoid.parameters / 1e6:,.3g}M"),
                Cell(context_label(cost.context)),
                *(
                    Cell(
                        interval(
                            arm.gpu_hours,
                            arm.gpu_hours_low,
                            arm.gpu_hours_high,
                            significant(arm.gpu_hours),
                        ),
                        bold=arm is best,
                    )
                    for arm in arms
                ),
                Cell(f"{interval(cost.saved, low, high, 1)} %"),
                Cell(f"{theirs['sigmoid']:,} / {theirs['softmax']:,}" if theirs else DASH),
                Cell(f"{theirs['saved']} %" if theirs else DASH),
            ]
        )
    cells = results.config.benchmarks.throughput.projected_cells
    confidence = f"{results.config.benchmarks.throughput.confidence * 100:g} %"
    machine = device_words(results.machine("throughput"))
    return Table(
        caption=f"Training cost on {machine}. Hours of one device for {cells / 1e6:,.1f} million "
        f"cells, projected from the measured throughput, with {confidence} intervals; the lower in "
        "bold.",
        columns=(
            "size",
            "parameters",
            "context",
            "attention",
            "backend",
            "layout",
            "device",
            "cells_per_second",
            "gpu_hours",
            "gpu_hours_low",
            "gpu_hours_high",
            "readings",
            "projected_cells",
            "paper_gpu_hours",
            "note",
        ),
        records=[
            (
                row.size,
                row.parameters,
                row.context,
                row.attention,
                row.backend,
                row.layout,
                row.device,
                row.cells_per_second,
                row.gpu_hours,
                row.gpu_hours_low,
                row.gpu_hours_high,
                row.readings,
                row.projected_cells,
                paper.get((row.size, row.context), {}).get(row.attention),
                row.note,
            )
            for row in results.throughput
        ],
        header=(
            "Size",
            "Parameters",
            "Context",
            "Sigmoid",
            "Softmax",
            "Saved by sigmoid",
            "Sigmoid / softmax in the paper",
            "Saved in the paper",
        ),
        rows=rows,
        align="lrrccccc",
        latex_columns=(0, 1, 2, 3, 4, 5),
        notes=notes(results.throughput),
    )


def significant(value: float) -> int:
    """Digits after the point that leave at least three significant ones."""
    return max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
