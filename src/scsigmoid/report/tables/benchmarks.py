"""Tables of the speed of attention kernels (fig:tflops) and of training (fig:throughput)."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow, Shape, TrainingGroup, TrainingRow, median_interval
from scsigmoid.kernels import OURS
from scsigmoid.labels import PASSES, context_label, provider_label, series_label
from scsigmoid.measurements import Interval
from scsigmoid.paper.reported import reported
from scsigmoid.report.tables.writing import (
    DASH,
    TIMES,
    Cell,
    Table,
    fixed,
    interval,
    picked,
    significant,
    with_ends,
)
from scsigmoid.results.folder import Results
from scsigmoid.results.speed import (
    CELLS,
    PAPER,
    STANDARD,
    Cost,
    Series,
    cost_notes,
    cost_rows,
    costs,
    device_words,
    hours_of,
    mean_tflops,
    notes,
    our_path,
    paired,
    ratio_of,
    sentence,
    series,
    speed_ups,
)

#: A provider and its layout; see :func:`scsigmoid.results.speed.series`.
Key = tuple[str, str]


def kernel_speed(results: Results) -> Table:
    """Return TFLOPS by shape and kernel, speed-ups over standard attention, the cost of padding."""
    found = series(results, (*PAPER, *CELLS))
    every = sorted({timing.shape for timings in found.values() for timing in timings})
    shapes = [shape for shape in every if shape.batch in PAPER]
    rows: list[list[Cell | str]] = []
    for padding in sorted({shape.padding for shape in shapes}):
        for direction in PASSES:
            rows.append([f"TFLOPS, {direction}, {padding * 100:g} % padding"])
            rows += [
                shape_row(shape, found)
                for shape in shapes
                if (shape.padding, shape.direction) == (padding, direction)
            ]
            rows.append(speed_up_row(found, padding, direction))
    rows.append(["Decrease of the mean TFLOPS by padding"])
    rows += [padding_row(found, direction) for direction in PASSES]
    for direction in PASSES:
        cells = [one for one in every if one.batch in CELLS and one.direction == direction]
        if cells:
            rows.append([f"TFLOPS, {direction}, {cells_words(results)}"])
            rows += [shape_row(shape, found) for shape in cells]
    machine = device_words(results.machine("kernel"))
    confidence = results.config.benchmarks.kernel.confidence * 100
    return Table(
        caption=f"Speed of the attention kernels on {machine}. TFLOPS of each shape (higher is "
        "better), the fastest in bold, and the mean speed-up over standard PyTorch attention with "
        "its range. With padding, lengths are uniform between the length minus that share and the "
        f"length. The CSV has the times and their {confidence:g} % intervals, the operations "
        "that each kernel runs, and the time of a call from Python.",
        records=[kernel_record(timing, found) for timing in results.kernel],
        header=(f"Head dimension {TIMES} length", *(series_label(key, found) for key in found)),
        rows=rows,
        align="l" + "c" * len(found),
        notes=[*conditions(results.kernel), *notes(results.kernel)],
    )


def cells_words(results: Results) -> str:
    """Return a phrase on the batches that are not the paper's shapes."""
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
    """Return a sentence on clock and power of the GPU during the benchmark, if there was one."""
    found = []
    for name, unit, values in (
        ("clock", "MHz", [row.clock_mhz for row in rows]),
        ("power", "W", [row.power_w for row in rows]),
    ):
        seen = [value for value in values if not math.isnan(value)]
        if seen:
            found.append(f"{name} {min(seen):,.0f} to {max(seen):,.0f} {unit}")
    return [f"Medians while each group of shapes was timed: {', '.join(found)}."] if found else []


def shape_row(shape: Shape, found: Series) -> list[Cell | str]:
    """Return a row of the TFLOPS of every series at one shape."""
    values = [
        next((timing.tflops for timing in timings if timing.shape == shape), math.nan)
        for timings in found.values()
    ]
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    digits = significant(best)
    return [
        f"{shape.head_dimension} {TIMES} {shape.length:,}",
        *(Cell(fixed(value, digits), bold=value == best) for value in values),
    ]


