"""The table of the MMD between cell types (the paper's Table 1)."""

import math
from collections.abc import Mapping

from scsigmoid.paper.reported import cell_types, reported
from scsigmoid.records.measurements import Interval, Measurement
from scsigmoid.records.mmd_metrics import LEFT_OUT, MmdMetric
from scsigmoid.report.tables.writing import Cell, Table, excludes_zero, fixed, interval
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import ATTENTIONS, model_label, training_differences

#: Mean ratios over pairs of cell types, by name in the CSV file: the metric, and its title in the
#: notes. The paper's mean improvement of 25.0 % is probably ``over_resamples``.
MEANS = {
    "ratio_of_means": (MmdMetric.MEAN_RATIO_OF_MEANS, "ratio of the means"),
    "mean_of_ratios": (MmdMetric.MEAN_OF_RATIOS, "mean of the pairs' ratios"),
    "over_resamples": (
        MmdMetric.BOOTSTRAP_MEAN_RATIO_OF_MEANS,
        "ratio of the means over resamples",
    ),
}
#: Measurements of one pair of cell types, by the names of :meth:`Results.mmd`.
PairMeasurements = Mapping[str, Measurement]


def mmd(results: Results, dataset: str) -> Table:
    """Return the table of one dataset: MMD by pair of cell types, model and estimator."""
    config = results.config
    models, settings = config.evaluation.pair, config.evaluation.mmd
    configured = settings.estimator
    other = "biased" if configured == "unbiased" else "unbiased"
    measured_pairs = {name: results.mmd(dataset, name) for name in (configured, other)}
    paper = {pair: paper_mmd(dataset, pair) for pair in measured_pairs[configured]}
    is_in_paper = any(not math.isnan(values["sigmoid"].value) for values in paper.values())
    means: dict[str, dict[str, Measurement]] = {configured: {}, other: {}}
    records: list[dict[str, object]] = []
    for estimator, by_pair in measured_pairs.items():
        for pair, measured in by_pair.items():
            columns = pair_columns(measured, paper[pair], models)
            records.append({"pair": pair, "estimator": estimator} | columns)
        for mean, (metric, _) in MEANS.items():
            ratio = results.measurement(metric.of(estimator), "mmd", dataset)
            means[estimator][mean] = ratio
            records.append(
                {"pair": mean, "estimator": estimator}
                | {"pairs": ratio.n}
                | ratio.interval.columns("ratio")
            )
    rows: list[list[Cell | str]] = []
    for pair, measured in measured_pairs[configured].items():
        by_other = measured_pairs[other][pair]
        rows.append(
            [
                pair,
                *mmd_cells(measured),
                *(interval(*measured[name].interval, 3) for name in ("ratio", "difference")),
                *mmd_cells(by_other),
                interval(*by_other["ratio"].interval, 3),
                *(interval(*paper[pair][name], 3) for name in ATTENTIONS if is_in_paper),
            ]
        )
    description = config.datasets[dataset].description
    title = config.datasets[dataset].title
    return Table(
        caption=f"MMD (no unit) between cell types of {title}, in the embeddings of one training "
        f"run per model. The {configured} estimator comes first, then the {other} estimator. Each "
        "entry is the estimate, in parentheses the mean over "
        f"{settings.resamples:,} resamples of the cells (the paper prints this mean), and in "
        f"brackets the central {settings.confidence * 100:g} % of the resamples. The brackets are "
        "a bootstrap interval for the unbiased estimator only, because resamples of the biased "
        "estimator are above its estimate (docs/evaluation.md). The ratio is sigmoid divided by "
        "softmax, the difference is sigmoid minus softmax, both paired by resample. The higher MMD "
        "of a pair is bold if the brackets of the difference exclude 0."
        + (f" {description}" if description else ""),
        records=records,
        header=(
            "Cell type pair",
            *(model_label(config, name) for name in models),
            *("Ratio", "Difference"),
            *(f"{config.models[name].attention.capitalize()}, {other}" for name in models),
            f"Ratio, {other}",
            *(("Sigmoid in the paper", "Softmax in the paper") if is_in_paper else ()),
        ),
        rows=rows,
        notes=[
            *notes(results, dataset, measured_pairs, means),
            *training_differences(config, models),
        ],
    )


