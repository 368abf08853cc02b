"""The table of the MMD between cell types (tab:mmd_heart_oft)."""

import math
from collections.abc import Sequence

from scsigmoid.labels import ATTENTIONS, model_label
from scsigmoid.measurements import Interval
from scsigmoid.paper.quality import types
from scsigmoid.paper.reported import reported
from scsigmoid.report.tables.writing import ENDS, Cell, Table, fixed, interval, with_ends
from scsigmoid.results.folder import Results
from scsigmoid.results.mmd import (
    MEANS,
    Pair,
    estimators,
    mean_ratio,
    pair_rows,
)

NOTHING = Interval(math.nan)
COLUMNS = (
    *("pair", "estimator"),
    *(f"{name}{end}" for name in (*ATTENTIONS, "ratio", "difference") for end in ENDS),
    *("best", "cells", "simulated"),
    *(f"paper_{name}{end}" for name in ATTENTIONS for end in ENDS),
    *(f"{name}_bootstrap_mean" for name in ATTENTIONS),
)


def paper_pair(dataset: str, name: str) -> dict[str, Interval]:
    """Return the paper's MMD of a pair, named in either order, or nothing if it has none."""
    for row in reported()["mmd"].get(dataset, ()):
        if types(row["pair"]) == types(name):
            return {arm: Interval(*row[arm]) for arm in ATTENTIONS}
    return {}


def mmd(results: Results, dataset: str) -> Table:
    """Return the MMD of every pair of cell types in both models, by both estimators."""
    config = results.config
    pair = config.evaluation.pair
    settings = config.evaluation.mmd
    first, second = estimators(results)
    by_estimator = {name: pair_rows(results, dataset, name) for name in (first, second)}
    is_in_paper = any(paper_pair(dataset, row.name) for row in by_estimator[first])
    simulated = any(row.sigmoid.simulated for row in by_estimator[first])
    description = config.datasets[dataset].description
    title = config.datasets[dataset].title + (", simulated cells" if simulated else "")
    header = (
        "Cell type pair",
        *(model_label(config, name) for name in pair),
        *("Ratio", "Difference"),
        *(f"{config.models[name].attention.capitalize()}, {second}" for name in pair),
        f"Ratio, {second}",
        *(("Sigmoid in the paper", "Softmax in the paper") if is_in_paper else ()),
    )
    records: list[dict[str, object]] = []
    for name, rows in by_estimator.items():
        records += [record(dataset, row, pair) | {"estimator": name} for row in rows]
        for mean in MEANS:
            over = mean_ratio(results, dataset, mean, name)
            about = {"pair": mean, "estimator": name, "cells": over.n, "simulated": over.simulated}
            records.append(about | with_ends("ratio", over.interval))
    return Table(
        caption=f"MMD between cell types of {title}, with the {first} and then with the {second} "
        f"estimator: the estimate, in parentheses the mean over {settings.resamples:,} resamples, "
        "which the paper prints, and in brackets percentiles of the resamples. The percentiles are "
        f"a {settings.confidence * 100:g} % bootstrap interval for the unbiased estimator, but not "
        "for the biased one, whose resamples are above the estimate (docs/evaluation.md has the "
        "coverage of both). The higher MMD of each pair is bold. The ratio is sigmoid over "
        "softmax, the difference sigmoid minus softmax, paired by resample."
        f"{' ' * bool(description)}{description}",
        columns=COLUMNS,
        records=records,
        header=header,
        rows=[
            shown(dataset, row, other, is_in_paper)
            for row, other in zip(by_estimator[first], by_estimator[second], strict=True)
        ],
        latex_columns=4,
        notes=notes(results, dataset, by_estimator[first]),
    )


def record(dataset: str, row: Pair, pair: Sequence[str]) -> dict[str, object]:
    """Return a row of the CSV without its estimator."""
    paper = paper_pair(dataset, row.name)
    values: dict[str, object] = {
        "pair": row.name,
        "best": pair[0] if row.sigmoid.value > row.softmax.value else pair[1],
        "cells": row.sigmoid.n,
        "simulated": row.sigmoid.simulated,
        "sigmoid_bootstrap_mean": row.sigmoid_mean.value,
        "softmax_bootstrap_mean": row.softmax_mean.value,
    }
    for name in (*ATTENTIONS, "ratio", "difference"):
        values |= with_ends(name, getattr(row, name).interval)
    for name in ATTENTIONS:
        values |= with_ends(f"paper_{name}", paper.get(name, NOTHING))
    return values


def shown(dataset: str, row: Pair, other: Pair, is_in_paper: bool) -> list[Cell | str]:
    """Return a formatted row: the configured estimator, the other one, the paper."""
    ratio, difference, other_ratio = (
        interval(*one.interval, 3) for one in (row.ratio, row.difference, other.ratio)
    )
    cells: list[Cell | str] = [row.name, *arms(row), ratio, difference, *arms(other), other_ratio]
    if is_in_paper:
        paper = paper_pair(dataset, row.name)
        cells += [interval(*paper.get(arm, NOTHING), 3) for arm in ATTENTIONS]
    return cells


def arms(row: Pair) -> list[Cell]:
    """Return both models' MMD, the higher one bold, with the mean over resamples."""
    cells = []
    lower = min(row.sigmoid.value, row.softmax.value)
    for arm, mean in ((row.sigmoid, row.sigmoid_mean), (row.softmax, row.softmax_mean)):
        value, *rest = interval(*arm.interval, 3).split(" ", 1)
        words = " ".join([value, f"({fixed(mean.value, 3)})", *rest])
        cells.append(Cell(words, bold=arm.value > lower))
    return cells


def notes(results: Results, dataset: str, rows: Sequence[Pair]) -> list[str]:
    """Return notes on wins, mean improvements, and pairs without a value or an interval."""
    wins = sum(row.sigmoid.value > row.softmax.value for row in rows)
    lines = [f"Sigmoid has the higher MMD on {wins} of {len(rows)} pairs."]
    for mean, (_, name) in MEANS.items():
        words = []
        for estimator in estimators(results):
            ratio = mean_ratio(results, dataset, mean, estimator).interval
            above = ratio.map(lambda end: (end - 1) * 100)
            words.append(f"{interval(*above, 1, '+')} % ({estimator})")
        lines.append(f"Mean improvement as the {name}: {', '.join(words)}.")
    small = [row for row in results.measurements("mmd", dataset) if row.metric == "mmd_left_out"]
    if small:
        named = ", ".join(f"{row.group} ({row.value:.0f})" for row in small)
        least = results.config.evaluation.mmd.minimum_cells
        lines.append(f"Left out for having fewer than {least} cells: {named}.")
    unbiased = pair_rows(results, dataset, "unbiased")
    if tiny := [row.name for row in unbiased if math.isnan(row.sigmoid.low)]:
        lines.append(
            "Too few cells for an unbiased interval of the pair and of the means: "
            f"{', '.join(tiny)}."
        )
    return lines
