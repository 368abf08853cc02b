"""Tables of the speed of attention kernels and of training."""

import math
from itertools import product
from statistics import fmean

from scsigmoid.benchmarks.rows import Shape, TrainingGroup, TrainingRow, median_interval
from scsigmoid.paper.reported import reported, size_in_paper
from scsigmoid.records.measurements import Interval
from scsigmoid.report.tables.writing import (
    DASH,
    TIMES,
    Cell,
    Table,
    decimals_for,
    excludes_zero,
    fixed,
    interval,
    millions,
    pick,
)
from scsigmoid.results import speed
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import (
    PASSES,
    context_label,
    four_digits,
    provider_label,
    series_label,
)
from scsigmoid.results.speed import CELL_BATCHES, PAPER_BATCHES, STANDARD, Cost, estimate, ratio_of


def kernel_speed(results: Results) -> Table:
    by_series = speed.series(results, (*PAPER_BATCHES, *CELL_BATCHES))
    shapes = sorted({timed.shape for timed_rows in by_series.values() for timed in timed_rows})
    paper_shapes = [shape for shape in shapes if shape.batch in PAPER_BATCHES]
    cell_shapes = [shape for shape in shapes if shape.batch in CELL_BATCHES]
    rows: list[list[Cell | str]] = []
    for panel in product(sorted({shape.padding for shape in paper_shapes}), PASSES):
        padding, direction = panel
        rows.append([f"TFLOPS, {direction}, {padding * 100:g} % padding"])
        selected = [shape for shape in paper_shapes if (shape.padding, shape.direction) == panel]
        rows += [shape_row(shape, by_series) for shape in selected]
        rows.append(speed_up_row(by_series, padding, direction))
    for direction in PASSES:
        if selected := [shape for shape in cell_shapes if shape.direction == direction]:
            rows.append([cell_batches_title(results, direction)])
            rows += [shape_row(shape, by_series) for shape in selected]
    machine = speed.device_name(results, "kernel")
    confidence = results.config.benchmarks.kernel.confidence * 100
    return Table(
        caption=f"Speed of the attention kernels on {machine}. TFLOPS on valid tokens, median over "
        "timed rounds. Higher is better, and the fastest kernel of each shape is bold. Speed-ups "
        "over standard PyTorch attention are means over the lengths and head dimensions above, "
        "with the lowest and highest in brackets. With 25 % padding, lengths are uniform between "
        "75 and 100 % of the length shown. The CSV file also has the times with their "
        f"{confidence:g} % intervals, the TFLOPS of our packed kernel divided by the TFLOPS of "
        "each kernel (median over rounds), and the time of a single call from Python.",
        records=kernel_records(results),
        header=(
            f"Head dimension {TIMES} length",
            *(series_label(key, by_series) for key in by_series),
        ),
        rows=rows,
        notes=speed.notes(results.kernel_rows, speed.kernel_label),
    )


def cell_batches_title(results: Results, direction: str) -> str:
    """Return the title above the rows of ``jagged`` and ``even`` batches."""
    lengths = {"jagged": "cells' lengths, up to {:,}", "even": "{:,} tokens"}
    descriptions = {  # by batch, because all rows of a batch have the same sequences
        row.batch: f"{row.sequences} sequences of {lengths[row.batch].format(row.length)}"
        for row in results.kernel_rows
        if row.batch in lengths
    }
    return f"TFLOPS, {direction}, {' and '.join(descriptions.values())}"


def shape_row(shape: Shape, by_series: speed.Series) -> list[Cell | str]:
    """Return a row with the TFLOPS of every series at a shape. The highest are bold."""
    values = [
        next((timed.tflops for timed in timed_rows if timed.shape == shape), math.nan)
        for timed_rows in by_series.values()
    ]
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    cells = [Cell(fixed(value, decimals_for(best)), bold=value == best) for value in values]
    return [f"{shape.head_dimension} {TIMES} {shape.length:,}", *cells]


