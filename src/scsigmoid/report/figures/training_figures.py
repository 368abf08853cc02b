"""Figures of training: sequence lengths, losses and stability."""

import math
import textwrap
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from scsigmoid.config.check import model_training
from scsigmoid.report.figures import style
from scsigmoid.report.figures.style import COLORS, DOUBLE, INK, MUTED, SINGLE
from scsigmoid.report.tables.writing import fixed
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import context_label, group_of, model_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Window of the moving mean, as a share of the journal's rows. The figure's caption states it.
WINDOW = 0.05
#: Line style of each context, the shortest first.
LINE_STYLES = ("--", "-", ":", "-.")


def loss(results: Results) -> "Figure":
    """Draw training loss (left) and validation loss (right, one small panel per dataset)."""
    config = results.config
    models = results.plan.evaluated_models
    datasets = list(config.datasets)
    columns = min(math.ceil(len(datasets) / 2), 4) if len(datasets) > 3 else 1
    rows = math.ceil(len(datasets) / columns)
    titles = [
        textwrap.fill(style.literal(entry.title), 8 + 26 // columns)
        for entry in config.datasets.values()
    ]
    lines = max(title.count("\n") + 1 for title in titles)
    figure = style.new_figure(DOUBLE, max(3.15, rows * (0.9 + 0.15 * lines)))
    if len(datasets) == len(models) == 1:  # a panel would have one point
        draw_training(figure.add_subplot(), results, models)
        measured = results.validation_loss(datasets[0], models[0])
        style.add_legend(figure, figure.axes[0], 1)
        style.add_notes(
            figure,
            f"Validation loss of {measured.n:,} cells of {config.datasets[datasets[0]].title}: "
            f"{fixed(measured.value, 3)} (mean over cells).",
        )
        return figure
    width_ratios = (2.1, 0.95 * columns + 0.6)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=width_ratios)[0]
    draw_training(left.add_subplot(), results, models)

    grid = style.panels(right, len(datasets), columns, sharex=True)
    for axes, dataset, title in zip(grid, datasets, titles, strict=True):
        draw_validation(axes, results, dataset, models)
        axes.set_title(title, fontsize=7.2)
    # Differences of losses have the same height in all panels.
    span = max(float(np.ptp(axes.get_ylim())) for axes in grid)
    for axes in grid:
        middle = float(np.mean(axes.get_ylim()))
        axes.set_ylim(middle - span / 2, middle + span / 2)
    right.supxlabel("Context (tokens)", fontsize=7.5)
    right.supylabel("Validation loss (nats per masked gene)", fontsize=7.5)
    style.add_legend(figure, left.axes[0], 2)
    shown = [*product(datasets, models)]
    has_bars = any(
        np.isfinite(results.validation_loss(*names, "validation_loss_over_donors").low)
        for names in shown
    )
    is_complete = all(np.isfinite(results.validation_loss(*names).value) for names in shown)
    confidence = config.evaluation.validation_loss.confidence * 100
    donor_bars = (
        "Validation losses with error bars are means over donors, with Student's "
        f"{confidence:g} % interval. Other validation losses are means over cells."
    )
    style.add_notes(
        figure,
        donor_bars if has_bars else "Validation losses are means over cells.",
        "" if is_complete else "Validation losses that are not finite are not drawn.",
    )
    return figure


def group_indices(results: Results, models: list[str]) -> dict[str, int]:
    """Return the index of each model's group (:func:`group_of`), the shortest context first."""
    groups = {name: group_of(results.config, name, models) for name in models}
    order = sorted(set(groups.values()))
    return {name: order.index(group) for name, group in groups.items()}


