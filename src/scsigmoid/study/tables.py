"""The tables of a study (docs/reproduction.md)."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pandas as pd

from scsigmoid.labels import ATTENTIONS
from scsigmoid.measurements import mean_interval
from scsigmoid.report.tables.writing import DASH, Cell, Table, fixed, interval, write_table
from scsigmoid.study.comparisons import (
    CONFIDENCE,
    best_rates,
    by_size,
    final_losses,
    last_change,
    last_tenth,
    paired,
    powers,
    score_differences,
)
from scsigmoid.study.runs import Study
from scsigmoid.study.stability import (
    BETTER,
    LIMITS,
    WORSE,
    clipping,
    collapsed_by_limit,
    first_settings,
    frontier,
    largest_rates,
)

INTERVAL = f"Student's {CONFIDENCE:.0%} interval"
#: Steps of the table of the loss, in tenths of all steps; and of the table of power.
TENTHS, POWER_TENTHS = range(1, 11), (2, 5, 10)

Row = Mapping[str, Any]
#: Header of a column to the function that formats its cells.
Columns = Mapping[str, Callable[[Row], Cell | str]]


def write_tables(study: Study, output: Path) -> list[Path]:
    """Write every table that the study has runs for, and return their paths."""
    return [
        path
        for name, table in tables(study).items()
        for path in write_table(table, f"study_{name}", output / f"study_{name}")
    ]


def tables(study: Study) -> dict[str, Table]:
    """Return every table that the study has runs for, by name."""
    purposes, made = set(study.runs["purpose"]), {}
    means = paired(study, "seeds")
    if len(means):
        made["seeds"] = seeds(study)
        if means["seeds"].iloc[-1] > 1:
            made["power"] = power(study)
    if len(by_size(study)):
        made["scale"] = sizes(study)
    if {"seeds", "variants"} <= purposes:
        made["variants"] = variants(study)
    if "rates" in set(study.started["purpose"]):
        made["rates"] = rates(study)
    if "stability" in purposes:
        made["largest_rates"] = survived(study)
        made["frontier"] = by_rate(study)
        made["limits"] = limits(study)
    if study.started["clipping"].notna().any():
        made["clipping"] = clipped(study)
    if len(score_differences(study)):
        made["scores"] = scores(study)
        made["embeddings"] = embeddings(study)
    made["claims"] = claims(study, made)
    return made


def formatted(
    caption: str, frame: pd.DataFrame, columns: Columns, align: str, shown: Any = slice(None)
) -> Table:
    """Return a table of a data frame. The formatted table has the rows ``shown`` only."""
    return Table(
        caption=caption,
        records=as_records(frame),
        header=tuple(columns),
        rows=[[text(row) for text in columns.values()] for row in as_records(frame[shown])],
        align=align,
    )


def as_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dictionaries."""
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def text(name: str, form: str = "") -> Callable[[Row], str]:
    """Return a function that formats the value ``name`` of a row by Python's ``form``."""
    return lambda row: format(row[name], form)


def number(name: str, digits: int) -> Callable[[Row], str]:
    """Return a function that formats the number ``name`` of a row with ``digits`` digits."""
    return lambda row: fixed(row[name], digits)


def difference(row: Row) -> str:
    """Return the signed difference of a row with its interval."""
    return interval(row["difference"], row["low"], row["high"], 3, "+")


#: Columns of both arms and of their difference.
ARMS: Columns = {
    **{arm.capitalize(): number(arm, 3) for arm in ATTENTIONS},
    "Difference": difference,
}


def rates(study: Study) -> Table:
    """Return validation losses by learning rate."""
    ends, best, step = best_rates(study)
    numbers = sorted(set(ends.columns.get_level_values("seed")))

    def losses(arm: str) -> Callable[[Row], Cell]:
        def cell(row: Row) -> Cell:
            own = ends.loc[row["learning_rate"], arm]
            by_seed = ", ".join(fixed(loss, 2) for loss in own)
            bold = best[arm] == row["learning_rate"]
            return Cell(f"{fixed(own.mean(), 3)} ({by_seed})", bold=bool(bold))

        return cell

    runs = [(str(arm), seed) for arm in best.index for seed in numbers]
    table = ends[runs].set_axis([f"{arm}_seed_{seed}" for arm, seed in runs], axis=1)
    return formatted(
        "Validation loss (nats) by learning rate, median of the last three measurements up to step "
        f"{step:,}: mean over seeds and, in brackets, seeds {', '.join(map(str, numbers))}. The "
        "best mean of each arm is bold.",
        table.reset_index(),
        {
            "Learning rate": text("learning_rate", "g"),
            **{arm.capitalize(): losses(arm) for arm in best.index},
        },
        "l" + "c" * len(best),
    )


