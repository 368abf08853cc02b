"""Speed of the attention kernels (fig:tflops)."""

import math
from collections.abc import Sequence

from scsigmoid.benchmarks.rows import KernelRow, Shape
from scsigmoid.paper.labels import provider_label
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import (
    CELLS,
    PAPER,
    STANDARD,
    device_words,
    mean_tflops,
    notes,
    series,
    speed_ups,
)
from scsigmoid.paper.tables.writing import (
    DASH,
    TIMES,
    Cell,
    Table,
    fixed,
    interval,
    significant,
)

PASSES = ("forward", "backward")


def kernel_speed(results: Results) -> Table:
    """TFLOPS by shape and provider, speed-ups over standard PyTorch attention, padding's cost."""
    found = series(results, (*PAPER, *CELLS))
    every = sorted({timing.shape for timings in found.values() for timing in timings})
    shapes = [shape for shape in every if shape.batch in PAPER]
    rows: list[list[Cell]] = []
    for padding in sorted({shape.padding for shape in shapes}):
        for direction in PASSES:
            rows.append([Cell(f"TFLOPS, {direction}, {padding * 100:g} % padding")])
            rows += [
                shape_row(shape, found)
                for shape in shapes
                if (shape.padding, shape.direction) == (padding, direction)
            ]
            rows.append(speed_up_row(found, padding, direction))
    rows.append([Cell("Decrease of the mean TFLOPS by padding")])
    rows += [padding_row(found, direction) for direction in PASSES]
    for direction in PASSES:
        cells = [one for one in every if one.batch in CELLS and one.direction == direction]
        if cells:
            rows.append([Cell(f"TFLOPS, {direction}, {cells_words(results)}")])
            rows += [shape_row(shape, found) for shape in cells]
    machine = device_words(results.machine("kernel"))
    confidence = results.config.benchmarks.kernel.confidence * 100
    return Table(
        caption=f"Speed of the attention kernels on {machine}. TFLOPS of each shape (higher is "
        "better), the fastest in bold, and the mean speed-up over standard PyTorch attention with "
        "its range. Padding: lengths lie uniformly between that share below the length and the "
        f"length. The CSV has the times and their {confidence:g} % intervals, the operations "
        "that each kernel runs, and the time of a call from Python.",
        columns=(
            "attention",
            "provider",
            "layout",
            "pass",
            "batch",
            "head_dimension",
            "heads",
            "length",
            "sequences",
            "padding",
            "tokens",
            "dtype",
            "device",
            "milliseconds",
            "milliseconds_low",
            "milliseconds_high",
            "tflops",
            "tflops_low",
            "tflops_high",
            "executed_tflops",
            "speed_up_over_pytorch",
            "paper_tflops",
            "timing",
            "call_milliseconds",
            "iterations",
            "checked",
            "relative_error",
            "clock_mhz",
            "power_w",
            "note",
        ),
        records=[record(timing, found) for timing in results.kernel],
        header=(f"Head dimension {TIMES} length", *(series_label(key, found) for key in found)),
        rows=rows,
        align="l" + "c" * len(found),
        notes=[*conditions(results.kernel), *notes(results.kernel)],
    )


def cells_words(results: Results) -> str:
    """What the batches beside the paper's shapes are."""
    ends = {
        (timing.batch, timing.sequences, timing.length)
        for timing in results.kernel
        if timing.batch in CELLS
    }
    return " and ".join(
        f"{sequences} sequences of "
        + (f"cells' lengths, up to {length:,}" if batch == CELLS[0] else f"{length:,} tokens each")
        for batch, sequences, length in sorted(ends, key=lambda end: CELLS.index(end[0]))
    )


def conditions(rows: Sequence[KernelRow]) -> list[str]:
    """Clock and power of the GPU, as seen while the shapes were timed; nothing without a GPU."""
    found = []
    for name, unit, values in (
        ("clock", "MHz", [row.clock_mhz for row in rows]),
        ("power", "W", [row.power_w for row in rows]),
    ):
        seen = [value for value in values if not math.isnan(value)]
        if seen:
            found.append(f"{name} {min(seen):,.0f} to {max(seen):,.0f} {unit}")
    return [f"Medians while each group of shapes was timed: {', '.join(found)}."] if found else []


def series_label(key: tuple[str, str], found: dict[tuple[str, str], list[KernelRow]]) -> str:
    """A provider's label, with the layout where it was timed in several."""
    provider, layout = key
    several = sum(name == provider for name, _ in found) > 1
    return provider_label(provider) + (f", {layout}" if several else "")


def shape_row(shape: Shape, found: dict[tuple[str, str], list[KernelRow]]) -> list[Cell]:
    """TFLOPS of every series at one shape."""
    values = []
    for timings in found.values():
        at_shape = [timing.tflops for timing in timings if timing.shape == shape]
        values.append(at_shape[0] if at_shape else math.nan)
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    digits = significant(best)
    return [
        Cell(f"{shape.head_dimension} {TIMES} {shape.length:,}"),
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
        levels = sorted({timing.padding for timing in timings if timing.batch in PAPER})
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
    at_peak = timing.batch in PAPER and (
        timing.padding,
        timing.head_dimension,
        timing.length,
    ) == (peak["padding"], peak["head_dimension"], peak["length"])
    theirs = paper.get(timing.provider, {}).get(timing.direction) if at_peak else None
    return (
        timing.attention,
        timing.provider,
        timing.layout,
        timing.direction,
        timing.batch,
        timing.head_dimension,
        timing.heads,
        timing.length,
        timing.sequences,
        timing.padding,
        timing.tokens,
        timing.dtype,
        timing.device,
        timing.milliseconds,
        timing.milliseconds_low,
        timing.milliseconds_high,
        timing.tflops,
        timing.tflops_low,
        timing.tflops_high,
        timing.executed_tflops,
        base / timing.milliseconds,
        theirs,
        timing.timing,
        timing.call_milliseconds,
        timing.iterations,
        timing.checked,
        timing.relative_error,
        timing.clock_mhz,
        timing.power_w,
        timing.note,
    )
