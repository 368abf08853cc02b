"""The tables of a study (docs/reproduction.md)."""

import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, cast

import pandas as pd

from scsigmoid.measurements import mean_interval
from scsigmoid.paper.tables.writing import Cell, Table, fixed, interval, write_table
from scsigmoid.study.figures import COLOURS, level
from scsigmoid.study.runs import (
    CONFIDENCE,
    Study,
    best_rates,
    by_size,
    endings,
    flattening,
    frontier,
    last_change,
    paired,
    scored,
    survived,
)


def write_tables(study: Study, baselines: pd.DataFrame, output: Path) -> list[Path]:
    """Write every table that the study has runs for; returns their paths."""
    families = set(study.runs["family"])
    tables: dict[str, Table] = {}
    if "rates" in set(study.started["family"]):
        tables["rates"] = rates(study)
    if "frontier" in families:
        tables["frontier"] = edges(study, level(baselines, "frequencies"))
    if len(paired(study, "seeds")):
        tables["seeds"] = seeds(study)
    if {"seeds", "variants"} <= families:
        tables["variants"] = variants(study)
    if len(by_size(study)):
        tables["scale"] = sizes(study)
    if len(scored(study)):
        tables["scores"] = scores(study)
        tables["embeddings"] = embeddings(study)
    tables["claims"] = claims(study, tables, level(baselines, "frequencies"))
    return [
        path
        for name, table in tables.items()
        for path in write_table(table, f"study_{name}", output / f"study_{name}")
    ]


def rates(study: Study) -> Table:
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
        caption=f"Validation loss (nats) by learning rate after {step:,} steps: the mean over the "
        f"seeds and, in brackets, seeds {', '.join(map(str, seeds))}. The best mean of each arm is "
        "bold.",
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


def edges(study: Study, frequencies: float) -> Table:
    """The frontier: for each setting, rate and arm, the seeds that collapsed, the loss reached."""
    runs = frontier(study, frequencies)
    records: list[tuple[Any, ...]] = []
    for key, group in runs.groupby(["setting", "learning_rate", "attention"], sort=False):
        trained = group[~group["collapsed"]]["loss"]
        largest = group[["gradient_norm", "score"]].max()
        records.append((*key, len(group), int(group["collapsed"].sum()), trained.mean(), *largest))
    rows: list[list[str]] = []
    for name, held in survived(runs).iterrows():
        words = ", ".join(map(rate_word, held.dropna().items()))
        rows.append([f"{name}. All seeds survive: {words}"])
        rows += [
            [f"{rate:g}", arm, f"{lost} of {n}", fixed(loss, 3), fixed(norm, 1), fixed(score, 0)]
            for of, rate, arm, n, lost, loss, norm, score in sorted(records)
            if of == name
        ]
    return Table(
        caption="The frontier of stability. Runs that collapsed, the mean validation loss of those "
        "that did not, and the largest gradient norm and score.",
        columns=(
            "setting", "learning_rate", "attention", "seeds", "collapsed",
            "loss", "gradient_norm", "score",
        ),
        records=records,
        header=("Rate", "Arm", "Collapsed", "Loss (nats)", "Gradient norm", "Score"),
        rows=rows,
        align="lllccc",
    )  # fmt: skip


def rate_word(held: tuple[Hashable, float]) -> str:
    """``softmax up to 0.001``."""
    arm, rate = held
    return f"{arm} up to {rate:g}" if rate > 0 else f"{arm} no rate"


def variants(study: Study) -> Table:
    """Each variant of attention beside the same arm without it, seed by seed, at the same step."""
    chosen = study.curves[study.curves["family"].isin(["seeds", "variants"])]
    last = chosen.groupby("family")["step"].max().min()
    chosen = chosen[chosen["step"] <= last]
    ends = endings(chosen, ["attention", "variants", "seed"]).unstack("seed")
    records: list[dict[str, Any]] = []
    for arm, name in ends.index:
        if not name or (arm, "") not in ends.index:
            continue
        own = ends.loc[arm, name]
        both = (own - ends.loc[arm, ""]).dropna().to_numpy(dtype=float)
        value, low, high = mean_interval(both, CONFIDENCE)
        record = {"attention": arm, "variant": name, "loss": own.mean()}
        record |= {"difference": value, "low": low, "high": high}
        records.append(record | {"seeds": len(both), "lower": int((both < 0).sum())})
    return Table(
        caption=f"Variants of attention. Validation loss (nats) after {int(last):,} steps, mean "
        "over the seeds, and the difference to the same arm without it, with Student's "
        f"{CONFIDENCE:.0%} interval.",
        records=records,
        header=("Arm", "Variant", "Loss", "Difference", "Lower in"),
        rows=[
            [
                record["attention"],
                record["variant"],
                fixed(record["loss"], 3),
                between(record),
                f"{record['lower']} of {record['seeds']} seeds",
            ]
            for record in records
        ],
        align="llccc",
    )


