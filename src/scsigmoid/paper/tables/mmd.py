"""Pairwise MMD between cell types (tab:mmd_heart_oft)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scsigmoid.measurements import Measurement
from scsigmoid.paper.labels import model_label
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.writing import DASH, Cell, Table, fixed, interval, signed

NAN = float("nan")
ESTIMATORS = ("unbiased", "biased")
ENDS = ("", "_low", "_high")
# Name of the mean: the end of its metric, and the words for it.
MEANS = {
    "ratio_of_means": ("mean_ratio_of_means", "ratio of the means"),
    "mean_of_ratios": ("mean_of_ratios", "mean of the pairs' ratios"),
    "over_resamples": ("bootstrap_mean_ratio_of_means", "ratio of the means over resamples"),
}
COLUMNS = (
    *("pair", "estimator"),
    *(f"{name}{end}" for name in ("sigmoid", "softmax", "ratio", "difference") for end in ENDS),
    *("best", "cells", "simulated"),
    *(f"paper_{name}{end}" for name in ("sigmoid", "softmax") for end in ENDS),
    *("sigmoid_bootstrap_mean", "softmax_bootstrap_mean"),
)


@dataclass(frozen=True)
class Pair:
    """The MMD of one pair of cell types in both models, with the paired ratio and difference.

    ``means`` are those over resamples, of sigmoid and softmax; NaN where there are none.
    """

    name: str
    sigmoid: Measurement
    softmax: Measurement
    ratio: Measurement | None
    difference: Measurement | None
    means: tuple[float, float] = (NAN, NAN)


def estimators(results: Results) -> list[str]:
    """Both estimators, the configured one first."""
    return sorted(ESTIMATORS, key=lambda name: name != results.config.evaluation.mmd.estimator)


def pair_rows(results: Results, dataset: str, estimator: str = "") -> list[Pair]:
    """Every pair of cell types, in the order of the file; by the configured estimator, or another.

    Both estimators come from the same resamples.
    """
    config = results.config
    metric = f"mmd_{estimator or config.evaluation.mmd.estimator}"
    sigmoid, softmax = config.evaluation.pair
    found: dict[str, dict[str, Measurement]] = {}
    for row in results.mmd(dataset):
        if " vs " not in row.group:
            continue
        if row.metric == metric and row.model in (sigmoid, softmax):
            found.setdefault(row.group, {})[row.model] = row
        elif row.metric in (f"{metric}_ratio", f"{metric}_difference"):
            found.setdefault(row.group, {})[row.metric.removeprefix(f"{metric}_")] = row
        elif row.metric == f"{metric}_bootstrap_mean":
            found.setdefault(row.group, {})[f"{row.model} mean"] = row
    return [
        Pair(
            name,
            rows[sigmoid],
            rows[softmax],
            rows.get("ratio"),
            rows.get("difference"),
            (ends(rows.get(f"{sigmoid} mean"))[0], ends(rows.get(f"{softmax} mean"))[0]),
        )
        for name, rows in found.items()
        if sigmoid in rows and softmax in rows
    ]


def mean_ratio(
    results: Results, dataset: str, mean: str, estimator: str = ""
) -> Measurement | None:
    """Sigmoid's MMD over softmax's, averaged over the pairs.

    Args:
        results: the result files.
        dataset: evaluation dataset.
        mean: a key of :data:`MEANS`; the paper's 25.0 % is ``ratio_of_means`` of means over
            resamples, as far as can be told.
        estimator: one of :data:`ESTIMATORS`; the configured one where it is empty.
    """
    estimator = estimator or results.config.evaluation.mmd.estimator
    for row in results.mmd(dataset):
        if row.metric == f"mmd_{estimator}_{MEANS[mean][0]}":
            return row
    return None


def paper_pair(dataset: str, name: str) -> dict[str, Sequence[float]]:
    """The paper's row of a pair, in either order; empty where it has none."""
    types = {part.strip().lower() for part in name.split(" vs ")}
    for row in reported()["mmd"].get(dataset, ()):
        if {part.lower() for part in row["pair"].split(" vs ")} == types:
            return {"sigmoid": row["sigmoid"], "softmax": row["softmax"]}
    return {}