def paper_mmd(dataset: str, pair: str) -> dict[str, Interval]:
    """Return the paper's MMD of a pair by attention, NaN if the pair is not in the paper."""
    for row in reported()["mmd"].get(dataset, ()):
        if cell_types(row["pair"]) == cell_types(pair):
            return {attention: Interval(*row[attention]) for attention in ATTENTIONS}
    return dict.fromkeys(ATTENTIONS, Interval(math.nan))


def pair_columns(
    measured: PairMeasurements, paper: Mapping[str, Interval], models: list[str]
) -> dict[str, object]:
    """Return a pair's columns in the CSV file, without the columns ``pair`` and ``estimator``."""
    sigmoid, softmax = measured["sigmoid"], measured["softmax"]
    columns: dict[str, object] = {}
    for name in (*ATTENTIONS, "ratio", "difference"):
        columns |= measured[name].interval.columns(name)
    difference = sigmoid.value - softmax.value
    columns["best"] = models[0 if difference > 0 else 1] if difference else ""  # often both are 0
    columns["cells"] = sigmoid.n
    for name in ATTENTIONS:
        columns |= paper[name].columns(f"paper_{name}")
    for name in ATTENTIONS:
        columns[f"{name}_bootstrap_mean"] = measured[f"{name}_mean"].value
    return columns


def mmd_cells(measured: PairMeasurements) -> list[Cell]:
    """Return a table cell for each attention.

    The cell with the higher MMD is bold if the interval of the difference excludes 0.
    """
    cells = []
    is_distinct = excludes_zero(measured["difference"].interval)
    highest = max(measured[attention].value for attention in ATTENTIONS)
    for attention in ATTENTIONS:
        mean = fixed(measured[f"{attention}_mean"].value, 3)
        # Insert the mean over resamples in parentheses: "0.467 (0.466) [0.461, 0.472]".
        value, *brackets = interval(*measured[attention].interval, 3).split(" ", 1)
        text = " ".join([value, f"({mean})", *brackets])
        cells.append(Cell(text, bold=is_distinct and measured[attention].value == highest))
    return cells


def notes(
    results: Results,
    dataset: str,
    measured_pairs: Mapping[str, Mapping[str, PairMeasurements]],
    means: Mapping[str, Mapping[str, Measurement]],
) -> list[str]:
    """Return notes on wins, mean improvements, and pairs without a value or an interval.

    ``measured_pairs`` are by estimator and pair, ``means`` by estimator and key of :data:`MEANS`.
    """
    settings = results.config.evaluation.mmd
    shown = measured_pairs[settings.estimator].values()
    differences = [measured["sigmoid"].value - measured["softmax"].value for measured in shown]
    wins, ties = sum(value > 0 for value in differences), differences.count(0)
    equal = f", and {ties} are equal" if ties else ""
    sentences = [f"Sigmoid has the higher MMD on {wins} of {len(shown)} pairs{equal}."]
    for mean, (_, title) in MEANS.items():
        improvements = []
        for estimator, ratios in means.items():
            percent = ratios[mean].interval.map(lambda ratio: (ratio - 1) * 100)
            improvements.append(f"{interval(*percent, 1, '+')} % ({estimator})")
        sentences.append(f"Mean improvement as the {title}: {', '.join(improvements)}.")
    rows = results.measurements("mmd", dataset)  # the value of `mmd_left_out` is a number of cells
    if left_out := [row for row in rows if row.metric == LEFT_OUT]:
        types = ", ".join(f"{row.group} ({row.value:.0f})" for row in left_out)
        minimum = settings.minimum_cells
        sentences.append(f"Left out for having fewer than {minimum} cells: {types}.")
    without_interval = {
        estimator: [
            pair for pair, measured in by_pair.items() if math.isnan(measured["sigmoid"].low)
        ]
        for estimator, by_pair in measured_pairs.items()
    }
    if without_interval["biased"]:  # has an interval for any number of cells
        sentences.append("Too few resamples for intervals. Raise evaluation.mmd.resamples.")
    elif without_interval["unbiased"]:
        sentences.append(
            "Too few cells for an unbiased interval of the pair and of the means: "
            f"{', '.join(without_interval['unbiased'])}."
        )
    return sentences