def survived(study: Study) -> Table:
    """Return the largest learning rate at which every seed trains, by setting and arm."""
    runs = frontier(study)
    groups = runs.groupby("setting")
    tried = groups["learning_rate"].agg(["min", "max"])
    largest = largest_rates(runs).reindex(columns=ATTENTIONS).join(tried)
    return formatted(
        "The largest learning rate up to which no seed collapsed, of the rates tried.",
        largest.assign(seeds=groups["seed"].nunique()).reset_index(),
        {
            "Setting": text("setting"),
            "Seeds": text("seeds"),
            "Rates tried": lambda row: f"{row['min']:g} to {row['max']:g}",
            **{arm.capitalize(): stable_rate(arm) for arm in ATTENTIONS},
        },
        "lcccc",
    )


def stable_rate(arm: str) -> Callable[[Row], str]:
    """Return a function that formats the largest rate of an arm, ``none`` for 0."""
    return lambda row: DASH if math.isnan(row[arm]) else f"{row[arm]:g}" if row[arm] else "none"


def by_rate(study: Study) -> Table:
    """Return collapsed seeds, final loss and number of keys by learning rate.

    The formatted table has the settings of the first family, the CSV file all settings.
    """
    keys = ["setting", "attention", "learning_rate"]
    runs = frontier(study)
    groups = runs.groupby(keys)
    layers = study.layers[study.layers["purpose"] == "stability"]
    layers = layers[layers["step"] == layers["step"].max()]
    table = groups[["gradient_norm", "score"]].max()
    table.insert(0, "seeds", groups.size())
    table.insert(1, "collapsed", groups["collapsed"].sum())
    table.insert(2, "loss", runs[~runs["collapsed"]].groupby(keys)["loss"].mean())
    table["keys"] = layers.groupby(keys)["keys"].median()
    shown = first_settings(study)
    tried = sorted(runs[runs["setting"].isin(shown)]["learning_rate"].unique())
    records = as_records(table.reset_index())
    texts = {
        tuple(row[key] for key in keys): f"{row['collapsed']} of {row['seeds']}; "
        f"{fixed(row['loss'], 2)}; {fixed(row['keys'], 0)}"
        for row in records
    }
    return Table(
        caption="Collapsed seeds; mean final validation loss of the other seeds "
        "(nats); effective number of keys at the end, exp(entropy) of a query's weights (median of "
        "queries, layers and seeds).",
        records=records,
        header=("Learning rate", *(f"{rate:g}" for rate in tried)),
        rows=[
            [
                f"{arm}, {setting.split(',')[0]}",
                *(texts.get((setting, arm, rate), DASH) for rate in tried),
            ]
            for setting in shown
            for arm in ATTENTIONS
        ],
        align="l" + "c" * len(tried),
    )


def limits(study: Study) -> Table:
    """Return how the number of collapsed runs depends on the limit."""
    return formatted(
        "Runs whose final validation loss is less than a limit (0.1 to 0.7 nats) below the "
        f"gene-frequency baseline, or more than {WORSE:g} nats above the run's minimum. The rule "
        f"for collapsed runs has the limit {BETTER:g}. Diverged: the run left a loss that it had "
        "reached, and its gradient exploded (docs/preregistration.md). Norm: the largest gradient "
        "norm of all logged steps.",
        collapsed_by_limit(study),
        {
            "Setting": text("setting"),
            "Arm": text("attention"),
            "Runs": text("runs"),
            **{f"{limit:g}": text(f"collapsed_{limit:g}") for limit in LIMITS},
            "Diverged": text("diverged"),
            "Norm": number("gradient_norm", 0),
        },
        "ll" + "r" * (len(LIMITS) + 3),
    )


