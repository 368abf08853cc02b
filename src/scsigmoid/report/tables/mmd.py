"""The table of the MMD between cell types (the paper's Table 1)."""

import math
from collections.abc import Mapping

from scsigmoid.labels import ATTENTIONS, model_label
from scsigmoid.measurements import Interval, Measurement
from scsigmoid.paper.reported import cell_types, reported
from scsigmoid.report.tables.writing import Cell, Table, fixed, interval, with_ends
from scsigmoid.results.folder import Results

ESTIMATORS = ("unbiased", "biased")
#: Averages over pairs: suffix of the metric's name, and title in the table. The paper's 25.0 % is
#: probably ``over_resamples``.
MEANS = {
    "ratio_of_means": ("mean_ratio_of_means", "ratio of the means"),
    "mean_of_ratios": ("mean_of_ratios", "mean of the pairs' ratios"),
    "over_resamples": ("bootstrap_mean_ratio_of_means", "ratio of the means over resamples"),
}
#: Measurements of a pair of cell types by name, or of averages by the key of :data:`MEANS`.
Measurements = Mapping[str, Measurement]


def mmd(results: Results, dataset: str) -> Table:
    """Return the MMD of every pair of cell types in both models, with both estimators."""
    config = results.config
    models, settings = config.evaluation.pair, config.evaluation.mmd
    # The configured estimator comes first.
    first, second = sorted(ESTIMATORS, key=lambda name: name != settings.estimator)
    pairs = {estimator: results.mmd(dataset, estimator) for estimator in (first, second)}
    means = {
        estimator: {
            mean: results.measurement(f"mmd_{estimator}_{metric}", "mmd", dataset)
            for mean, (metric, _) in MEANS.items()
        }
        for estimator in pairs
    }
    paper = {name: paper_pair(dataset, name) for name in pairs[first]}
    is_in_paper = any(not math.isnan(mmd.value) for arms in paper.values() for mmd in arms.values())
    records: list[dict[str, object]] = []
    for estimator, measured in pairs.items():
        for name, row in measured.items():
            about = {"pair": name, "estimator": estimator}
            records.append(about | record(row, paper[name], models))
        for mean, ratio in means[estimator].items():
            about = {"pair": mean, "estimator": estimator}
            size = {"cells": ratio.n, "simulated": ratio.simulated}
            records.append({**about, **size, **with_ends("ratio", ratio.interval)})
    rows: list[list[Cell | str]] = []
    for name, row in pairs[first].items():
        other = pairs[second][name]
        compared = [text(row[key].interval) for key in ("ratio", "difference")]
        printed = [text(paper[name][arm]) for arm in ATTENTIONS if is_in_paper]
        others: list[Cell | str] = [*arms(other), text(other["ratio"].interval)]
        rows.append([name, *arms(row), *compared, *others, *printed])
    description = config.datasets[dataset].description
    simulated = any(row["sigmoid"].simulated for row in pairs[first].values())
    title = config.datasets[dataset].title + (" (simulated cells)" if simulated else "")
    return Table(
        caption=f"MMD (no unit) between cell types of {title}, in the embeddings of one training "
        f"run per model. The {first} estimator comes first, then the {second} estimator. Each "
        "entry is the estimate, in parentheses the mean over "
        f"{settings.resamples:,} resamples of the cells (the paper prints this mean), and in "
        f"brackets the central {settings.confidence * 100:g} % of the resamples. The brackets are "
        "a bootstrap interval for the unbiased estimator only, because resamples of the biased "
        "estimator are above its estimate (docs/evaluation.md). The higher MMD of each pair is "
        "bold. The ratio is sigmoid divided by softmax, the difference is sigmoid minus softmax, "
        "both paired by resample." + (f" {description}" if description else ""),
        records=records,
        header=(
            "Cell type pair",
            *(model_label(config, name) for name in models),
            *("Ratio", "Difference"),
            *(f"{config.models[name].attention.capitalize()}, {second}" for name in models),
            f"Ratio, {second}",
            *(("Sigmoid in the paper", "Softmax in the paper") if is_in_paper else ()),
        ),
        rows=rows,
        latex_columns=4,
        notes=notes(results, dataset, pairs, means),
    )


def paper_pair(dataset: str, name: str) -> dict[str, Interval]:
    """Return the paper's MMD of a pair (its types in any order) by arm, NaN if it has none."""
    for row in reported()["mmd"].get(dataset, ()):
        if cell_types(row["pair"]) == cell_types(name):
            return {arm: Interval(*row[arm]) for arm in ATTENTIONS}
    return dict.fromkeys(ATTENTIONS, Interval(math.nan))


def record(
    row: Measurements, paper: Mapping[str, Interval], models: list[str]
) -> dict[str, object]:
    """Return the values of a pair in the CSV file."""
    sigmoid, softmax = row["sigmoid"], row["softmax"]
    values: dict[str, object] = {}
    for name in (*ATTENTIONS, "ratio", "difference"):
        values |= with_ends(name, row[name].interval)
    values["best"] = models[0] if sigmoid.value > softmax.value else models[1]
    values |= {"cells": sigmoid.n, "simulated": sigmoid.simulated}
    for arm in ATTENTIONS:
        values |= with_ends(f"paper_{arm}", paper[arm])
    return values | {f"{arm}_bootstrap_mean": row[f"{arm}_mean"].value for arm in ATTENTIONS}


def text(value: Interval) -> str:
    """Return a value with its interval as text."""
    return interval(*value, 3)


def arms(row: Measurements) -> list[Cell]:
    """Return both models' MMD, the higher one bold, with the mean over resamples."""
    cells = []
    lower = min(row[arm].value for arm in ATTENTIONS)
    for arm in ATTENTIONS:
        value, *brackets = text(row[arm].interval).split(" ", 1)
        words = " ".join([value, f"({fixed(row[f'{arm}_mean'].value, 3)})", *brackets])
        cells.append(Cell(words, bold=row[arm].value > lower))
    return cells


def notes(
    results: Results,
    dataset: str,
    pairs: Mapping[str, Mapping[str, Measurements]],
    means: Mapping[str, Measurements],
) -> list[str]:
    """Return notes on wins, mean improvements, and pairs without a value or an interval.

    ``pairs`` and ``means`` are measurements by estimator, the configured one first.
    """
    rows = next(iter(pairs.values())).values()
    wins = sum(row["sigmoid"].value > row["softmax"].value for row in rows)
    lines = [f"Sigmoid has the higher MMD on {wins} of {len(rows)} pairs."]
    for mean, (_, title) in MEANS.items():
        words = []
        for estimator, averages in means.items():
            above = averages[mean].interval.map(lambda end: (end - 1) * 100)
            words.append(f"{interval(*above, 1, '+')} % ({estimator})")
        lines.append(f"Mean improvement as the {title}: {', '.join(words)}.")
    small = [row for row in results.measurements("mmd", dataset) if row.metric == "mmd_left_out"]
    if small:
        named = ", ".join(f"{row.group} ({row.value:.0f})" for row in small)
        least = results.config.evaluation.mmd.minimum_cells
        lines.append(f"Left out for having fewer than {least} cells: {named}.")
    unbiased = pairs["unbiased"].items()
    if tiny := [name for name, row in unbiased if math.isnan(row["sigmoid"].low)]:
        lines.append(
            "Too few cells for an unbiased interval of the pair and of the means: "
            f"{', '.join(tiny)}."
        )
    return lines