def speed_up_row(by_series: speed.Series, padding: float, direction: str) -> list[Cell | str]:
    """Return a row with the mean speed-up of every series over PyTorch, and the range."""
    standard = [row for key, rows in by_series.items() if key[0] == STANDARD for row in rows]
    cells: list[Cell | str] = ["Speed-up over PyTorch, mean [range]"]
    for timed_rows in by_series.values():
        values = speed.speed_ups(timed_rows, standard, padding, direction)
        cells.append(interval(fmean(values), min(values), max(values), 2) if values else DASH)
    return cells


def kernel_records(results: Results) -> list[dict[str, object]]:
    """Return the rows of the kernel benchmark, with the paper's TFLOPS and with ratios."""
    paper, confidence = reported()["tflops"], results.config.benchmarks.kernel.confidence
    peak_shape = paper["shape"] | {"batch": "paper"}  # the only shape with TFLOPS in the paper
    timed = speed.timed_rows(results.kernel_rows)
    standard_time = {row.shape: row.milliseconds for row in timed if row.provider == STANDARD}
    our_series = (speed.our_backend(results), "packed")
    our_rows = {row.shape: row for row in timed if (row.provider, row.layout) == our_series}
    records = []
    for row in results.kernel_rows:
        is_peak = peak_shape.items() <= vars(row).items()  # the row has all values of `peak_shape`
        paper_tflops = paper.get(row.provider, {}).get(row.direction) if is_peak else None
        ours = our_rows.get(row.shape) if row.milliseconds > 0 else None
        ratio = ratio_of(ours, row, confidence) if ours and ours is not row else Interval(math.nan)
        records.append(
            {
                **pick(row, "attention provider layout"),
                "pass": row.direction,
                **pick(row, "batch head_dimension heads length sequences padding tokens dtype"),
                **pick(row, "device milliseconds milliseconds_low milliseconds_high"),
                **pick(row, "tflops tflops_low tflops_high"),
                "speed_up_over_pytorch": standard_time.get(row.shape, math.nan) / row.milliseconds,
                "paper_tflops": paper_tflops,
                "ours": ours.provider if ours else "",
                **ratio.columns("ratio"),
                **pick(row, "timing call_milliseconds iterations checked relative_error note"),
            }
        )
    return records


def training_cost(results: Results) -> Table:
    paper = {(row["size"], row["context"]): row for row in reported()["gpu_hours"]}
    rows: list[list[Cell | str]] = []
    for cost in speed.costs(results):
        paper_row = paper.get((size_in_paper(cost.sigmoid.parameters), cost.context))
        arms = (cost.sigmoid, cost.softmax)
        lower = min(arms, key=lambda arm: arm.gpu_hours)
        # The median of the rounds may have another sign than the difference of the medians.
        is_agreed = (cost.saved_percent.value > 0) == (lower is cost.sigmoid)
        best = lower if excludes_zero(cost.saved_percent) and is_agreed else None
        hours = [interval(*estimate(arm, "gpu_hours"), decimals_for(arm.gpu_hours)) for arm in arms]
        rows.append(
            [
                cost.size,
                millions(cost.sigmoid.parameters),
                context_label(cost.context),
                *(Cell(text, bold=arm is best) for arm, text in zip(arms, hours, strict=True)),
                more_or_fewer(cost),
                f"{paper_row['sigmoid']:,} / {paper_row['softmax']:,}" if paper_row else DASH,
                f"{paper_row['saved']} % fewer" if paper_row else DASH,
            ]
        )
    settings, machine = results.config.benchmarks.training, speed.device_name(results, "training")
    return Table(
        caption=f"Training cost on {machine}. Hours that one device needs to train on "
        f"{four_digits(settings.projected_cells / 1e6)} million cells, extrapolated from the "
        "median time of a step over timed rounds. Brackets are "
        f"{settings.confidence * 100:g} % intervals of the median. Percentages compare both "
        "arms in the same rounds. The lower hours of a pair are bold if the interval "
        "of the percentage excludes 0.",
        records=[
            {
                **pick(row, "size parameters context cells_per_step attention kernel layout"),
                **pick(row, "device cells_per_second gpu_hours gpu_hours_low gpu_hours_high"),
                **pick(row, "rounds projected_cells cuda_graphs host_bound"),
                "paper_gpu_hours": paper.get((size_in_paper(row.parameters), row.context), {}).get(
                    row.attention
                ),
                "note": row.note,
            }
            for row in speed.cost_rows(results)
        ],
        header=(
            *("Size", "Parameters", "Context", "Sigmoid", "Softmax", "Sigmoid takes"),
            *("Sigmoid / softmax in the paper", "Sigmoid takes in the paper"),
        ),
        rows=rows,
        align="lrr",
        notes=speed.cost_notes(results),
    )


