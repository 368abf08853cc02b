"""The figures of a study (docs/reproduction.md)."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scsigmoid.paper.figures.style import (
    DOUBLE,
    INK,
    MUTED,
    logarithmic,
    new_figure,
    remark,
    save,
    styled,
)
from scsigmoid.paper.labels import CONTROLS, METRICS
from scsigmoid.study.runs import Study, by_size, frontier, last_change, paired, scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"sigmoid": "#0072B2", "softmax": "#D55E00"}
DPI = 200
TITLES = METRICS | {"linear_probe": "Linear probe", "mmd": "MMD, mean of the pairs"}


def draw(study: Study, baselines: pd.DataFrame, output: Path) -> list[Path]:
    """Draw every figure that the study has runs for; returns their paths."""
    families = set(study.runs["family"])
    known = {
        "loss": (len(paired(study, "seeds")) > 0, loss),
        "embeddings": (len(scored(study)) > 0, embeddings),
        "frontier": ("frontier" in families, stability),
        "scale": (len(by_size(study)) > 0, scale),
    }
    paths = []
    with styled():
        for name, (there, function) in known.items():
            if there:
                figure = function(study, baselines)
                paths += save(figure, output / f"study_{name}", DPI, ["png"])
    return paths


def level(baselines: pd.DataFrame, name: str) -> float:
    """The loss of a baseline on the validation cells."""
    found = baselines[(baselines["dataset"] == "validation") & (baselines["baseline"] == name)]
    return float(found["loss"].iloc[0])


def loss(study: Study, baselines: pd.DataFrame) -> "Figure":
    """Validation loss of both arms over steps, the paired difference, and the keys of a row."""
    figure = new_figure(DOUBLE, 2.7)
    left, middle, right = figure.subplots(1, 3)
    curves = study.curves[study.curves["family"] == "seeds"].dropna(subset=["validation_loss"])
    means = paired(study, "seeds")
    rates = study.runs[study.runs["family"] == "seeds"].groupby("attention")["learning_rate"]
    over_steps(left, curves, "validation_loss", means)
    for name in ("frequencies", "rank and length"):
        dotted(left, level(baselines, name), name, means["step"].max())
    left.set_title("Validation loss (nats)")
    left.legend(loc="lower left")
    difference(middle, means)
    middle.set_title("Sigmoid minus softmax")
    layers = study.layers[study.layers["family"] == "seeds"]
    rows = layers.groupby(["attention", "run", "step"])["keys"].median().reset_index()
    typical = rows.pivot_table("keys", "step", "attention").reset_index()
    over_steps(right, rows, "keys", typical)
    logarithmic(right)
    right.set_title("Keys attended to")
    for axes in (left, middle, right):
        axes.set_xlabel("Step")
        axes.locator_params(axis="x", nbins=4)
    remark(
        figure,
        f"Learning rates: {', '.join(f'{rates.first()[arm]:g} ({arm})' for arm in COLOURS)}. Thin: "
        "seeds. Dotted: what is reached without attention; where the mean difference changes sign "
        "for good. Keys: exp of the entropy of a row's weights, median of rows and layers.",
    )
    return figure


def over_steps(
    axes: "Axes", curves: pd.DataFrame, column: str, means: pd.DataFrame, marker: str = ""
) -> None:
    """Both arms over steps: every run thin, the mean over the seeds thick."""
    for arm, colour in COLOURS.items():
        for _, one in curves[curves["attention"] == arm].groupby("run"):
            axes.plot(one["step"], one[column], marker, color=colour, alpha=0.3, linewidth=0.7)
        axes.plot(means["step"], means[arm], marker, color=colour, linewidth=1.6, label=arm)


def dotted(axes: "Axes", value: float, name: str, end: float) -> None:
    """What is reached without a model, with its name, which ends at the step ``end``."""
    axes.axhline(value, color=MUTED, linewidth=0.7, linestyle=":")
    axes.annotate(name, (end, value), ha="right", va="bottom", fontsize=6.5, color=MUTED)


def embeddings(study: Study, _: pd.DataFrame) -> "Figure":
    """The scores of the embeddings over steps, every seed, beside those of the controls."""
    metrics = {str(k): means for k, means in scored(study).groupby("metric", sort=False)}
    columns = 3
    figure = new_figure(DOUBLE, 2.1 * -(-len(metrics) // columns))
    panels = figure.subplots(-(-len(metrics) // columns), columns, squeeze=False).ravel()
    for axes, (metric, means) in zip(panels, metrics.items(), strict=False):
        own = study.scores[study.scores["metric"] == metric]
        over_steps(axes, own, "value", means, ".-")
        for name, values in study.controls.items():
            dotted(axes, float(values[metric]), CONTROLS[str(name)], means["step"].max())
        axes.set_title(TITLES[metric])
        axes.set_xlabel("Step")
        axes.locator_params(axis="x", nbins=4)
    for axes in panels[len(metrics) :]:
        axes.set_axis_off()
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center")
    return figure


def difference(axes: "Axes", means: pd.DataFrame) -> None:
    """The paired difference with its interval, and where it changes sign for good."""
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.fill_between(
        means["step"], means["low"], means["high"], color=INK, alpha=0.15, linewidth=0
    )
    axes.plot(means["step"], means["difference"], color=INK)
    change = last_change(means)
    if change is not None:
        axes.axvline(change, color=INK, linewidth=0.7, linestyle=":")


def stability(study: Study, baselines: pd.DataFrame) -> "Figure":
    """Where the runs of each rate end, and the curves at the lowest rate that an arm loses."""
    runs = frontier(study, level(baselines, "frequencies"))
    figure = new_figure(DOUBLE, 4.4)
    grid = figure.subplot_mosaic([["free", "free", "clipped", "clipped"], list("abcd")])
    settings = study.runs[study.runs["family"] == "frontier"]["setting"].unique()
    for name, setting in zip(("free", "clipped"), settings, strict=False):
        ends(grid[name], runs[runs["setting"] == setting])
        grid[name].axhline(level(baselines, "frequencies"), color=MUTED, linewidth=0.7, ls=":")
        grid[name].set_title(setting.split(",")[0].capitalize())
    grid["clipped"].sharey(grid["free"])
    grid["free"].set_ylabel("Validation loss at the end (nats)")
    grid["free"].legend(loc="lower right", fontsize=6, handletextpad=0.2)
    free = runs[runs["setting"] == settings[0]]
    lost = free.groupby(["learning_rate", "attention"])["collapsed"].all()
    rate, which = free["learning_rate"].max(), "the highest"
    if lost.any():
        rate, arm = lost.idxmax()  # the first
        which = f"the lowest that no {arm} run survives"
    own = study.runs[study.runs["family"].str.startswith("frontier")]
    own = own[(own["setting"] == settings[0]) & (own["learning_rate"] == rate)]
    curves, layers = (table[table["run"].isin(own.index)] for table in (study.curves, study.layers))
    panels = (
        (curves, "loss", "Training loss (nats)", False),
        (curves, "gradient_norm", "Gradient norm", True),
        (curves, "attention_score_max", "Largest |score|, layer 0", True),
        (layers, "keys", "Keys attended to", True),
    )
    for panel, (table, column, title, log) in zip("abcd", panels, strict=True):
        axes = grid[panel]
        for arm, colour in COLOURS.items():
            for _, one in table[table["attention"] == arm].groupby("run"):
                lines = one.groupby("step")[column].median()
                axes.plot(lines.index, lines, color=colour, linewidth=0.8, alpha=0.8)
        if log:
            logarithmic(axes)
        axes.set_title(title, fontsize=7)
        axes.set_xlabel("Step")
    remark(
        figure,
        f"Cross: collapsed. Dotted: the loss of gene frequencies. Below: every seed "
        f"({settings[0]}) at a rate of {rate:g}, {which}; keys: exp of the entropy of a row's "
        "weights, median of rows and layers.",
    )
    return figure


def ends(axes: "Axes", runs: pd.DataFrame) -> None:
    """Final validation loss over the learning rate: dots where a run trained, crosses if not."""
    for shift, (arm, colour) in zip((0.96, 1.04), COLOURS.items(), strict=True):
        own = runs[runs["attention"] == arm]
        finite = own[np.isfinite(own["loss"])]
        line = finite.groupby("learning_rate")["loss"].median()
        axes.plot(line.index, line, color=colour, linewidth=0.8, alpha=0.6)
        for collapsed, marker, label in ((False, "o", arm), (True, "x", f"{arm}, collapsed")):
            points = finite[finite["collapsed"] == collapsed]
            if points.empty:
                continue
            axes.plot(
                points["learning_rate"] * shift,
                points["loss"],
                marker,
                color=colour,
                markersize=4,
                label=label,
            )
        for rate in own[~np.isfinite(own["loss"])]["learning_rate"]:
            # Beyond numbers: on the upper edge.
            edge = axes.get_xaxis_transform()
            axes.plot(
                rate * shift, 1, "x", color=colour, markersize=4, clip_on=False, transform=edge
            )
    axes.set_xscale("log", base=2)
    rates = sorted(runs["learning_rate"].unique())
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates], fontsize=6)
    axes.set_xlabel("Learning rate")


def scale(study: Study, _: pd.DataFrame) -> "Figure":
    """The difference of the arms by size at equal data, every seed, after the steps they share."""
    steps = by_size(study).groupby("step")
    figure = new_figure(DOUBLE, 2.6)
    panels = figure.subplots(1, len(steps), sharey=True, squeeze=False)[0]
    for axes, (step, rows) in zip(panels, steps, strict=True):
        places = range(len(rows))
        axes.plot(places, rows["difference"], "_", color=INK, markersize=22)
        axes.plot(places, rows.filter(like="seed_"), "o", color=MUTED, alpha=0.6, markersize=4)
        axes.axhline(0, color=INK, linewidth=0.6)
        axes.set_xticks(places, rows["size"])
        axes.set_xlim(-0.5, len(rows) - 0.5)
        axes.set_xlabel("Layers x width")
        axes.set_title(f"After {step:,} steps")
    panels[0].set_ylabel("Sigmoid minus softmax (nats)")
    remark(figure, "Validation loss at equal data. Points: seeds; line: their mean.")
    return figure