def clipped(study: Study) -> Table:
    """Return how often clipping acted, and the gradient norms."""

    def norm(name: str) -> Callable[[Row], str]:
        return lambda row: fixed(row[name], 0 if row[name] >= 100 else 1)

    return formatted(
        "Share of the logged steps of runs with clipping where the gradient norm is above "
        "the limit, and minimum, quartiles and maximum of the norm before clipping.",
        clipping(study),
        {
            "Family": text("family"),
            "Arm": text("attention"),
            "Steps": text("steps", ","),
            "Clipped": text("clipped", ".1%"),
            "Min.": norm("minimum"),
            "25%": norm("lower"),
            "Median": norm("median"),
            "75%": norm("upper"),
            "Max.": norm("maximum"),
        },
        "ll" + "r" * 7,
    )


def power(study: Study) -> Table:
    """Return which difference between the arms the seeds can resolve."""
    return formatted(
        "What the seeds can resolve, in nats of validation loss: the standard deviation of "
        f"the paired difference over seeds, half the width of {INTERVAL}, and the true difference "
        "that such an interval would separate from zero in 80% of repetitions.",
        powers(study, POWER_TENTHS),
        {
            "Step": text("step", ",.0f"),
            "Seeds": text("seeds"),
            "Standard deviation": number("deviation", 3),
            "Half width": number("half_width", 3),
            "Found in 80%": number("detectable", 3),
        },
        "rcccc",
    )


def variants(study: Study) -> Table:
    """Compare each variant of attention with the same arm without it, at the same step."""
    curves = study.curves[study.curves["purpose"].isin(["seeds", "variants"])]
    last = curves.groupby("purpose")["step"].max().min()
    curves = curves[curves["step"] <= last]
    ends = final_losses(curves, ["attention", "variants", "seed"]).unstack("seed")
    records: list[dict[str, Any]] = []
    for arm, name in ends.index:
        if not name or (arm, "") not in ends.index:
            continue
        own = ends.loc[arm, name]
        by_seed = (own - ends.loc[arm, ""]).dropna().to_numpy(dtype=float)
        value, low, high = mean_interval(by_seed, CONFIDENCE)
        record = {"attention": arm, "variant": name, "loss": own.mean()}
        record |= {"difference": value, "low": low, "high": high}
        records.append(record | {"seeds": len(by_seed), "lower": int((by_seed < 0).sum())})
    return formatted(
        "Variants of attention. Validation loss (nats), median of the last three measurements up "
        f"to step {int(last):,}, mean over seeds, and the difference to the same arm without the "
        f"variant, with {INTERVAL}.",
        pd.DataFrame(records),
        {
            "Arm": text("attention"),
            "Variant": text("variant"),
            "Loss": number("loss", 3),
            "Difference": difference,
            "Lower in": lambda row: f"{row['lower']} of {row['seeds']} seeds",
        },
        "llccc",
    )


def seeds(study: Study) -> Table:
    """Return the difference between the arms over the steps, and whether the loss still falls."""
    means = paired(study, "seeds")
    shown = [1, *(round(means["step"].max() * tenth / 10) for tenth in TENTHS)]
    change = last_change(means)
    curves = study.curves[study.curves["purpose"] == "seeds"]
    falls = {
        arm: curves[curves["attention"] == arm].groupby("run")[["step", "validation_loss"]]
        .apply(last_tenth).mean()
        for arm in ATTENTIONS
    }  # fmt: skip
    count = int(means["seeds"].iloc[-1])
    sign = "never changes" if change is None else f"is the same from step {change:,} on"
    fall = ", ".join(f"{fall:.3f} ({arm})" for arm, fall in falls.items())
    end = f"From the ninth to the last tenth of the steps the mean loss falls by {fall}."
    if any(map(math.isnan, falls.values())):
        end = "There are too few measurements to say whether the loss still falls."
    return formatted(
        f"Both arms, {count} seed{'s' * (count > 1)}. Mean validation loss (nats) and the "
        f"difference, sigmoid minus softmax, seed by seed, with {INTERVAL}. Its sign {sign}. {end}",
        means,
        {"Step": text("step", ",.0f"), **ARMS},
        "rccc",
        means["step"].isin(shown),
    )


def sizes(study: Study) -> Table:
    """Compare the arms of each size at equal data, after steps that sizes share."""
    return formatted(
        "Sizes of the model on the same cells. Validation loss (nats); the difference, sigmoid "
        f"minus softmax, with {INTERVAL}.",
        by_size(study),
        {
            "Steps": text("step", ",.0f"),
            "Size": text("size"),
            "Parameters": lambda row: f"{row['parameters'] / 1e6:.1f}M",
            **ARMS,
            "Seeds": text("seeds"),
        },
        "rlrcccc",
    )