def speed_up_row(found: Series, padding: float, direction: str) -> list[Cell | str]:
    """Return a row of the mean speed-ups over standard PyTorch attention with their ranges."""
    cells: list[Cell | str] = ["Speed-up over PyTorch, mean [range]"]
    for timings in found.values():
        values = speed_ups(timings, standard(found), padding, direction)
        if values:
            cells.append(interval(sum(values) / len(values), min(values), max(values), 2))
        else:
            cells.append(DASH)
    return cells


def standard(found: Series) -> list[KernelRow]:
    """Return the timings of standard PyTorch attention."""
    return [timing for (name, _), rows in found.items() if name == STANDARD for timing in rows]


def padding_row(found: Series, direction: str) -> list[Cell | str]:
    """Return a row of the decrease of the mean TFLOPS by padding, in percent."""
    cells: list[Cell | str] = [direction.capitalize()]
    for timings in found.values():
        levels = sorted({timing.padding for timing in timings if timing.batch in PAPER})
        if len(levels) < 2:
            cells.append(DASH)
            continue
        full, padded = (mean_tflops(timings, levels[end], direction) for end in (0, -1))
        cells.append(f"{fixed((1 - padded / full) * 100, 1)} %")
    return cells


def kernel_record(timing: KernelRow, found: Series) -> dict[str, object]:
    """Return a CSV row: the timing, its speed-up over PyTorch, the paper's TFLOPS at the peak."""
    base = {row.shape: row.milliseconds for row in standard(found)}.get(timing.shape, math.nan)
    paper = reported()["tflops"]
    at_peak = timing.batch in PAPER and all(
        getattr(timing, name) == paper["shape"][name]
        for name in ("padding", "head_dimension", "length")
    )
    theirs = paper.get(timing.provider, {}).get(timing.direction) if at_peak else None
    return {
        **picked(timing, "attention provider layout"),
        "pass": timing.direction,
        **picked(timing, "batch head_dimension heads length sequences padding tokens dtype device"),
        **picked(timing, "milliseconds milliseconds_low milliseconds_high"),
        **picked(timing, "tflops tflops_low tflops_high executed_tflops"),
        "speed_up_over_pytorch": base / timing.milliseconds,
        "paper_tflops": theirs,
        **picked(timing, "timing call_milliseconds iterations checked relative_error"),
        **picked(timing, "clock_mhz power_w note"),
    }


def kernel_ratios(results: Results) -> Table:
    """Return the TFLOPS of our kernel over those of every other kernel, without padding."""
    confidence = results.config.benchmarks.kernel.confidence
    found = {
        key: {timing.shape: timing for timing in timings if not timing.padding}
        for key, timings in series(results, (*PAPER, CELLS[0])).items()
    }
    path = our_path(results)
    ours = [key for key in found if key in product((path, f"{path}_accurate"), ("", "packed"))]
    others = [key for key in found if key[0].removesuffix("_accurate") not in OURS]
    ratios: dict[tuple[Key, Key, Shape], float] = {}
    records: list[tuple[object, ...]] = []
    for mine, other in product(ours, others):
        for shape, timing in found[mine].items():
            theirs = found[other].get(shape)
            if theirs is None or not (rounds := len(paired(timing, theirs))):
                continue
            ratio = ratio_of(timing, theirs, confidence)
            ratios[mine, other, shape] = ratio.value
            kernels = (timing.provider, timing.layout, theirs.provider, theirs.layout)
            where = (shape.direction, shape.batch, shape.head_dimension, shape.length)
            records.append((*kernels, *where, timing.tflops, theirs.tflops, *ratio, rounds))
    shapes = {shape for _, _, shape in ratios}
    columns = sorted({(one.batch, one.length) for one in shapes}, key=lambda c: (c[0] in CELLS, c))
    rows: list[list[Cell | str]] = []
    for mine, dimension in product(ours, sorted({one.head_dimension for one in shapes})):
        rows.append([f"{series_label(mine, found)}, head dimension {dimension}, over"])
        for other in others:
            values = [
                [ratios.get((mine, other, Shape(batch, 0.0, dimension, length, way)), math.nan)
                 for way in PASSES]
                for batch, length in columns
            ]  # fmt: skip
            if not np.isnan(values).all():
                cells = [" / ".join(fixed(value, 2) for value in both) for both in values]
                rows.append([series_label(other, found), *cells])
    machine = device_words(results.machine("kernel"))
    return Table(
        caption=f"Our attention kernel against others on {machine}: ratios of TFLOPS without "
        "padding, forward / backward, by sequence length. Above 1 ours is faster. A ratio is the "
        "median over the rounds of one run, each of which timed both kernels. The CSV has its "
        f"{confidence * 100:g} % interval.",
        columns=(
            *("ours", "ours_layout", "theirs", "theirs_layout"),
            *("pass", "batch", "head_dimension", "length", "ours_tflops", "theirs_tflops"),
            *("ratio", "ratio_low", "ratio_high", "rounds"),
        ),
        records=records,
        header=(
            "Length",
            *(
                f"cells, up to {context_label(length)}" if batch in CELLS else context_label(length)
                for batch, length in columns
            ),
        ),
        rows=rows,
        align="l" + "c" * len(columns),
        notes=notes(results.kernel),
    )


