"""Draw the figures of a study (docs/reproduction.md)."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from scsigmoid.files import write_text
from scsigmoid.report.figures import style
from scsigmoid.report.figures.style import COLORS, DOUBLE, INK, MUTED
from scsigmoid.results.labels import CONTROLS, METRIC_TITLES
from scsigmoid.study import comparisons
from scsigmoid.study.runs import Study
from scsigmoid.study.stability import first_family_settings, short_settings, stability_runs
from scsigmoid.study.tables import COLLAPSED, FINAL_LOSS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = METRIC_TITLES | {
    "linear_probe": "Linear probe",
    "knn": "Nearest neighbors",
    "mmd": "MMD, mean over pairs",
}
CURVES = "for sigmoid and softmax (thin lines: single seeds, thick lines: mean over seeds)"
#: Captions of the figures by name, without their notes.
CAPTIONS = {
    "loss": f"Validation loss (nats) by step {CURVES}, difference of the losses (nats, sigmoid "
    "minus softmax, mean over seeds with Student's 95 % interval), and effective number of keys.",
    "embeddings": f"Scores of the embeddings by step {CURVES}, one panel per metric. Higher is "
    "better. Dotted and dashed lines are controls without a model.",
    "frontier": "Top: validation loss at the end of training (nats) by learning rate, one mark per "
    "run, crosses for collapsed runs, lines through medians. Bottom: single runs by step.",
    "scale": "Difference of the validation losses (nats, sigmoid minus softmax) by model size. "
    "Both models of a pair are trained on the same cells. Dots are single seeds, dashes their "
    "mean.",
}
KEYS_TITLE = "Effective number of keys"
KEYS_NOTE = (
    "Effective number of keys: exp(entropy) of the attention weights of a query, median over "
    "queries and layers."
)


def draw(study: Study, output: Path) -> list[Path]:
    """Draw every figure that the study has runs for, and return the paths."""
    figures = (  # name, function, and whether the study has runs for the figure
        ("loss", loss_figure, len(comparisons.loss_differences(study, "seeds")) > 0),
        ("embeddings", embeddings_figure, len(comparisons.score_differences(study)) > 0),
        ("frontier", stability_figure, "stability" in set(study.runs["purpose"])),
        ("scale", scale_figure, len(comparisons.loss_differences_by_size(study)) > 0),
    )
    paths = []
    with style.styled():
        for name, make_figure, has_runs in figures:
            if has_runs:
                figure, stem = make_figure(study), output / f"study_{name}"
                paths += style.save(figure, stem, ["png"])
                paths.append(stem.with_suffix(".txt"))
                write_text(paths[-1], f"{CAPTIONS[name]} {figure.get_label()}".strip() + "\n")
    return paths


def loss_figure(study: Study) -> "Figure":
    """Draw validation loss, its paired difference, and effective number of keys by step."""
    figure = style.new_figure(DOUBLE, 2.7)
    left, middle, right = figure.subplots(1, 3)
    differences = comparisons.loss_differences(study, "seeds")
    steps = differences["step"]
    curves = comparisons.losses_by_step(study.curves[study.curves["purpose"] == "seeds"])
    draw_arms(left, curves, "validation_loss", differences)
    for name in ("frequencies", "rank and length"):
        draw_reference(left, study.baseline(name, curves["context"].iloc[0]), name, steps.max())
    left.set_title("Validation loss (nats)")
    left.legend(loc="lower left")
    middle.axhline(0, color=INK, linewidth=0.6)
    middle.fill_between(
        steps, differences["low"], differences["high"], color=INK, alpha=0.15, linewidth=0
    )
    middle.plot(steps, differences["difference"], color=INK)
    change_step = comparisons.last_sign_change(differences)
    if change_step is not None:
        middle.axvline(change_step, color=INK, linewidth=0.7, linestyle=":")
    middle.set_title("Sigmoid minus softmax (nats)")
    layers = study.layers[study.layers["purpose"] == "seeds"]
    keys = layers.groupby(["attention", "run", "step"])["keys"].median().reset_index()
    draw_arms(right, keys, "keys", keys.pivot_table("keys", "step", "attention").reset_index())
    style.set_log_scale(right)
    right.set_title(KEYS_TITLE)
    for axes in (left, middle, right):
        axes.set_xlabel("Step")
        axes.locator_params(axis="x", nbins=4)
    rates = curves.groupby("attention")["learning_rate"].first()
    seeds = int(differences["seeds"].max())
    style.add_notes(
        figure,
        f"The loss is the {FINAL_LOSS}.",
        f"Learning rates: {', '.join(f'{rates[arm]:g} ({arm})' for arm in COLORS)}.",
        f"{seeds} seeds per arm." if seeds > 1 else "One seed per arm.",
        "Horizontal dotted lines are baselines without attention: gene frequencies, and gene "
        "frequencies by rank and length of the cell.",
        "The vertical dotted line is the step from which the difference keeps its sign."
        if change_step is not None
        else "",
        KEYS_NOTE,
    )
    return figure


def draw_arms(
    axes: "Axes", runs: pd.DataFrame, column: str, means: pd.DataFrame, marker: str = ""
) -> None:
    """Draw a column of both arms by step: thin lines for runs, thick lines for means.

    ``means`` has ``step`` and a column for each arm. ``marker`` is a format string of Matplotlib.
    """
    for arm, color in COLORS.items():
        for _, run in runs[runs["attention"] == arm].groupby("run"):
            axes.plot(run["step"], run[column], marker, color=color, alpha=0.3, linewidth=0.7)
        axes.plot(means["step"], means[arm], marker, color=color, linewidth=1.6, label=arm)


def draw_reference(axes: "Axes", value: float, name: str, end: float) -> None:
    """Draw a dotted horizontal line with its name above it, up to the step ``end``."""
    axes.axhline(value, color=MUTED, linewidth=0.7, linestyle=":")
    axes.annotate(name, (end, value), ha="right", va="bottom", fontsize=6.5, color=MUTED)


def embeddings_figure(study: Study) -> "Figure":
    by_metric = comparisons.score_differences(study).groupby("metric", sort=False)
    figure = style.new_figure(DOUBLE, 2.1 * math.ceil(len(by_metric) / 3))
    panels = style.panels(figure, len(by_metric), 3)
    scores = study.scores[study.scores["purpose"] == "seeds"]
    for axes, (metric, means) in zip(panels, by_metric, strict=True):
        draw_arms(axes, scores[scores["metric"] == metric], "value", means, ".-")
        for name, values in study.controls.items():
            line: Any = {"color": MUTED, "linewidth": 0.7, "label": CONTROLS[str(name)]}
            axes.axhline(float(values[metric]), linestyle=":" if name == "random" else "--", **line)
        axes.set_title(TITLES[str(metric)])
        axes.set_xlabel("Step")
        axes.locator_params(axis="x", nbins=4)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def stability_figure(study: Study) -> "Figure":
    """Draw final losses by learning rate (upper panels), and curves of single runs (lower panels).

    The upper panels are for the first two settings of the first family with the purpose
    ``stability``. The lower panels are for the first setting at :func:`shown_rate`.
    """
    settings = first_family_settings(study)[:2]
    labels = short_settings(settings)
    runs = stability_runs(study).query("setting in @settings")
    figure = style.new_figure(DOUBLE, 4.4)
    # The grid has four columns. One setting takes all of them, two settings take two each.
    upper: list[Any] = [name for name in settings for _ in range(4 // len(settings))]
    grid = figure.subplot_mosaic([upper, list("abcd")])
    for setting in settings:
        of_setting = runs[runs["setting"] == setting]
        draw_final_losses(grid[setting], of_setting)
        grid[setting].axhline(
            of_setting["baseline"].iloc[0], color=MUTED, linewidth=0.7, linestyle=":"
        )
        grid[setting].set_title(labels[setting].capitalize())
    first, *others = (grid[setting] for setting in settings)
    for axes in others:
        axes.sharey(first)
    first.set_ylabel("Final validation loss (nats)")
    first.legend(loc="lower right", fontsize=6, handletextpad=0.2)
    rate, reason = shown_rate(runs[runs["setting"] == settings[0]])
    query = "purpose == 'stability' and setting == @settings[0] and learning_rate == @rate"
    curves, layers = study.curves.query(query), study.layers.query(query)
    panels = (
        (curves, "loss", "Training loss (nats)", False),
        (curves, "gradient_norm", "Gradient norm", True),
        (curves, "attention_score_max", "Largest |score|, layer 0", True),
        (layers, "keys", KEYS_TITLE, True),
    )
    for panel, (table, column, title, is_log) in zip("abcd", panels, strict=True):
        axes = grid[panel]
        for arm, color in COLORS.items():
            for _, run in table[table["attention"] == arm].groupby("run"):
                medians = run.groupby("step")[column].median()
                axes.plot(medians.index, medians, color=color, linewidth=0.8, alpha=0.8)
        if is_log:
            style.set_log_scale(axes)
        axes.set_title(title, fontsize=7)
        axes.set_xlabel("Step")
    style.add_notes(
        figure,
        f"The loss is the {FINAL_LOSS}, medians are over runs with a finite loss, and the dotted "
        "line is the gene-frequency baseline.",
        COLLAPSED if runs["collapsed"].any() else "",
        f"Bottom: one line per seed ({settings[0]}) at a learning rate of {rate:g}, {reason}.",
        KEYS_NOTE,
    )
    return figure


def shown_rate(runs: pd.DataFrame) -> tuple[float, str]:
    """Return the lowest rate at which all runs of an arm collapse, or else the highest rate.

    The second value is the reason, for the caption.
    """
    all_collapsed = runs.groupby(["learning_rate", "attention"])["collapsed"].all()
    if not all_collapsed.any():
        return runs["learning_rate"].max(), "the highest"
    rate, arm = cast(tuple[float, str], all_collapsed.idxmax())  # the first True
    return rate, f"the lowest at which every {arm} run collapses"


def draw_final_losses(axes: "Axes", runs: pd.DataFrame) -> None:
    """Draw final validation losses by learning rate. Infinite losses are at the upper edge."""
    # Points of the arms are shifted apart on the log scale so that they do not overlap.
    for shift, (arm, color) in zip((0.96, 1.04), COLORS.items(), strict=True):
        runs_of_arm = runs[runs["attention"] == arm]
        is_finite = np.isfinite(runs_of_arm["loss"])
        finite = runs_of_arm[is_finite]
        medians = finite.groupby("learning_rate")["loss"].median()
        axes.plot(medians.index, medians, color=color, linewidth=0.8, alpha=0.6)
        marker_style: Any = {"color": color, "markersize": 4}
        for collapsed, points in finite.groupby("collapsed"):
            marker, label = ("x", f"{arm}, collapsed") if collapsed else ("o", arm)
            x = points["learning_rate"] * shift
            axes.plot(x, points["loss"], marker, label=label, **marker_style)
        upper_edge = axes.get_xaxis_transform()  # x in data units, y = 1 is the upper edge
        lost = runs_of_arm[~is_finite]["learning_rate"] * shift
        if len(lost):
            edge: Any = {"clip_on": False, "transform": upper_edge, **marker_style}
            if finite.empty:  # else the arm is in the legend
                edge["label"] = f"{arm}, collapsed"
            axes.plot(lost, np.ones(len(lost)), "x", **edge)
    axes.set_xscale("log", base=2)
    rates = sorted(runs["learning_rate"].unique())
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates], fontsize=6)
    axes.set_xlabel("Learning rate")


def scale_figure(study: Study) -> "Figure":
    """Draw the loss difference between the arms by size, one panel per compared step."""
    by_step = comparisons.loss_differences_by_size(study).groupby("step")
    figure = style.new_figure(DOUBLE, 2.6)
    panels = figure.subplots(1, len(by_step), sharey=True, squeeze=False)[0]
    for axes, (step, rows) in zip(panels, by_step, strict=True):
        centers = range(len(rows))
        axes.plot(centers, rows["difference"], "_", color=INK, markersize=22)
        axes.plot(centers, rows.filter(regex=r"seed_\d"), "o", color=MUTED, alpha=0.6, markersize=4)
        axes.axhline(0, color=INK, linewidth=0.6)
        axes.set_xticks(centers, rows["size"])
        axes.set_xlim(-0.5, len(rows) - 0.5)
        axes.set_xlabel("Size")
        axes.set_title(f"After {step:,} steps")
    panels[0].set_ylabel("Sigmoid minus softmax (nats)")
    return figure