def more_or_fewer(cost: Cost) -> str:
    """Return how many percent more or fewer hours sigmoid takes than softmax, as text."""
    saved = cost.saved_percent
    if saved.value < 0:
        return f"{interval(-saved.value, -saved.high, -saved.low, 1)} % more"
    return f"{interval(saved.value, saved.low, saved.high, 1)} % fewer"


def training_speed(results: Results) -> Table:
    settings = results.config.benchmarks.training
    our_rows = our_fastest(results.training_rows)
    best: dict[TrainingGroup, float] = {}  # highest cells per second
    for row in results.training_rows:
        if row.rounds:
            best[row.group] = max(best.get(row.group, 0.0), row.cells_per_second)
    rows: list[list[Cell | str]] = []
    records = []
    for row in results.training_rows:
        ours = our_rows.get(row.group)
        ratios = ours.over(row) if ours and ours is not row else []  # one for each round
        ratio = median_interval(ratios, settings.confidence)
        records.append(
            {
                **pick(row, "size parameters context cells_per_step attention kernel layout"),
                **pick(row, "device padding cells_per_second cells_per_second_low"),
                **pick(row, "cells_per_second_high milliseconds tokens_per_second mfu"),
                **pick(row, "peak_memory_gb cuda_graphs host_bound compiled recompiled rounds"),
                "ours": ours.kernel if ours else "",
                **ratio.columns("ratio"),
                "note": row.note,
            }
        )
        if row.rounds:
            rate = estimate(row, "cells_per_second")
            rows.append(
                [
                    row.size,
                    context_label(row.context),
                    str(row.cells_per_step),
                    provider_label(row.kernel),
                    row.layout,
                    percent(row.padding),
                    Cell(interval(*rate, 0), bold=rate.value == best[row.group]),
                    percent(row.mfu),
                    fixed(row.peak_memory_gb, 1),
                    interval(*ratio, 2),
                ]
            )
    machine = speed.device_name(results, "training")
    return Table(
        caption=f"Training speed on {machine} with each attention kernel, on simulated cells with "
        f"log-normal lengths (median {settings.median_length:,} tokens). Cells per second: median "
        "over timed rounds, the highest of a size, context and number of cells in bold. MFU (model "
        "FLOPs utilization): operations on valid tokens in percent of the GPU's peak. Memory: peak "
        "of a step. Last column: rate of our packed sigmoid attention divided by the rate of the "
        f"row, median over rounds. Brackets are {settings.confidence * 100:g} % intervals of the "
        "median.",
        records=records,
        header=(
            *("Size", "Context", "Cells per step", "Kernel", "Layout", "Padding"),
            *("Cells per second", "MFU", "Memory, GB", "Ours / this kernel"),
        ),
        rows=rows,
        align="lrrllrcrrc",
        notes=speed.notes(results.training_rows, training_label),
    )


def our_fastest(rows: list[TrainingRow]) -> dict[TrainingGroup, TrainingRow]:
    """Return the fastest row of each group among our packed sigmoid kernels."""
    packed = ("sigmoid", "packed")
    timed = [row for row in rows if (row.attention, row.layout) == packed and row.rounds]
    by_group: dict[TrainingGroup, TrainingRow] = {}
    for row in sorted(timed, key=lambda row: row.milliseconds):
        by_group.setdefault(row.group, row)  # does not replace a faster row
    return by_group


def percent(share: float) -> str:
    return DASH if math.isnan(share) else f"{share * 100:.0f} %"


def training_label(row: TrainingRow) -> str:
    context = context_label(row.context)
    kernel = provider_label(row.kernel)
    return f"{kernel}, {row.layout}, {row.size} at {context}, {row.cells_per_step} cells"
