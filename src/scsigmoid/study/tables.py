"""The tables of a study (docs/reproduction.md)."""

import math
from collections.abc import Hashable, Mapping
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
    if len(paired(study, "seeds")):
        made["seeds"] = seeds(study)
        if paired(study, "seeds")["seeds"].iloc[-1] > 1:
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


def rates(study: Study) -> Table:
    """Return validation losses by learning rate."""
    ends, best, step = best_rates(study)
    arms = list(best.index)
    seeds = sorted(set(ends.columns.get_level_values("seed")))
    texts = {
        arm: ends[arm].apply(
            lambda losses: f"{fixed(losses.mean(), 3)} ({', '.join(fixed(x, 2) for x in losses)})",
            axis=1,
        )
        for arm in arms
    }
    return Table(
        caption="Validation loss (nats) by learning rate, median of the last three measurements "
        f"up to step {step:,}: mean over seeds and, in brackets, seeds "
        f"{', '.join(map(str, seeds))}. The best mean of each arm is bold.",
        columns=("learning_rate", *(f"{arm}_seed_{seed}" for arm in arms for seed in seeds)),
        records=[
            (rate, *(row[arm, seed] for arm in arms for seed in seeds))
            for rate, row in ends.iterrows()
        ],
        header=("Learning rate", *(arm.capitalize() for arm in arms)),
        rows=[
            [f"{rate:g}", *(Cell(texts[arm][rate], bold=best[arm] == rate) for arm in arms)]
            for rate in ends.index
        ],
        align="l" + "c" * len(arms),
    )


def survived(study: Study) -> Table:
    """Return the largest learning rate at which every seed trains, by setting and arm."""
    runs = frontier(study)
    groups = runs.groupby("setting")
    tried = groups["learning_rate"].agg(["min", "max"])
    largest = largest_rates(runs).reindex(columns=ATTENTIONS).join(tried)
    rows = as_records(largest.assign(seeds=groups["seed"].nunique()).reset_index())
    return Table(
        caption="The largest learning rate up to which no seed collapsed, of the rates tried.",
        records=rows,
        header=("Setting", "Seeds", "Rates tried", *map(str.capitalize, ATTENTIONS)),
        rows=[
            [
                row["setting"],
                str(row["seeds"]),
                f"{row['min']:g} to {row['max']:g}",
                *(rate_text(row[arm]) for arm in ATTENTIONS),
            ]
            for row in rows
        ],
        align="lcccc",
    )


def rate_text(rate: float) -> str:
    """Return a rate as text, ``none`` for 0."""
    return DASH if math.isnan(rate) else f"{rate:g}" if rate else "none"


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
    rates = sorted(runs[runs["setting"].isin(shown)]["learning_rate"].unique())

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
        header=("Learning rate", *(f"{rate:g}" for rate in rates)),
        rows=[
            [
                f"{arm}, {setting.split(',')[0]}",
                *(texts.get((setting, arm, rate), DASH) for rate in rates),
            ]
            for setting in shown
            for arm in ATTENTIONS
        ],
        align="l" + "c" * len(rates),
    )


def limits(study: Study) -> Table:
    """Return how the number of collapsed runs depends on the limit."""
    table = collapsed_by_limit(study)
    return Table(
        caption="Runs whose final validation loss is less than a limit (0.1 to 0.7 nats) below the "
        f"gene-frequency baseline, or more than {WORSE:g} nats above the run's minimum. The rule "
        f"for collapsed runs has the limit {BETTER:g}. Diverged: the run left a loss that it had "
        "reached, and its gradient exploded (docs/preregistration.md). Norm: the largest gradient "
        "norm of all logged steps.",
        records=as_records(table),
        header=("Setting", "Arm", "Runs", *(f"{limit:g}" for limit in LIMITS), "Diverged", "Norm"),
        rows=[
            [
                row["setting"],
                row["attention"],
                *(str(row[key]) for key in ("runs", *(f"collapsed_{limit:g}" for limit in LIMITS))),
                str(row["diverged"]),
                fixed(row["gradient_norm"], 0),
            ]
            for row in as_records(table)
        ],
        align="ll" + "r" * (len(LIMITS) + 3),
    )


