"""Tables of a study (docs/reproduction.md)."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pandas as pd

from scsigmoid.report.tables.writing import DASH, Cell, Table, fixed, interval, write_table
from scsigmoid.results.labels import ATTENTIONS
from scsigmoid.study import comparisons, stability
from scsigmoid.study.comparisons import AVERAGED, CONFIDENCE, POWER, loss_differences
from scsigmoid.study.runs import Study
from scsigmoid.study.stability import (
    LIMITS,
    MAXIMUM_RISE,
    MINIMUM_GAIN,
    first_family_settings,
    short_settings,
    stability_runs,
)

INTERVAL = f"Student's {CONFIDENCE * 100:g} % interval"
IN_BRACKETS = f"in brackets {INTERVAL}"
COLLAPSED = (
    f"A run has collapsed if the median of its last three validation losses is less than "
    f"{MINIMUM_GAIN:g} nats below the gene-frequency baseline, or more than {MAXIMUM_RISE:g} nats "
    "above the lowest loss of the run."
)
#: The loss of a run, in the words of the captions.
FINAL_LOSS = f"mean of the last {AVERAGED} validation losses of a run"

Row = Mapping[str, Any]
#: Columns of a table by header. The content of a column is a format string or a function, which is
#: applied to each row.
Columns = Mapping[str, str | Callable[[Row], str]]


def write_tables(study: Study, output: Path) -> list[Path]:
    """Write every table of :func:`tables`, and return the paths."""
    return [
        path
        for name, table in tables(study).items()
        for path in write_table(table, output / f"study_{name}")
    ]


def tables(study: Study) -> dict[str, Table]:
    """Return every table that the study has runs for, by name."""
    purposes, curves = set(study.runs["purpose"]), study.all_curves
    seeds = loss_differences(study, "seeds")["seeds"]
    has_variants = {"seeds", "variants"} <= purposes
    can_make: dict[Callable[[Study], Table], bool] = {
        seeds_table: len(seeds) > 0,
        power_table: bool((seeds > 1).any()),
        scale_table: len(comparisons.loss_differences_by_size(study)) > 0,
        variants_table: has_variants,
        rivals_table: has_variants and len(comparisons.rival_differences(study)[0]) > 0,
        rates_table: "rates" in set(curves["purpose"]),
        largest_rates_table: "stability" in purposes,
        frontier_table: "stability" in purposes,
        limits_table: "stability" in purposes,
        clipping_table: bool(curves["clipping"].notna().any()),
        scores_table: len(comparisons.score_differences(study)) > 0,
    }
    functions = [function for function in can_make if can_make[function]]
    return {function.__name__.removesuffix("_table"): function(study) for function in functions}


def make_table(
    caption: str, frame: pd.DataFrame, columns: Columns, align: str, shown: Any = slice(None)
) -> Table:
    """Return a table of a data frame.

    The formatted table has the ``columns``, and the rows of ``frame`` that ``shown`` selects
    (default: all). The CSV file has all rows and columns of ``frame``.
    """
    rows = [
        [
            content.format(**row) if isinstance(content, str) else content(row)
            for content in columns.values()
        ]
        for row in as_records(frame[shown])
    ]
    return Table(
        caption=caption, records=as_records(frame), header=tuple(columns), rows=rows, align=align
    )


def as_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def decimals(name: str, digits: int) -> Callable[[Row], str]:
    """Return a function that formats the value ``name`` of a row with ``digits`` decimals."""
    return lambda row: fixed(row[name], digits)


def difference_text(row: Row) -> str:
    """Return the signed difference of a row, with its interval in brackets."""
    return interval(row["difference"], row["low"], row["high"], 3, "+")


def seeds_text(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


#: Columns for the mean of each arm, and for their difference.
ARM_COLUMNS: Columns = {
    **{arm.capitalize(): decimals(arm, 3) for arm in ATTENTIONS},
    "Difference": difference_text,
}


def rates_table(study: Study) -> Table:
    losses, best, last_step = comparisons.best_rates(study)
    seeds = losses.columns.unique("seed").tolist()

    def cell(rate: Any, arm: str) -> Cell:
        values = losses.loc[rate, arm]
        by_seed = ", ".join(fixed(value, 2) for value in values)
        is_best = bool(best[arm] == rate) and math.isfinite(values.mean())
        return Cell(f"{fixed(values.mean(), 3)} ({by_seed})", bold=is_best)

    names = ["_seed_".join(map(str, column)) for column in losses.columns]  # sigmoid_seed_1, …
    return Table(
        caption=f"Validation loss (nats) by learning rate. The loss is the {FINAL_LOSS} up to step "
        f"{last_step:,}. Each cell is the mean over {seeds_text(len(seeds))}, in brackets the loss "
        f"of each run (seeds {', '.join(map(str, seeds))}). The lowest mean of each arm is bold.",
        records=as_records(losses.set_axis(names, axis=1).reset_index()),
        header=("Learning rate", *(arm.capitalize() for arm in best.index)),
        rows=[[f"{rate:g}", *(cell(rate, arm) for arm in best.index)] for rate in losses.index],
        align="l" + "c" * len(best),
    )


def largest_rates_table(study: Study) -> Table:
    runs = stability_runs(study)
    groups = runs.groupby("setting")
    tried = groups["learning_rate"].agg(["min", "max"])
    largest = stability.largest_rates(runs).reindex(columns=ATTENTIONS).join(tried)
    return make_table(
        "Largest learning rate up to which no run collapsed. Each arm has one run per seed at each "
        f"rate tried. {COLLAPSED} none: a run collapsed at the lowest rate.",
        largest.assign(seeds=groups["seed"].nunique()).reset_index(),
        {
            "Setting": "{setting}",
            "Seeds": "{seeds}",
            "Rates tried": "{min:g} to {max:g}",
            **{arm.capitalize(): largest_rate_text(arm) for arm in ATTENTIONS},
        },
        "lcccc",
    )


def largest_rate_text(arm: str) -> Callable[[Row], str]:
    """Return a function that formats the largest rate of an arm (0: none, NaN: no runs)."""

    def text(row: Row) -> str:
        if math.isnan(row[arm]):
            return DASH
        return f"{row[arm]:g}" if row[arm] else "none"

    return text


def frontier_table(study: Study) -> Table:
    """Return collapsed runs, loss and number of keys by learning rate, for the first family.

    The CSV file has all settings.
    """
    by = ["setting", "attention", "learning_rate"]
    runs = stability_runs(study)
    groups = runs.groupby(by)
    layers = study.layers[study.layers["purpose"] == "stability"]
    layers = layers[layers["step"] == layers.groupby("run")["step"].transform("max")]
    table = groups.agg(seeds=("seed", "size"), collapsed=("collapsed", "sum"))
    table["loss"] = runs[~runs["collapsed"]].groupby(by)["loss"].mean()
    table[["gradient_norm", "score"]] = groups[["gradient_norm", "score"]].max()
    table["keys"] = layers.groupby(by)["keys"].median()
    records = as_records(table.reset_index())
    texts = [
        f"{row['collapsed']} of {row['seeds']}; {fixed(row['loss'], 2)}; {fixed(row['keys'], 0)}"
        for row in records
    ]
    # One line of the table for each setting and arm, with one cell for each learning rate.
    labels = short_settings(first_family_settings(study))
    lines = pd.MultiIndex.from_product([labels, ATTENTIONS])
    grid = pd.Series(texts, table.index).unstack("learning_rate").reindex(lines)
    grid = grid.dropna(axis="columns", how="all").fillna(DASH)
    return Table(
        caption="Stability by learning rate. Each cell has three values: number of collapsed runs "
        "of all runs (one per seed); mean loss (nats) of the other runs, where a loss is the "
        f"{FINAL_LOSS}; effective number of keys at the last step, which is exp(entropy) of the "
        "attention weights of a query, median over queries, layers and runs. "
        f"{COLLAPSED} {DASH}: no value.",
        records=records,
        header=("Learning rate", *(f"{rate:g}" for rate in grid.columns)),
        rows=[
            [f"{arm}, {labels[setting]}", *cells]
            for (setting, arm), cells in zip(lines, grid.to_numpy().tolist(), strict=True)
        ],
        align="l" + "c" * len(grid.columns),
    )


def limits_table(study: Study) -> Table:
    return make_table(
        f"Number of collapsed runs by limit. The columns {LIMITS[0]:g} to {LIMITS[-1]:g} count the "
        "runs whose last three validation losses have a median less than this limit (nats) below "
        f"the gene-frequency baseline, or more than {MAXIMUM_RISE:g} nats above the lowest loss of "
        f"the run. The limit of all other tables is {MINIMUM_GAIN:g}. Runs: number of all runs. "
        "Diverged: number of runs that left their lowest loss while the gradient exploded "
        "(docs/preregistration.md). "
        "Norm: largest gradient norm at a logged step of these runs.",
        stability.count_collapsed(study),
        {
            "Setting": "{setting}", "Arm": "{attention}", "Runs": "{runs}",
            **{f"{limit:g}": decimals(f"collapsed_{limit:g}", 0) for limit in LIMITS},
            "Diverged": "{diverged}", "Norm": decimals("gradient_norm", 0),
        },
        "ll" + "r" * (len(LIMITS) + 3),
    )  # fmt: skip


def clipping_table(study: Study) -> Table:
    runs = study.all_curves[study.all_curves["clipping"].notna()]["run"].nunique()

    def norm(name: str) -> Callable[[Row], str]:
        return lambda row: fixed(row[name], 0 if row[name] >= 100 else 1)

    return make_table(
        f"Gradient norms before clipping, in all {runs} runs with clipping. Steps: number of "
        "logged steps of the runs of a family and arm. Clipped: share of these steps with a norm "
        "above the limit. The other columns are the minimum, quartiles and maximum of the norm.",
        stability.gradient_norms(study),
        {
            "Family": "{family}", "Arm": "{attention}",
            "Steps": "{steps:,}", "Clipped": lambda row: f"{row['clipped'] * 100:.1f} %",
            "Min.": norm("minimum"), "25 %": norm("lower"), "Median": norm("median"),
            "75 %": norm("upper"), "Max.": norm("maximum"),
        },
        "ll" + "r" * 7,
    )  # fmt: skip


def power_table(study: Study) -> Table:
    return make_table(
        "Differences of validation loss (nats) between the arms that the seeds can detect. The "
        f"loss is the {FINAL_LOSS} up to the step. Each seed has one run per arm. Standard "
        f"deviation: of the difference, sigmoid minus softmax, over seeds. Half width: half the "
        f"width of {INTERVAL} of the mean difference. Found in {POWER * 100:g} %: the true "
        f"difference for which the interval excludes zero with a probability of {POWER * 100:g} %.",
        comparisons.detectable_loss_differences(study),
        {
            "Step": "{step:,.0f}", "Seeds": "{seeds}",
            "Standard deviation": decimals("deviation", 3),
            "Half width": decimals("half_width", 3),
            f"Found in {POWER * 100:g} %": decimals("detectable", 3),
        },
        "rcccc",
    )  # fmt: skip


def variants_table(study: Study) -> Table:
    rows, last_step = comparisons.variant_differences(study)
    return make_table(
        f"Validation loss (nats) of variants of attention. The loss is the {FINAL_LOSS} up to step "
        f"{last_step:,}, mean over seeds (one run each). Difference: variant minus the same arm "
        f"without the variant, seed by seed, {IN_BRACKETS}. Lower in: number of compared seeds in "
        "which the variant has the lower loss.",
        rows,
        {
            "Arm": "{attention}", "Variant": "{variant}", "Loss": decimals("loss", 3),
            "Difference": difference_text, "Lower in": "{lower} of {seeds} seeds",
        },
        "llccc",
    )  # fmt: skip


def rivals_table(study: Study) -> Table:
    rows, last_step = comparisons.rival_differences(study)
    return make_table(
        "Variants of sigmoid compared with the variant qk_norm of softmax. Loss: validation loss "
        f"of sigmoid (nats), {FINAL_LOSS} up to step {last_step:,}, mean over "
        f"{seeds_text(rows['seeds'].max())} (one run each). Difference: sigmoid minus softmax, "
        f"seed by seed, {IN_BRACKETS}. p: paired t-test, corrected by Holm's method. Linear probe, "
        "k-NN, NMI: mean score of sigmoid minus softmax at the last step, higher is better. A "
        f"variant wins if its loss is lower with p below {1 - CONFIDENCE:.2g} and the three scores "
        "are higher.",
        rows,
        {
            "Variant": "{variant}", "Loss": decimals("loss", 3),
            "Difference": difference_text, "p": decimals("p", 3),
            "Linear probe": decimals("linear_probe", 3), "k-NN": decimals("knn", 3),
            "NMI": decimals("leiden_nmi", 3), "Wins": lambda row: "yes" if row["wins"] else "no",
        },
        "lccccccc",
    )  # fmt: skip


def seeds_table(study: Study) -> Table:
    """Return the loss of both arms by step. The caption states how much the loss still falls."""
    differences = loss_differences(study, "seeds")
    last_step = differences["step"].max()
    shown_steps = [1, *(round(last_step * tenths / 10) for tenths in range(1, 11))]
    change_step = comparisons.last_sign_change(differences)
    sign = "never changes" if change_step is None else f"is the same from step {change_step:,} on"
    curves = study.curves[study.curves["purpose"] == "seeds"]
    by_run = curves.groupby(["attention", "run"])[["step", "validation_loss"]]
    decreases_of_runs = by_run.apply(comparisons.loss_decrease).groupby("attention")
    decreases = decreases_of_runs.agg(lambda values: values.mean(skipna=False))
    falls = ", ".join(f"{decreases[arm]:.3f} ({arm})" for arm in ATTENTIONS)
    if decreases.isna().any():
        trend = "There are too few measurements to say whether the loss still falls."
    else:
        trend = f"From the ninth to the last tenth of the steps the mean loss falls by {falls}."
    return make_table(
        f"Validation loss (nats) of both arms by step: the {FINAL_LOSS} up to the step. Each arm "
        f"is the mean over {seeds_text(differences['seeds'].iloc[-1])} (one run each). "
        f"Difference: sigmoid minus softmax, seed by seed, {IN_BRACKETS}. The sign of the "
        f"difference {sign}. {trend}",
        differences,
        {"Step": "{step:,.0f}", **ARM_COLUMNS},
        "rccc",
        differences["step"].isin(shown_steps),
    )


def scale_table(study: Study) -> Table:
    return make_table(
        f"Validation loss (nats) of both arms by size of the model: the {FINAL_LOSS} up to the "
        "step. All models are trained on the same cells. Each arm is the mean over seeds (one run "
        f"each). Difference: sigmoid minus softmax, seed by seed, {IN_BRACKETS}.",
        comparisons.loss_differences_by_size(study),
        {
            "Steps": "{step:,.0f}", "Size": "{size}",
            "Parameters": lambda row: f"{row['parameters'] / 1e6:.1f}M",
            **ARM_COLUMNS, "Seeds": "{seeds}",
        },
        "rlrcccc",
    )  # fmt: skip


def scores_table(study: Study) -> Table:
    """Return the scores of embeddings and controls at the last step. The CSV file has all steps."""
    rows = comparisons.score_differences(study).join(study.controls, on="metric")
    controls = study.controls.columns.tolist()
    scores = study.scores[study.scores["purpose"] == "seeds"]
    # Only seeds with both arms, as in the means.
    pairs = scores.pivot_table("value", ["metric", "step", "seed"], "attention").dropna()
    deviations = pairs.groupby(["metric", "step"]).std()

    def mean_and_deviation(arm: str) -> Callable[[Row], str]:
        return lambda row: (
            f"{fixed(row[arm], 3)} ± {fixed(deviations.loc[row['metric'], row['step']][arm], 3)}"
        )

    return make_table(
        "Scores of the embeddings at the last step (no unit, higher is better). Each arm is the "
        f"mean ± standard deviation over {seeds_text(rows['seeds'].max())} (one run each). "
        f"Difference: sigmoid minus softmax, seed by seed, {IN_BRACKETS}."
        + (f" Controls without a model: {', '.join(controls)}." if controls else ""),
        rows,
        {
            "Metric": "{metric}",
            **{arm.capitalize(): mean_and_deviation(arm) for arm in ATTENTIONS},
            **{name: decimals(name, 3) for name in controls},
            "Difference": difference_text,
        },
        "l" + "c" * (3 + len(controls)),
        ~rows.duplicated("metric", keep="last"),
    )