def draw_training(axes: "Axes", results: Results, models: list[str]) -> None:
    """Draw the training loss as logged and as a moving mean, and the gene-frequency baseline."""
    for name, index in group_indices(results, models).items():
        model = results.config.models[name]
        journal = results.journal(name)
        color = COLORS[model.attention]
        axes.plot(journal["step"], journal["loss"], color=color, alpha=0.18, linewidth=0.6)
        axes.plot(
            journal["step"], moving_mean(journal["loss"]), color=color,
            linestyle=LINE_STYLES[index % len(LINE_STYLES)], marker=style.marker(index),
            # Markers of different groups are at different places.
            markersize=3.2,
            markevery=(0.06 + 0.05 * index, 0.22) if np.isfinite(journal["loss"]).sum() > 1 else 1,
            label=model_label(results.config, name),
        )  # fmt: skip
    axes.axhline(results.baseline_loss, color=MUTED, linestyle=":", linewidth=1.0)
    axes.set_xlabel(f"Step{style.training_cells(results.config)}")
    axes.set_ylabel("Training loss (nats per masked gene)")
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter(style.thousands)


def moving_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over a centered window (:data:`WINDOW`), which is narrower near both ends."""
    last, largest = len(values) - 1, int(len(values) * WINDOW / 2)
    halves = [min(largest, index, last - index) for index in range(len(values))]
    return np.array([values[i - half : i + half + 1].mean() for i, half in enumerate(halves)])


def draw_validation(axes: "Axes", results: Results, dataset: str, models: list[str]) -> None:
    """Draw the validation loss by context on one dataset, one marker per model.

    A loss is the mean over donors with its interval, or the mean over cells without an interval.
    """
    config, index_of = results.config, group_indices(results, models)
    contexts = sorted({config.models[name].context for name in models})
    for context in contexts:
        # Models of the same context are next to each other: sigmoid first, then softmax.
        alike = [name for name in models if config.models[name].context == context]
        alike.sort(key=lambda name: config.models[name].attention)
        for place, name in enumerate(alike):
            loss = results.validation_loss(dataset, name, "validation_loss_over_donors")
            if not np.isfinite(loss.low):
                loss = results.validation_loss(dataset, name)
            spacing = min(0.26, 0.8 / len(alike))
            x = contexts.index(context) + spacing * (place - (len(alike) - 1) / 2)
            color, marker = COLORS[config.models[name].attention], style.marker(index_of[name])
            axes.plot(x, loss.value, color=color, marker=marker, markersize=4.2)
            axes.plot([x, x], [loss.low, loss.high], color=color, linewidth=0.8)
    axes.set_xticks(range(len(contexts)), list(map(context_label, contexts)))
    axes.set_xlim(-0.5, len(contexts) - 0.5)
    axes.margins(y=0.12)
    # Labels are exact if ticks are 1, 2 or 5 units apart.
    axes.locator_params(axis="y", nbins=5, steps=[1, 2, 5, 10])


def stability(results: Results) -> "Figure":
    """Draw loss, gradient norm and largest score of the stress test by step, one line per model."""
    config = results.config
    models = results.plan.stress_models
    figure = style.new_figure(DOUBLE, 2.4)
    grid = figure.subplots(1, 3)
    panels = (
        ("loss", "Training loss (nats)", False),
        ("gradient_norm", "Gradient norm (L2)", True),
        ("attention_score_max", "Largest |score|, first layer", True),
    )
    has_cross = False
    index_of = group_indices(results, models)
    for axes, (column, title, is_log) in zip(grid, panels, strict=True):
        for name in models:
            journal = results.journal(name)
            steps, values = journal["step"], journal[column]
            can_draw = np.isfinite(values) & ((values > 0) | (not is_log))
            attention = config.models[name].attention
            axes.plot(
                steps[can_draw], values[can_draw], color=COLORS[attention], linewidth=1.0,
                linestyle="-" if attention == "sigmoid" else (0, (5, 1)),
                # The first model of each attention has no markers.
                marker=style.marker(index_of[name]) if index_of[name] else "",
                markersize=3.2, markevery=(0.1, 0.2), label=model_label(config, name),
            )  # fmt: skip
            not_finite = steps[~np.isfinite(values)]
            if len(not_finite):
                has_cross = True
                axes.plot(  # a cross at the upper edge, because the value cannot be drawn
                    not_finite[0], 1.0, "x", color=INK, markersize=6, clip_on=False,
                    transform=axes.get_xaxis_transform(),
                )  # fmt: skip
        if is_log:
            style.set_log_scale(axes)
        axes.set_title(title)
        axes.xaxis.set_major_formatter(style.thousands)
        axes.locator_params(axis="x", nbins=4, integer=True)
    style.add_legend(figure, grid[0], 2)
    figure.supxlabel(f"Step{style.training_cells(config)}", fontsize=7.5)
    rates = {model_training(config, name).learning_rate for name in models}
    style.add_notes(
        figure,
        f"Learning rate {' and '.join(f'{rate:g}' for rate in sorted(rates))}.",
        "The cross marks the first value that is not finite." if has_cross else "",
    )
    return figure


def covered_share(lengths: np.ndarray, cells: np.ndarray, genes: int) -> float:
    """Return the share of cells with at most ``genes`` genes. ``cells`` are counts by length."""
    return float(cells[lengths <= genes].sum() / cells.sum())


def label_levels(positions: Sequence[int], end: float) -> list[int]:
    """Return a level (0 is the lowest) for each label above an axis, so that labels do not overlap.

    ``positions`` ascend. The axis is from 0 to ``end``. Labels on one level are at least an eighth
    of the axis apart, which is more than the width of four digits.
    """
    levels: list[int] = []
    last_positions: list[float] = []  # of each level's last label, -infinity without a label
    for position in positions:
        last_positions.append(-math.inf)  # a new level, in case all others are occupied here
        is_free = [position - last >= end / 8 for last in last_positions]
        levels.append(is_free.index(True))
        last_positions[levels[-1]] = position
    return levels


def sequence_lengths(results: Results) -> "Figure":
    """Draw the histogram and the cumulative share of cells by length, and the contexts."""
    lengths, cells = results.lengths
    contexts = sorted({model.context for model in results.config.models.values()})
    contexts.append(2 * contexts[-1])  # 16,384 in the paper
    figure = style.new_figure(SINGLE, 2.75)
    axes = figure.add_subplot()
    cumulative = np.cumsum(cells) / cells.sum()
    # Show all lines and at least 99.5 % of the cells.
    end = max(float(lengths[np.searchsorted(cumulative, 0.995)]), contexts[-1] * 1.08)
    axes.hist(
        lengths, bins=np.linspace(0, end, 70).tolist(), weights=cells, color="#b5b5b5", linewidth=0
    )
    axes.grid(False)
    axes.set_xlim(0, end)
    axes.set_xlabel(f"Expressed genes per cell{style.training_cells(results.config)}")
    axes.set_ylabel("Cells")
    axes.yaxis.set_major_formatter(style.thousands)
    axes.xaxis.set_major_formatter(style.thousands)

    right = axes.twinx()
    right.grid(False)
    right.spines["right"].set_visible(True)
    # Extend the line to both ends of the axis.
    x = [0, *lengths, max(end, lengths[-1])]
    right.plot(x, [0, *cumulative, 1], color="black", drawstyle="steps-post")
    right.set_ylim(0, 1.0)
    right.set_ylabel("Cumulative share of cells")
    right.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.0f} %")
    for context, level in zip(contexts, label_levels(contexts, end), strict=True):
        share = covered_share(lengths, cells, context - results.config.tokens.cls)  # without <cls>
        right.axvline(context, color=MUTED, linestyle=(0, (4, 2)), linewidth=0.8)
        right.annotate(
            f"{context_label(context)}\n{share * 100:.0f} %", (context, 1.0),
            xycoords=right.get_xaxis_transform(), xytext=(0, 3 + 19 * level),
            textcoords="offset points", ha="center", va="bottom", fontsize=7, color=INK,
            linespacing=1.1,
        )  # fmt: skip
    style.add_notes(figure, f"{int(cells.sum()):,} training cells.")
    return figure