def training_cost(results: Results) -> Table:
    """Return the GPU-hours of every size and context, next to the paper's."""
    paper = {(row["size"], row["context"]): row for row in reported()["gpu_hours"]}
    rows: list[list[Cell | str]] = []
    for cost in costs(results):
        theirs = paper.get((cost.size, cost.context))
        arms = (cost.sigmoid, cost.softmax)
        best = min(arms, key=lambda arm: arm.gpu_hours)
        rows.append(
            [
                cost.size,
                millions(cost.sigmoid.parameters),
                context_label(cost.context),
                *(
                    Cell(interval(*hours_of(arm), significant(arm.gpu_hours)), bold=arm is best)
                    for arm in arms
                ),
                more_or_fewer(cost),
                f"{theirs['sigmoid']:,} / {theirs['softmax']:,}" if theirs else DASH,
                f"{theirs['saved']} % fewer" if theirs else DASH,
            ]
        )
    settings = results.config.benchmarks.training
    measured = cost_rows(results)
    return Table(
        caption=f"Training cost on {device_words(results.machine('training'))}. Hours of one "
        f"device for {settings.projected_cells / 1e6:,.1f} million cells, extrapolated from "
        f"the measured time of a step, with {settings.confidence * 100:g} % intervals. The lower "
        "hours are bold.",
        records=[
            {
                **picked(row, "size parameters context cells_per_step attention kernel layout"),
                **picked(row, "device cells_per_second gpu_hours gpu_hours_low gpu_hours_high"),
                **picked(row, "rounds projected_cells cuda_graphs host_bound"),
                "paper_gpu_hours": paper.get((row.size, row.context), {}).get(row.attention),
                "note": row.note,
            }
            for row in measured
        ],
        header=(
            *("Size", "Parameters", "Context", "Sigmoid", "Softmax", "Sigmoid takes"),
            *("Sigmoid / softmax in the paper", "Sigmoid takes in the paper"),
        ),
        rows=rows,
        align="lrrccccc",
        latex_columns=6,
        notes=cost_notes(results),
    )


def more_or_fewer(cost: Cost) -> str:
    """Return how many more or fewer hours sigmoid takes, in percent of softmax's."""
    saved = cost.saved
    if saved.value < 0:
        return f"{interval(-saved.value, -saved.high, -saved.low, 1)} % more"
    return f"{interval(saved.value, saved.low, saved.high, 1)} % fewer"


def millions(count: float) -> str:
    """Return a number of parameters, e.g. ``"1,402M"`` and ``"0.05M"``."""
    value = count / 1e6
    return f"{value:,.0f}M" if value >= 100 else f"{value:.3g}M"


