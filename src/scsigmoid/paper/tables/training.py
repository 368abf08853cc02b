"""Training side by side: our stack against padded ones and the other kernels."""

import math

from scsigmoid.benchmarks.rows import Interval, TrainingRow, median_interval
from scsigmoid.paper.labels import context_label, provider_label
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import device_words, sentence
from scsigmoid.paper.tables.writing import DASH, Cell, Table, fixed, interval


def training_speed(results: Results) -> Table:
    """Rate of each kernel and layout at each context, and ours over it."""
    settings = results.config.benchmarks.training
    confidence = f"{settings.confidence * 100:g} %"
    ours = fastest(results.training)
    ratios = [ratio(ours.get(row.context), row, settings.confidence) for row in results.training]
    machine = device_words(results.machine("training"))
    return Table(
        caption=f"Training the {settings.size} encoder on {machine}. Cells per second with "
        f"{settings.cells_per_gpu} cells a step, of log-normal lengths with median "
        f"{settings.median_length:,}; MFU is counted work on valid tokens over the peak. The last "
        "column is the rate of our packed sigmoid attention over the row's, the median over the "
        f"turns of one run, with its {confidence} interval.",
        columns=(
            "context",
            "attention",
            "kernel",
            "layout",
            "device",
            "padding",
            "cells_per_second",
            "cells_per_second_low",
            "cells_per_second_high",
            "milliseconds",
            "tokens_per_second",
            "mfu",
            "peak_memory_gb",
            "graphs",
            "recompiled",
            "turns",
            "ours",
            "ratio",
            "ratio_low",
            "ratio_high",
            "note",
        ),
        records=[
            (
                row.context,
                row.attention,
                row.kernel,
                row.layout,
                row.device,
                row.padding,
                row.cells_per_second,
                row.cells_per_second_low,
                row.cells_per_second_high,
                row.milliseconds,
                row.tokens_per_second,
                row.mfu,
                row.peak_memory_gb,
                row.graphs,
                row.recompiled,
                row.turns,
                ours[row.context].kernel if row.context in ours else "",
                *found,
                row.note,
            )
            for row, found in zip(results.training, ratios, strict=True)
        ],
        header=(
            "Context",
            "Kernel",
            "Layout",
            "Padding",
            "Cells per second",
            "MFU",
            "Memory, GB",
            "Ours over it",
        ),
        rows=[
            [
                Cell(context_label(row.context)),
                Cell(provider_label(row.kernel)),
                Cell(row.layout),
                Cell(percent(row.padding)),
                Cell(
                    interval(
                        row.cells_per_second, row.cells_per_second_low, row.cells_per_second_high, 0
                    ),
                    bold=row is ours.get(row.context),
                ),
                Cell(percent(row.mfu)),
                Cell(fixed(row.peak_memory_gb, 1)),
                Cell(interval(*found, 2)),
            ]
            for row, found in zip(results.training, ratios, strict=True)
            if row.turns
        ],
        align="rllrcrrc",
        notes=notes(results.training),
    )


def fastest(rows: list[TrainingRow]) -> dict[int, TrainingRow]:
    """Our packed sigmoid attention by context: its fastest path that was timed."""
    found: dict[int, TrainingRow] = {}
    for row in rows:
        if row.attention == "sigmoid" and row.layout == "packed" and row.turns:
            best = found.get(row.context)
            if best is None or row.milliseconds < best.milliseconds:
                found[row.context] = row
    return found


def ratio(ours: TrainingRow | None, row: TrainingRow, confidence: float) -> Interval:
    """Our rate over a row's, paired by turn; NaN for our own row and where one has no rate."""
    if ours is None or row is ours or not row.turns:
        return Interval(math.nan, math.nan, math.nan)
    return median_interval(ours.over(row), confidence)


def percent(share: float) -> str:
    """A share in whole percent."""
    return DASH if math.isnan(share) else f"{share * 100:.0f} %"


def notes(rows: list[TrainingRow]) -> list[str]:
    """The rows' notes, each once; what has no rate is named with its note."""
    found: dict[str, None] = {}
    for row in rows:
        if not row.turns:
            name = f"{provider_label(row.kernel)}, {row.layout}, at {context_label(row.context)}"
            found[f"Not timed: {name} ({row.note})."] = None
        elif row.note:
            found[sentence(row.note)] = None
    return list(found)
