"""The figures of a study (docs/reproduction.md)."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd

from scsigmoid.labels import CONTROLS, METRICS
from scsigmoid.report.figures.style import (
    DOUBLE,
    INK,
    MUTED,
    logarithmic,
    new_figure,
    remark,
    save,
    styled,
)
from scsigmoid.study.comparisons import by_size, last_change, paired, score_differences
from scsigmoid.study.runs import Study
from scsigmoid.study.stability import first_settings, frontier

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"sigmoid": "#0072B2", "softmax": "#D55E00"}
DPI = 200
TITLES = METRICS | {"linear_probe": "Linear probe", "mmd": "MMD, mean over pairs"}
KEYS = "Effective number of keys"
KEYS_NOTE = (
    "Effective number of keys: exp(entropy) of a query's weights, median of queries and layers."
)


def draw(study: Study, output: Path) -> list[Path]:
    """Draw every figure that the study has runs for, and return their paths."""
    figures = {
        "loss": (len(paired(study, "seeds")) > 0, loss),
        "embeddings": (len(score_differences(study)) > 0, embeddings),
        "frontier": ("stability" in set(study.runs["purpose"]), stability),
        "scale": (len(by_size(study)) > 0, scale),
    }
    paths = []
    with styled():
        for name, (has_runs, function) in figures.items():
            if has_runs:
                paths += save(function(study), output / f"study_{name}", DPI, ["png"])
    return paths


def loss(study: Study) -> "Figure":
    """Draw validation loss, paired difference and effective number of keys over the steps."""
    figure = new_figure(DOUBLE, 2.7)
    left, middle, right = figure.subplots(1, 3)
    curves = study.curves[study.curves["purpose"] == "seeds"].dropna(subset=["validation_loss"])
    means = paired(study, "seeds")
    rates = study.runs[study.runs["purpose"] == "seeds"].groupby("attention")["learning_rate"]
    over_steps(left, curves, "validation_loss", means)
    for name in ("frequencies", "rank and length"):
        reference(left, study.baseline(name), name, means["step"].max())
    left.set_title("Validation loss (nats)")
    left.legend(loc="lower left")
    difference(middle, means)
    middle.set_title("Sigmoid minus softmax (nats)")
    layers = study.layers[study.layers["purpose"] == "seeds"]
    keys = layers.groupby(["attention", "run", "step"])["keys"].median().reset_index()
    over_steps(right, keys, "keys", keys.pivot_table("keys", "step", "attention").reset_index())
    logarithmic(right)
    right.set_title(KEYS)
    for axes in (left, middle, right):
        axes.set_xlabel("Step")
        axes.locator_params(axis="x", nbins=4)
    remark(
        figure,
        f"Learning rates: {', '.join(f'{rates.first()[arm]:g} ({arm})' for arm in COLORS)}. Thin "
        "lines are single seeds, thick lines their mean. Horizontal dotted lines are guesses "
        "without attention. Band: Student's 95% interval. The vertical dotted line is the last "
        f"change of the difference's sign. {KEYS_NOTE}",
    )
    return figure


def over_steps(
    axes: "Axes", curves: pd.DataFrame, column: str, means: pd.DataFrame, marker: str = ""
) -> None:
    """Draw both arms over the steps: thin lines for runs, thick lines for means over seeds."""
    for arm, color in COLORS.items():
        for _, run in curves[curves["attention"] == arm].groupby("run"):
            axes.plot(run["step"], run[column], marker, color=color, alpha=0.3, linewidth=0.7)
        axes.plot(means["step"], means[arm], marker, color=color, linewidth=1.6, label=arm)


def reference(axes: "Axes", value: float, name: str, end: float) -> None:
    """Draw a dotted line at the value of a baseline, with its name above its end."""
    axes.axhline(value, color=MUTED, linewidth=0.7, linestyle=":")
    axes.annotate(name, (end, value), ha="right", va="bottom", fontsize=6.5, color=MUTED)


def embeddings(study: Study) -> "Figure":
    """Draw the scores of the embeddings over the steps, and those of the controls."""
    by_metric = score_differences(study).groupby("metric", sort=False)
    metrics = {str(metric): means for metric, means in by_metric}
    columns = 3
    figure = new_figure(DOUBLE, 2.1 * -(-len(metrics) // columns))
    panels = figure.subplots(-(-len(metrics) // columns), columns, squeeze=False).ravel()
    for axes, (metric, means) in zip(panels, metrics.items(), strict=False):
        scores = study.scores[study.scores["metric"] == metric]
        over_steps(axes, scores, "value", means, ".-")
        for name, values in study.controls.items():
            reference(axes, float(values[metric]), CONTROLS[str(name)], means["step"].max())
        axes.set_title(TITLES[metric])
        axes.set_xlabel("Step")
        axes.locator_params(axis="x", nbins=4)
    for axes in panels[len(metrics) :]:
        axes.set_axis_off()
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center")
    return figure


def difference(axes: "Axes", means: pd.DataFrame) -> None:
    """Draw the paired difference with its interval, and the last change of its sign."""
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.fill_between(
        means["step"], means["low"], means["high"], color=INK, alpha=0.15, linewidth=0
    )
    axes.plot(means["step"], means["difference"], color=INK)
    change = last_change(means)
    if change is not None:
        axes.axvline(change, color=INK, linewidth=0.7, linestyle=":")


def stability(study: Study) -> "Figure":
    """Draw final losses by learning rate, and curves at the lowest rate where an arm collapses."""
    runs, baseline = frontier(study), study.baseline("frequencies")
    figure = new_figure(DOUBLE, 4.4)
    grid = figure.subplot_mosaic([["free", "free", "clipped", "clipped"], list("abcd")])
    settings = first_settings(study)
    for name, setting in zip(("free", "clipped"), settings, strict=False):
        final_losses(grid[name], runs[runs["setting"] == setting])
        grid[name].axhline(baseline, color=MUTED, linewidth=0.7, ls=":")
        grid[name].set_title(setting.split(",")[0].capitalize())
    grid["clipped"].sharey(grid["free"])
    grid["free"].set_ylabel("Validation loss at the end (nats)")
    grid["free"].legend(loc="lower right", fontsize=6, handletextpad=0.2)
    free = runs[runs["setting"] == settings[0]]
    has_collapsed = free.groupby(["learning_rate", "attention"])["collapsed"].all()
    rate, reason = free["learning_rate"].max(), "the highest"
    if has_collapsed.any():
        rate, arm = cast(tuple[float, str], has_collapsed.idxmax())  # the first
        reason = f"the lowest at which every {arm} run collapses"
    shown = study.runs[study.runs["purpose"] == "stability"]
    shown = shown[(shown["setting"] == settings[0]) & (shown["learning_rate"] == rate)]
    curves, layers = (
        table[table["run"].isin(shown.index)] for table in (study.curves, study.layers)
    )
    panels = (
        (curves, "loss", "Training loss (nats)", False),
        (curves, "gradient_norm", "Gradient norm", True),
        (curves, "attention_score_max", "Largest |score|, layer 0", True),
        (layers, "keys", KEYS, True),
    )
    for panel, (table, column, title, is_log) in zip("abcd", panels, strict=True):
        axes = grid[panel]
        for arm, color in COLORS.items():
            for _, run in table[table["attention"] == arm].groupby("run"):
                medians = run.groupby("step")[column].median()
                axes.plot(medians.index, medians, color=color, linewidth=0.8, alpha=0.8)
        if is_log:
            logarithmic(axes)
        axes.set_title(title, fontsize=7)
        axes.set_xlabel("Step")
    remark(
        figure,
        "Crosses mark collapsed runs. The dotted line is the gene-frequency baseline. Lower row: "
        f"every seed ({settings[0]}) at a learning rate of {rate:g}, {reason}. {KEYS_NOTE}",
    )
    return figure


def final_losses(axes: "Axes", runs: pd.DataFrame) -> None:
    """Draw final validation losses by learning rate: dots, or crosses for collapsed runs."""
    for shift, (arm, color) in zip((0.96, 1.04), COLORS.items(), strict=True):
        own = runs[runs["attention"] == arm]
        is_finite = np.isfinite(own["loss"])
        finite = own[is_finite]
        medians = finite.groupby("learning_rate")["loss"].median()
        axes.plot(medians.index, medians, color=color, linewidth=0.8, alpha=0.6)
        for collapsed, marker, label in ((False, "o", arm), (True, "x", f"{arm}, collapsed")):
            points = finite[finite["collapsed"] == collapsed]
            if points.empty:
                continue
            axes.plot(
                points["learning_rate"] * shift,
                points["loss"],
                marker,
                color=color,
                markersize=4,
                label=label,
            )
        for rate in own[~is_finite]["learning_rate"]:
            # A loss that is not finite is drawn on the upper edge.
            edge = axes.get_xaxis_transform()
            axes.plot(
                rate * shift, 1, "x", color=color, markersize=4, clip_on=False, transform=edge
            )
    axes.set_xscale("log", base=2)
    rates = sorted(runs["learning_rate"].unique())
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates], fontsize=6)
    axes.set_xlabel("Learning rate")


def scale(study: Study) -> "Figure":
    """Draw the difference between the arms by size at equal data, after steps that sizes share."""
    steps = by_size(study).groupby("step")
    figure = new_figure(DOUBLE, 2.6)
    panels = figure.subplots(1, len(steps), sharey=True, squeeze=False)[0]
    for axes, (step, rows) in zip(panels, steps, strict=True):
        places = range(len(rows))
        axes.plot(places, rows["difference"], "_", color=INK, markersize=22)
        axes.plot(places, rows.filter(regex=r"seed_\d"), "o", color=MUTED, alpha=0.6, markersize=4)
        axes.axhline(0, color=INK, linewidth=0.6)
        axes.set_xticks(places, rows["size"])
        axes.set_xlim(-0.5, len(rows) - 0.5)
        axes.set_xlabel("Layers x width")
        axes.set_title(f"After {step:,} steps")
    panels[0].set_ylabel("Sigmoid minus softmax (nats)")
    remark(
        figure, "Difference of validation losses at equal data. Dots are seeds, bars their mean."
    )
    return figure