def scores(study: Study) -> Table:
    """Return the scores of the embeddings at the last step, and those of the controls."""
    deviations = study.scores.groupby(["metric", "step", "attention"])["value"].std().unstack()

    def spread(arm: str) -> Callable[[Row], str]:
        return lambda row: (
            f"{fixed(row[arm], 3)} ± {fixed(deviations.loc[row['metric'], row['step']][arm], 3)}"
        )

    return formatted(
        "Scores of the embeddings at the last step. Mean ± standard deviation over "
        f"seeds; the difference, sigmoid minus softmax, with {INTERVAL}. Higher is better.",
        last_scores(study).join(study.controls, on="metric"),
        {
            "Metric": text("metric"),
            **{arm.capitalize(): spread(arm) for arm in ATTENTIONS},
            **{str(name): number(str(name), 3) for name in study.controls},
            "Difference": difference,
        },
        "l" + "c" * (3 + len(study.controls.columns)),
    )


def last_scores(study: Study) -> pd.DataFrame:
    """Return the rows of :func:`score_differences` at the last step of each metric."""
    return score_differences(study).drop_duplicates("metric", keep="last")


def embeddings(study: Study) -> Table:
    """Return the scores after each step with a snapshot of the models."""
    return formatted(
        "Scores of the embeddings over the steps: means over seeds and the difference, "
        f"sigmoid minus softmax, with {INTERVAL}.",
        score_differences(study),
        {"Metric": text("metric"), "Step": text("step", ",.0f"), **ARMS},
        "lrccc",
    )


def claims(study: Study, made: Mapping[str, Table]) -> Table:
    """Compare what the paper says with this study: agrees, disagrees or open.

    A difference agrees or disagrees if its whole interval is on one side of 0.
    """
    rows: list[tuple[str, str, str]] = []
    if "seeds" in made:
        last = as_records(paired(study, "seeds"))[-1]
        name = "Lower validation loss with sigmoid"
        rows.append((name, difference(last), verdict(-last["high"], -last["low"])))
    if "scores" in made:
        for last in as_records(last_scores(study)):
            name = f"Better separated cell types with sigmoid: {last['metric']}"
            rows.append((name, difference(last), verdict(last["low"], last["high"])))
    unclipped = [name for name in first_settings(study) if "no clipping" in name][:1]
    largest = largest_rates(frontier(study)).reindex(columns=ATTENTIONS) if unclipped else None
    if largest is not None and largest.loc[unclipped].notna().all(axis=None):
        (up_to,) = as_records(largest.loc[unclipped])
        lead = up_to["sigmoid"] - up_to["softmax"]
        words = (
            f"{arm} up to {rate:g}" if rate > 0 else f"{arm} no rate" for arm, rate in up_to.items()
        )
        name = "Without clipping sigmoid trains at higher learning rates than softmax"
        rows.append((name, ", ".join(words), verdict(lead, lead)))
        counts = collapsed_by_limit(study).set_index("setting").loc[unclipped]
        diverged = dict(zip(counts["attention"], counts["diverged"], strict=True))
        words = (
            f"{row['attention']} {row['diverged']} of {row['runs']}" for row in as_records(counts)
        )
        outcome = "agrees" if diverged["softmax"] else "open"
        name = "Without clipping softmax diverges and sigmoid does not"
        outcome = "disagrees" if diverged["sigmoid"] else outcome
        rows.append((name, ", ".join(words), outcome))
    return Table(
        caption="Small models on real cells. What the paper says about its 160M models, and what "
        "the much smaller models of this study show: the difference, sigmoid minus softmax, with "
        "its interval, or the largest learning rates at which no seed collapses.",
        columns=("claim", "result", "outcome"),
        records=rows,
        header=("The paper", "Here", "At this scale"),
        rows=rows,
        align="lll",
    )


def verdict(low: float, high: float) -> str:
    """Return ``agrees`` above 0, ``disagrees`` below 0, and ``open`` if the interval contains 0."""
    return "agrees" if low > 0 else "disagrees" if high < 0 else "open"
