"""What training costs (fig:throughput)."""

from scsigmoid.paper.labels import context_label
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import costs, device_words, notes
from scsigmoid.paper.tables.writing import DASH, Cell, Table, interval, significant


def training_cost(results: Results) -> Table:
    """GPU-hours of every size and context with both attentions, the paper's beside ours."""
    paper = {(row["size"], row["context"]): row for row in reported()["gpu_hours"]}
    found = costs(results)
    rows = []
    for cost in found:
        theirs = paper.get((cost.size, cost.context))
        arms = (cost.sigmoid, cost.softmax)
        best = min(arms, key=lambda arm: arm.gpu_hours)
        rows.append(
            [
                Cell(cost.size),
                Cell(millions(cost.sigmoid.parameters)),
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
                Cell(f"{interval(cost.saved.value, cost.saved.low, cost.saved.high, 1)} %"),
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


def millions(count: float) -> str:
    """A number of parameters, e.g. ``"1,402M"`` and ``"0.05M"``."""
    value = count / 1e6
    return f"{value:,.0f}M" if value >= 100 else f"{value:.3g}M"