def seeds(study: Study) -> Table:
    """The difference of the arms over steps, and what the curves still do at the end."""
    means = paired(study, "seeds")
    tenths = [round(means["step"].max() * tenth / 10) for tenth in range(1, 11)]
    shown = means[means["step"].isin([1, *tenths])]
    change = last_change(means)
    own = study.curves[study.curves["family"] == "seeds"]
    falls = {
        arm: own[own["attention"] == arm].groupby("run")[["step", "validation_loss"]]
        .apply(flattening).mean()
        for arm in COLOURS
    }  # fmt: skip
    count = int(means["seeds"].iloc[-1])
    return Table(
        caption=f"Both arms over {count} seed{'s' * (count > 1)}. Mean validation loss (nats) "
        f"and the difference, sigmoid minus softmax, seed by seed with Student's "
        f"{CONFIDENCE:.0%} interval. "
        + (
            "It never changes sign. "
            if change is None
            else f"It keeps its sign from step {change:,} on. "
        )
        + (
            "Too few measurements to say what the last tenth of the steps lowers the loss by."
            if any(map(math.isnan, falls.values()))
            else "The last tenth of the steps lowers the loss by "
            + ", ".join(f"{fall:.3f} ({arm})" for arm, fall in falls.items())
            + "."
        ),
        records=as_records(means),
        header=("Step", "Sigmoid", "Softmax", "Difference"),
        rows=[[f"{row['step']:,.0f}", *arms(row)] for row in as_records(shown)],
        align="rccc",
    )


def as_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, by column."""
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def arms(row: Mapping[str, Any]) -> list[str]:
    return [fixed(row["sigmoid"], 3), fixed(row["softmax"], 3), between(row)]


def between(row: Mapping[str, Any]) -> str:
    """A signed difference with its interval."""
    return interval(row["difference"], row["low"], row["high"], 3, "+")


def sizes(study: Study) -> Table:
    """The arms of each size at equal data, after the steps that sizes share."""
    records = as_records(by_size(study))
    return Table(
        caption="Sizes of the model on the same cells. Validation loss (nats); the difference, "
        f"sigmoid minus softmax, with Student's {CONFIDENCE:.0%} interval.",
        records=records,
        header=("Steps", "Size", "Parameters", "Sigmoid", "Softmax", "Difference", "Seeds"),
        rows=[
            [
                f"{one['step']:,.0f}",
                one["size"],
                f"{one['parameters'] / 1e6:.1f}M",
                *arms(one),
                str(one["seeds"]),
            ]
            for one in records
        ],
        align="rlrcccc",
    )


def scores(study: Study) -> Table:
    """Scores of the embeddings of both arms at the last step, over the seeds, and of controls."""
    ends = last_scores(study).join(study.controls, on="metric")
    spread = study.scores.groupby(["metric", "step", "attention"])["value"].std().unstack()
    rows = []
    for row in as_records(ends):
        own = spread.loc[row["metric"], row["step"]]
        rows.append(
            [
                row["metric"],
                *(f"{fixed(row[arm], 3)} ± {fixed(own[arm], 3)}" for arm in COLOURS),
                *(fixed(row[str(name)], 3) for name in study.controls),
                between(row),
            ]
        )
    return Table(
        caption="Scores of the embeddings at the last step. Mean ± standard deviation over the "
        f"seeds; the difference, sigmoid minus softmax, with Student's {CONFIDENCE:.0%} interval. "
        "Higher is better.",
        records=as_records(ends),
        header=("Metric", "Sigmoid", "Softmax", *study.controls, "Difference"),
        rows=rows,
        align="l" + "c" * (3 + len(study.controls.columns)),
    )


def last_scores(study: Study) -> pd.DataFrame:
    """The rows of :func:`~scsigmoid.study.runs.scored` at the last step, one a metric."""
    return scored(study).drop_duplicates("metric", keep="last")


def embeddings(study: Study) -> Table:
    """The scores after each step at which the models were kept."""
    means = scored(study)
    return Table(
        caption="Scores of the embeddings over the steps: the means over the seeds and the "
        f"difference, sigmoid minus softmax, with Student's {CONFIDENCE:.0%} interval.",
        records=as_records(means),
        header=("Metric", "Step", "Sigmoid", "Softmax", "Difference"),
        rows=[[row["metric"], f"{row['step']:,.0f}", *arms(row)] for row in as_records(means)],
        align="lrccc",
    )


def claims(study: Study, tables: Mapping[str, Table], frequencies: float) -> Table:
    """What the paper says, and what these models show: agrees, disagrees, or open.

    A difference agrees or disagrees where its interval lies on one side of 0.
    """
    records: list[tuple[str, str, str]] = []
    if "seeds" in tables:
        last = as_records(paired(study, "seeds"))[-1]
        records.append(("Lower validation loss with sigmoid", between(last), side(last, -1)))
    if "scores" in tables:
        for last in as_records(last_scores(study)):
            name = f"Better separated cell types with sigmoid: {last['metric']}"
            records.append((name, between(last), side(last, +1)))
    if "frontier" in tables:
        own = study.runs[study.runs["family"] == "frontier"]
        held = survived(frontier(study, frequencies)).loc[own["setting"].unique()]
        name = "Without clipping softmax diverges where sigmoid trains"
        unclipped = held[held.index.str.startswith("no clipping")].head(1)
        for _, free in unclipped.reindex(columns=[*COLOURS]).dropna().iterrows():
            difference = free["sigmoid"] - free["softmax"]
            words = ", ".join(map(rate_word, free.items()))
            records.append((name, words, side({"low": difference, "high": difference}, +1)))
    return Table(
        caption="Small models on real cells. What the paper says of its 160M models, and what the "
        "models of this study, far below its scale, show: the difference, sigmoid minus "
        "softmax, with its interval, or the largest rates that all seeds survive.",
        columns=("claim", "result", "outcome"),
        records=records,
        header=("The paper", "Here", "At this scale"),
        rows=records,
        align="lll",
    )


def side(row: Mapping[str, Any], sign: int) -> str:
    """``agrees`` or ``disagrees`` by the sign of the whole interval; ``open`` if it holds 0."""
    low, high = sorted((sign * row["low"], sign * row["high"]))
    return "agrees" if low > 0 else "disagrees" if high < 0 else "open"
