"""The tables of a study (docs/reproduction.md)."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scsigmoid.measurements import mean_interval
from scsigmoid.paper.tables.writing import Cell, Table, fixed, signed, write_table
from scsigmoid.study.figures import COLOURS, by_size, level
from scsigmoid.study.runs import (
    CONFIDENCE,
    Study,
    ending,
    flattening,
    frontier,
    last_change,
    paired,
    survived,
)


def write_tables(study: Study, baselines: pd.DataFrame, output: Path) -> list[Path]:
    """Write every table that the study has runs for; returns their paths."""
    families = set(study.runs["family"])
    tables: dict[str, Table] = {}
    if "rates" in families:
        tables["rates"] = rates(study)
    if "frontier" in families:
        tables["frontier"] = edges(study, level(baselines, "frequencies"))
    if "seeds" in families:
        tables["seeds"] = seeds(study)
    if "scale" in families:
        tables["scale"] = sizes(study)
    if (study.folder / "scores.csv").is_file():
        tables["scores"] = scores(study)
    return [
        path
        for name, table in tables.items()
        for path in write_table(table, f"study_{name}", output / f"study_{name}")
    ]


def rates(study: Study) -> Table:
    """Validation loss at the end of each rate."""
    chosen = study.curves[study.curves["family"] == "rates"].dropna(subset=["validation_loss"])
    ends = chosen.groupby(["learning_rate", "attention"])["validation_loss"].apply(ending).unstack()
    best = ends.idxmin()
    return Table(
        caption="Validation loss (nats) by learning rate, one seed. The best of each arm is bold.",
        columns=("learning_rate", *COLOURS),
        records=[(rate, *(row[arm] for arm in COLOURS)) for rate, row in ends.iterrows()],
        header=("Learning rate", *(arm.capitalize() for arm in COLOURS)),
        rows=[
            [
                Cell(f"{rate:g}"),
                *(Cell(fixed(row[arm], 3), bold=best[arm] == rate) for arm in COLOURS),
            ]
            for rate, row in ends.iterrows()
        ],
        align="lcc",
    )


def edges(study: Study, frequencies: float) -> Table:
    """The frontier: for each arm, clipping and rate, the seeds that collapsed, the loss reached."""
    runs = frontier(study, frequencies)
    held = survived(runs)
    records: list[tuple[Any, ...]] = []
    for (clipping, rate, arm), group in runs.groupby(["clipping", "learning_rate", "attention"]):
        trained = group[~group["collapsed"]]
        records.append(
            (
                "1.0" if clipping else "none",
                rate,
                arm,
                len(group),
                int(group["collapsed"].sum()),
                float(trained["loss"].mean()) if len(trained) else math.nan,
                float(group["gradient_norm"].max()),
                float(group["score"].max()),
            )
        )
    words = "; ".join(
        f"{arm} {'with' if clipping else 'without'} clipping "
        + (f"{rate:g}" if math.isfinite(rate) else "none")
        for (arm, clipping), rate in sorted(held.items(), key=lambda item: item[0][::-1])
    )
    return Table(
        caption="The frontier of stability. Runs that collapsed, the mean validation loss of those "
        f"that did not, and the largest gradient norm and score. Largest rate that all seeds "
        f"survive: {words}.",
        columns=(
            "clipping", "learning_rate", "attention", "seeds", "collapsed",
            "loss", "gradient_norm", "score",
        ),
        records=records,
        header=("Clipping", "Rate", "Arm", "Collapsed", "Loss (nats)", "Gradient norm", "Score"),
        rows=[
            [
                Cell(clipping),
                Cell(f"{rate:g}"),
                Cell(arm),
                Cell(f"{lost} of {count}"),
                Cell(fixed(reached, 3)),
                Cell(fixed(norm, 1)),
                Cell(fixed(score, 0)),
            ]
            for clipping, rate, arm, count, lost, reached, norm, score in records
        ],
        align="llllccc",
    )  # fmt: skip


def seeds(study: Study) -> Table:
    """The difference of the arms over steps, and what the curves still do at the end."""
    means = paired(study, "seeds")
    shown = means[np.isin(means["step"], ticks(means["step"].max()))]
    change = last_change(means)
    own = study.curves[study.curves["family"] == "seeds"]
    falls = {
        arm: own[own["attention"] == arm].groupby("run")[["step", "validation_loss"]]
        .apply(flattening).mean()
        for arm in COLOURS
    }  # fmt: skip
    return Table(
        caption=f"Both arms over {int(means['seeds'].iloc[-1])} seeds. Mean validation loss (nats) "
        f"and the difference, sigmoid minus softmax, seed by seed with Student's "
        f"{CONFIDENCE:.0%} interval. "
        + (
            "It never changes sign. "
            if change is None
            else f"It keeps its sign from step {change:,} on. "
        )
        + "The last tenth of the steps lowers the loss by "
        + ", ".join(f"{fall:.3f} ({arm})" for arm, fall in falls.items())
        + ".",
        columns=tuple(means.columns),
        records=[tuple(row) for row in means.itertuples(index=False)],
        header=("Step", "Sigmoid", "Softmax", "Difference"),
        rows=[
            [
                Cell(f"{row['step']:,.0f}"),
                Cell(fixed(row["sigmoid"], 3)),
                Cell(fixed(row["softmax"], 3)),
                Cell(between(row)),
            ]
            for row in shown.to_dict("records")
        ],
        align="rccc",
    )


def between(row: Mapping[Any, Any]) -> str:
    """A signed difference with its interval."""
    value, low, high = (row[name] for name in ("difference", "low", "high"))
    if math.isnan(low):
        return signed(value, 3)
    return f"{signed(value, 3)} [{signed(low, 3)}, {signed(high, 3)}]"


def ticks(last: float) -> list[int]:
    """Ten steps up to the last one, the first among them."""
    return [1, *(round(last * tenth / 10) for tenth in range(1, 11))]


def sizes(study: Study) -> Table:
    """The arms of each size at equal data."""
    found = by_size(study)
    last = min(table["step"].max() for table in found.values())
    records: list[tuple[object, ...]] = []
    rows = []
    for size, table in found.items():
        row = table[table["step"] <= last].to_dict("records")[-1]
        parameters = int(study.runs[study.runs["size"] == size]["parameters"].iloc[0])
        records.append((size, parameters, *row.values()))
        rows.append(
            [
                Cell(size),
                Cell(f"{parameters / 1e6:.1f}M"),
                Cell(fixed(row["sigmoid"], 3)),
                Cell(fixed(row["softmax"], 3)),
                Cell(between(row)),
                Cell(str(int(row["seeds"]))),
            ]
        )
    return Table(
        caption=f"Three sizes after {int(last):,} steps on the same cells. Validation loss (nats); "
        f"the difference, sigmoid minus softmax, with Student's {CONFIDENCE:.0%} interval.",
        columns=("size", "parameters", *next(iter(found.values())).columns),
        records=records,
        header=("Size", "Parameters", "Sigmoid", "Softmax", "Difference", "Seeds"),
        rows=rows,
        align="lrcccc",
    )


def scores(study: Study) -> Table:
    """Scores of the embeddings of both arms over the seeds, and of the controls."""
    table = study.table("scores").join(
        study.runs.set_index("name")[["attention", "seed"]], on="run", how="left"
    )
    records: list[tuple[object, ...]] = []
    rows = []
    controls = [name for name in dict.fromkeys(table["run"]) if name not in set(study.runs["name"])]
    for metric, group in table.groupby("metric", sort=False):
        arms = group.pivot_table("value", "seed", "attention")
        found = mean_interval((arms["sigmoid"] - arms["softmax"]).to_numpy(), CONFIDENCE)
        own = group.set_index("run")["value"]
        records.append(
            (
                metric,
                *(arms[arm].mean() for arm in COLOURS),
                *(own[name] for name in controls),
                found.value,
                found.low,
                found.high,
                len(arms),
            )
        )
        rows.append(
            [
                Cell(str(metric)),
                *(Cell(f"{fixed(arms[a].mean(), 3)} ± {fixed(arms[a].std(), 3)}") for a in COLOURS),
                *(Cell(fixed(float(own[name]), 3)) for name in controls),
                Cell(between({**found._asdict(), "difference": found.value})),
            ]
        )
    return Table(
        caption=f"Embeddings of PBMC 3k, a donor never trained on. Mean ± standard deviation over "
        f"the seeds; the difference, sigmoid minus softmax, with Student's {CONFIDENCE:.0%} "
        "interval. Higher is better.",
        columns=(
            "metric", *COLOURS, *controls, "difference", "low", "high", "seeds",
        ),
        records=records,
        header=("Metric", "Sigmoid", "Softmax", *controls, "Difference"),
        rows=rows,
        align="l" + "c" * (3 + len(controls)),
    )  # fmt: skip