def clipped(study: Study) -> Table:
    """Return how often clipping acted, and the gradient norms."""
    table = clipping(study)
    names = ("minimum", "lower", "median", "upper", "maximum")
    return Table(
        caption="Share of the logged steps of runs with clipping where the gradient norm is above "
        "the limit, and minimum, quartiles and maximum of the norm before clipping.",
        records=as_records(table),
        header=("Family", "Arm", "Steps", "Clipped", "Min.", "25%", "Median", "75%", "Max."),
        rows=[
            [
                row["family"],
                row["attention"],
                f"{row['steps']:,}",
                f"{row['clipped']:.1%}",
                *(fixed(row[name], 0 if row[name] >= 100 else 1) for name in names),
            ]
            for row in as_records(table)
        ],
        align="ll" + "r" * 7,
    )


def power(study: Study) -> Table:
    """Return which difference between the arms the seeds can resolve."""
    table = powers(study, POWER_TENTHS)
    return Table(
        caption="What the seeds can resolve, in nats of validation loss: the standard deviation of "
        f"the paired difference over seeds, half the width of {INTERVAL}, and the true difference "
        "that such an interval would separate from zero in 80% of repetitions.",
        records=as_records(table),
        header=("Step", "Seeds", "Standard deviation", "Half width", "Found in 80%"),
        rows=[
            [
                f"{row['step']:,.0f}",
                str(row["seeds"]),
                *(fixed(row[name], 3) for name in ("deviation", "half_width", "detectable")),
            ]
            for row in as_records(table)
        ],
        align="rcccc",
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
    return Table(
        caption="Variants of attention. Validation loss (nats), median of the last three "
        f"measurements up to step {int(last):,}, mean over seeds, and the difference to the same "
        f"arm without the variant, with {INTERVAL}.",
        records=records,
        header=("Arm", "Variant", "Loss", "Difference", "Lower in"),
        rows=[
            [
                record["attention"],
                record["variant"],
                fixed(record["loss"], 3),
                difference_text(record),
                f"{record['lower']} of {record['seeds']} seeds",
            ]
            for record in records
        ],
        align="llccc",
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
    return Table(
        caption=f"Both arms, {count} seed{'s' * (count > 1)}. Mean validation loss (nats) and the "
        f"difference, sigmoid minus softmax, seed by seed, with {INTERVAL}. "
        + (
            "Its sign never changes. "
            if change is None
            else f"Its sign is the same from step {change:,} on. "
        )
        + (
            "There are too few measurements to say whether the loss still falls."
            if any(map(math.isnan, falls.values()))
            else "From the ninth to the last tenth of the steps the mean loss falls by "
            + ", ".join(f"{fall:.3f} ({arm})" for arm, fall in falls.items())
            + "."
        ),
        records=as_records(means),
        header=("Step", "Sigmoid", "Softmax", "Difference"),
        rows=[
            [f"{row['step']:,.0f}", *arm_texts(row)]
            for row in as_records(means[means["step"].isin(shown)])
        ],
        align="rccc",
    )


def as_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dictionaries."""
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def arm_texts(row: Mapping[str, Any]) -> list[str]:
    """Return the values of both arms and their difference as texts."""
    return [fixed(row["sigmoid"], 3), fixed(row["softmax"], 3), difference_text(row)]


def difference_text(row: Mapping[str, Any]) -> str:
    """Return a signed difference with its interval."""
    return interval(row["difference"], row["low"], row["high"], 3, "+")


def sizes(study: Study) -> Table:
    """Compare the arms of each size at equal data, after steps that sizes share."""
    records = as_records(by_size(study))
    return Table(
        caption="Sizes of the model on the same cells. Validation loss (nats); the difference, "
        f"sigmoid minus softmax, with {INTERVAL}.",
        records=records,
        header=("Steps", "Size", "Parameters", "Sigmoid", "Softmax", "Difference", "Seeds"),
        rows=[
            [
                f"{row['step']:,.0f}",
                row["size"],
                f"{row['parameters'] / 1e6:.1f}M",
                *arm_texts(row),
                str(row["seeds"]),
            ]
            for row in records
        ],
        align="rlrcccc",
    )


def scores(study: Study) -> Table:
    """Return the scores of the embeddings at the last step, and those of the controls."""
    ends = last_scores(study).join(study.controls, on="metric")
    deviations = study.scores.groupby(["metric", "step", "attention"])["value"].std().unstack()
    rows = []
    for row in as_records(ends):
        own = deviations.loc[row["metric"], row["step"]]
        rows.append(
            [
                row["metric"],
                *(f"{fixed(row[arm], 3)} ± {fixed(own[arm], 3)}" for arm in ATTENTIONS),
                *(fixed(row[str(name)], 3) for name in study.controls),
                difference_text(row),
            ]
        )
    return Table(
        caption="Scores of the embeddings at the last step. Mean ± standard deviation over "
        f"seeds; the difference, sigmoid minus softmax, with {INTERVAL}. Higher is better.",
        records=as_records(ends),
        header=("Metric", "Sigmoid", "Softmax", *study.controls, "Difference"),
        rows=rows,
        align="l" + "c" * (3 + len(study.controls.columns)),
    )


def last_scores(study: Study) -> pd.DataFrame:
    """Return the rows of :func:`score_differences` at the last step of each metric."""
    return score_differences(study).drop_duplicates("metric", keep="last")


def embeddings(study: Study) -> Table:
    """Return the scores after each step with a snapshot of the models."""
    means = as_records(score_differences(study))
    return Table(
        caption="Scores of the embeddings over the steps: means over seeds and the difference, "
        f"sigmoid minus softmax, with {INTERVAL}.",
        records=means,
        header=("Metric", "Step", "Sigmoid", "Softmax", "Difference"),
        rows=[[row["metric"], f"{row['step']:,.0f}", *arm_texts(row)] for row in means],
        align="lrccc",
    )


def claims(study: Study, made: Mapping[str, Table]) -> Table:
    """Compare what the paper says with this study: agrees, disagrees or open.

    A difference agrees or disagrees if its whole interval is on one side of 0.
    """
    records: list[tuple[str, str, str]] = []
    if "seeds" in made:
        last = as_records(paired(study, "seeds"))[-1]
        name = "Lower validation loss with sigmoid"
        records.append((name, difference_text(last), verdict(last, -1)))
    if "scores" in made:
        for last in as_records(last_scores(study)):
            name = f"Better separated cell types with sigmoid: {last['metric']}"
            records.append((name, difference_text(last), verdict(last, +1)))
    if "frontier" in made:
        unclipped = [name for name in first_settings(study) if "no clipping" in name][:1]
        largest = largest_rates(frontier(study)).reindex(columns=ATTENTIONS)
        for _, rates in largest.loc[unclipped].dropna().iterrows():
            name = "Without clipping sigmoid trains at higher learning rates than softmax"
            words = ", ".join(map(largest_rate, rates.items()))
            difference = rates["sigmoid"] - rates["softmax"]
            records.append((name, words, verdict({"low": difference, "high": difference}, +1)))
            counts = {
                row["attention"]: row
                for row in as_records(collapsed_by_limit(study))
                if row["setting"] in unclipped
            }
            sigmoid, softmax = (counts[arm]["diverged"] for arm in ATTENTIONS)
            name = "Without clipping softmax diverges and sigmoid does not"
            words = ", ".join(
                f"{arm} {row['diverged']} of {row['runs']}" for arm, row in counts.items()
            )
            outcome = "disagrees" if sigmoid else "agrees" if softmax else "open"
            records.append((name, words, outcome))
    return Table(
        caption="Small models on real cells. What the paper says about its 160M models, and what "
        "the much smaller models of this study show: the difference, sigmoid minus softmax, with "
        "its interval, or the largest learning rates at which no seed collapses.",
        columns=("claim", "result", "outcome"),
        records=records,
        header=("The paper", "Here", "At this scale"),
        rows=records,
        align="lll",
    )


def largest_rate(rate: tuple[Hashable, float]) -> str:
    """Return an arm and its largest rate as text: ``softmax up to 0.001``."""
    arm, value = rate
    return f"{arm} up to {value:g}" if value > 0 else f"{arm} no rate"


def verdict(row: Mapping[str, Any], sign: int) -> str:
    """Return ``agrees`` or ``disagrees`` by the interval's sign, ``open`` if it contains 0."""
    low, high = sorted((sign * row["low"], sign * row["high"]))
    return "agrees" if low > 0 else "disagrees" if high < 0 else "open"