def training_speed(results: Results) -> Table:
    """Return the rate of each kernel and layout, and our rate over it."""
    settings = results.config.benchmarks.training
    ours = fastest(results.training)
    best: dict[TrainingGroup, float] = {}
    for row in results.training:
        if row.rounds:
            best[row.group] = max(best.get(row.group, 0.0), row.cells_per_second)
    rows: list[list[Cell | str]] = []
    records = []
    for row in results.training:
        own = ours.get(row.group)
        ratio = rate_ratio(own, row, settings.confidence)
        records.append(
            {
                **picked(row, "size parameters context cells_per_step attention kernel layout"),
                **picked(row, "device padding cells_per_second cells_per_second_low"),
                **picked(row, "cells_per_second_high milliseconds tokens_per_second mfu"),
                **picked(row, "peak_memory_gb cuda_graphs host_bound compiled recompiled rounds"),
                "ours": own.kernel if own else "",
                **with_ends("ratio", ratio),
                "note": row.note,
            }
        )
        if row.rounds:
            rate = row.cells_per_second, row.cells_per_second_low, row.cells_per_second_high
            rows.append(
                [
                    row.size,
                    context_label(row.context),
                    str(row.cells_per_step),
                    provider_label(row.kernel),
                    row.layout,
                    percent(row.padding),
                    Cell(interval(*rate, 0), bold=rate[0] == best[row.group]),
                    percent(row.mfu),
                    fixed(row.peak_memory_gb, 1),
                    interval(*ratio, 2),
                ]
            )
    return Table(
        caption=f"Training on {device_words(results.machine('training'))} with each attention "
        "kernel. Cells per second, the highest of a size, context and number of cells in bold; "
        f"cells have log-normal lengths with median {settings.median_length:,}. MFU: counted "
        "operations on valid tokens over the peak. The last column is the rate of our packed "
        "sigmoid attention over the row's, the median over the rounds of one run, with its "
        f"{settings.confidence * 100:g} % interval.",
        records=records,
        header=(
            *("Size", "Context", "Cells a step", "Kernel", "Layout", "Padding"),
            *("Cells per second", "MFU", "Memory, GB", "Ours over it"),
        ),
        rows=rows,
        align="lrrllrcrrc",
        notes=training_notes(results.training),
    )


def fastest(rows: list[TrainingRow]) -> dict[TrainingGroup, TrainingRow]:
    """Return the fastest of our packed sigmoid kernels in each group."""
    fastest_rows: dict[TrainingGroup, TrainingRow] = {}
    for row in rows:
        if row.attention == "sigmoid" and row.layout == "packed" and row.rounds:
            known = fastest_rows.get(row.group, row)
            fastest_rows[row.group] = min(known, row, key=lambda one: one.milliseconds)
    return fastest_rows


def rate_ratio(ours: TrainingRow | None, row: TrainingRow, confidence: float) -> Interval:
    """Return our rate over a row's, paired by round, or NaN for our own row or without a rate."""
    if ours is None or row is ours or not row.rounds:
        return Interval(math.nan)
    return median_interval(ours.over(row), confidence)


def percent(share: float) -> str:
    """Return a share in percent, or a dash."""
    return DASH if math.isnan(share) else f"{share * 100:.0f} %"


def training_notes(rows: list[TrainingRow]) -> list[str]:
    """Return the notes of the rows, each once, with the names of the rows unless all have it."""
    lines = []
    names: dict[str, list[str]] = {}
    for row in rows:
        name = (
            f"{provider_label(row.kernel)}, {row.layout}, {row.size} at "
            f"{context_label(row.context)}, {row.cells_per_step} cells"
        )
        if not row.rounds:
            lines.append(f"Not timed: {name} ({row.note}).")
        elif row.note:
            names.setdefault(row.note, []).append(name)
    timed = sum(row.rounds > 0 for row in rows)
    for note, those in names.items():
        lines.append(sentence(note) if len(those) == timed else f"{note}: {'; '.join(those)}.")
    return lines