def mmd(results: Results, dataset: str) -> Table:
    """The MMD of every pair of cell types in both models, by both estimators."""
    config = results.config
    pair = config.evaluation.pair
    settings = config.evaluation.mmd
    first, second = estimators(results)
    found = {name: pair_rows(results, dataset, name) for name in (first, second)}
    others = {row.name: row for row in found[second]}
    beside = any(paper_pair(dataset, row.name) for row in found[first])
    simulated = any(row.sigmoid.simulated for row in found[first])
    title = config.datasets[dataset].title + (", simulated cells" if simulated else "")
    header = (
        "Cell type pair",
        *(model_label(config, name) for name in pair),
        *("Ratio", "Difference"),
        *(f"{config.models[name].attention.capitalize()}, {second}" for name in pair),
        f"Ratio, {second}",
        *(("Sigmoid in the paper", "Softmax in the paper") if beside else ()),
    )
    records = []
    for name, rows in found.items():
        records += [pair_record(dataset, row, pair, name) for row in rows]
        for mean in MEANS:
            row = mean_ratio(results, dataset, mean, name)
            if row is not None:
                records.append(
                    {"pair": mean, "estimator": name, **interval_record("ratio", ends(row))}
                    | {"cells": row.n, "simulated": row.simulated}
                )
    return Table(
        caption=f"Pairwise MMD for {title}: the point, in brackets its mean over "
        f"{settings.resamples:,} resamples, which the paper prints, and percentiles of the "
        f"resamples ({first} estimator; then the {second} one). For the unbiased estimator they "
        f"are a {settings.confidence * 100:g} % bootstrap interval. For the biased one they are "
        "none: copies lift resamples above the point; docs/evaluation.md has the measured coverage "
        "of both. The higher of each pair in bold. The ratio is sigmoid over softmax, the "
        "difference sigmoid minus softmax, with the resamples shared.",
        columns=COLUMNS,
        records=records,
        header=header,
        rows=[pair_cells(dataset, row, others.get(row.name), beside) for row in found[first]],
        align="l" + "c" * (len(header) - 1),
        latex_columns=4,
        notes=notes(results, dataset, found[first]),
    )


def pair_cells(dataset: str, row: Pair, other: Pair | None, beside: bool) -> list[Cell | str]:
    """A formatted row: the configured estimator, the other one, the paper."""
    cells: list[Cell | str] = [row.name, *arm_cells(row), paired_cell(row.ratio)]
    cells.append(paired_cell(row.difference))
    cells += [DASH] * 3 if other is None else [*arm_cells(other), paired_cell(other.ratio)]
    if beside:
        paper = paper_pair(dataset, row.name)
        for arm in ("sigmoid", "softmax"):
            value, low, high = paper.get(arm, (NAN, NAN, NAN))
            cells.append(interval(value, low, high, 3))
    return cells


def arm_cells(row: Pair) -> list[Cell]:
    """Both models' MMD, the higher one in bold."""
    sigmoid, softmax = row.sigmoid, row.softmax
    return [
        Cell(text(sigmoid, row.means[0]), bold=sigmoid.value > softmax.value, maths=True),
        Cell(text(softmax, row.means[1]), bold=softmax.value > sigmoid.value, maths=True),
    ]


def paired_cell(row: Measurement | None) -> Cell:
    """A ratio or a difference."""
    return Cell(DASH) if row is None else Cell(text(row), maths=True)


def text(row: Measurement, mean: float = NAN) -> str:
    """A value, its mean over resamples, where it has one, and its interval."""
    value, *ends_of = interval(row.value, row.low, row.high, 3).split(" ", 1)
    return " ".join([value, *([] if math.isnan(mean) else [f"({fixed(mean, 3)})"]), *ends_of])


def ends(row: Measurement | None) -> tuple[float, float, float]:
    """Value, low, high; NaN where there is none."""
    return (NAN, NAN, NAN) if row is None else (row.value, row.low, row.high)


def interval_record(name: str, values: Sequence[float]) -> dict[str, float]:
    """A value and its ends as columns."""
    return {f"{name}{end}": value for end, value in zip(ENDS, values, strict=True)}


def pair_record(dataset: str, row: Pair, pair: Sequence[str], estimator: str) -> dict[str, object]:
    """A CSV row."""
    paper = paper_pair(dataset, row.name)
    return {
        "pair": row.name,
        "estimator": estimator,
        **interval_record("sigmoid", ends(row.sigmoid)),
        **interval_record("softmax", ends(row.softmax)),
        **interval_record("ratio", ends(row.ratio)),
        **interval_record("difference", ends(row.difference)),
        "best": pair[0] if row.sigmoid.value > row.softmax.value else pair[1],
        "cells": row.sigmoid.n,
        "simulated": row.sigmoid.simulated,
        **interval_record("paper_sigmoid", paper.get("sigmoid", ends(None))),
        **interval_record("paper_softmax", paper.get("softmax", ends(None))),
        "sigmoid_bootstrap_mean": row.means[0],
        "softmax_bootstrap_mean": row.means[1],
    }


def notes(results: Results, dataset: str, found: Sequence[Pair]) -> list[str]:
    """How many pairs sigmoid wins, the mean improvement by all definitions, who is left out."""
    if not found:
        return ["No pair of cell types has enough cells."]
    wins = sum(row.sigmoid.value > row.softmax.value for row in found)
    lines = [f"Sigmoid has the higher MMD on {wins} of {len(found)} pairs."]
    for mean, (_, name) in MEANS.items():
        rows = {one: mean_ratio(results, dataset, mean, one) for one in estimators(results)}
        words = [f"{improvement(row)} ({one})" for one, row in rows.items() if row is not None]
        if words:
            lines.append(f"Mean improvement as the {name}: {', '.join(words)}.")
    paper = paper_improvements(dataset)
    if paper:
        lines.append(
            f"In the paper's table it is {fixed(paper['ratio_of_means'], 1)} % as the ratio of the "
            f"means and {fixed(paper['mean_of_ratios'], 1)} % as the mean of the pairs' ratios."
        )
    small = [row for row in results.mmd(dataset) if row.metric == "mmd_left_out"]
    if small:
        named = ", ".join(f"{row.group} ({row.value:.0f})" for row in small)
        least = results.config.evaluation.mmd.minimum_cells
        lines.append(f"Left out for having fewer than {least} cells: {named}.")
    return lines


def improvement(row: Measurement) -> str:
    """A ratio as percent above 1, with its interval."""
    if not math.isfinite(row.value):
        return "not finite, because softmax's MMD is 0 for some pair"
    value, low, high = ((end - 1) * 100 for end in ends(row))
    words = f"{signed(value, 1)} %"
    return words if math.isnan(low) else f"{words} [{signed(low, 1)}, {signed(high, 1)}]"


def paper_improvements(dataset: str) -> dict[str, float]:
    """Both mean improvements of the paper's own table, in percent; empty where it has none."""
    rows = reported()["mmd"].get(dataset, ())
    if not rows:
        return {}
    sigmoid = [row["sigmoid"][0] for row in rows]
    softmax = [row["softmax"][0] for row in rows]
    ratios = [first / second for first, second in zip(sigmoid, softmax, strict=True)]
    return {
        "ratio_of_means": (sum(sigmoid) / sum(softmax) - 1) * 100,
        "mean_of_ratios": (sum(ratios) / len(ratios) - 1) * 100,
    }
