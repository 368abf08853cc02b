"""Embeddings: scIB scores (fig:scib) and UMAP (fig:umap_mmd)."""

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from scsigmoid.labels import METRICS, model_label
from scsigmoid.report.figures.style import (
    DOUBLE,
    MARKERS,
    MUTED,
    PALETTE,
    RULE,
    evaluated_on,
    new_figure,
    remark,
    starred,
)
from scsigmoid.results.embeddings import all_scores
from scsigmoid.results.folder import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The controls, which have one score a dataset, and their marks.
CONTROL_WORDS = {"random": "a random embedding (hollow)", "pca_log_counts": "PCA (half filled)"}


def scib(results: Results) -> "Figure":
    """Scatter of sigmoid (y) over softmax (x), one panel a metric, one mark a dataset."""
    config = results.config
    sigmoid, softmax = config.evaluation.pair
    scores = {dataset: all_scores(results, dataset) for dataset in config.datasets}
    metrics = list(next(iter(scores.values())))
    kinds = {found[metrics[0]][sigmoid].simulated for found in scores.values()}
    controls = {
        name: fill
        for name, fill in (("random", "none"), ("pca_log_counts", "bottom"))
        if all(name in of_metric for found in scores.values() for of_metric in found.values())
    }
    columns = min(len(metrics), 4)
    rows = -(-len(metrics) // columns)
    figure = new_figure(DOUBLE, 0.95 + 2.0 * rows)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[len(metrics) :]:
        axes.set_visible(False)
    for axes, metric in zip(grid, metrics, strict=False):
        points = {
            dataset: (found[metric][softmax].value, found[metric][sigmoid].value)
            for dataset, found in scores.items()
        }
        for index, (dataset, (x, y)) in enumerate(points.items()):
            simulated = scores[dataset][metric][sigmoid].simulated
            axes.plot(
                x,
                y,
                MARKERS[index % len(MARKERS)],
                color=PALETTE[index % len(PALETTE)],
                markersize=5,
                markeredgecolor="white",
                markeredgewidth=0.4,
                label=starred(config.datasets[dataset].title, simulated, kinds),
            )
        values = np.ravel(list(points.values()))
        room = max(0.02, 0.2 * float(np.ptp(values)))
        limits = (float(values.min()) - room, float(values.max()) + room)
        for (index, found), control in product(enumerate(scores.values()), controls):
            # Far from the models it stands in the corner, so that these can be told apart.
            score = float(np.clip(found[metric][control].value, *limits))
            axes.plot(
                score,
                score,
                MARKERS[index % len(MARKERS)],
                color=PALETTE[index % len(PALETTE)],
                fillstyle=controls[control],
                markersize=4,
                markeredgewidth=0.7,
                clip_on=False,
            )
        axes.plot(limits, limits, color=MUTED, linewidth=0.8, linestyle="--", zorder=0)
        axes.grid(False)
        axes.set_xlim(limits)
        axes.set_ylim(limits)
        axes.set_aspect("equal")
        axes.locator_params(nbins=4)
        wins = sum(y > x for x, y in points.values())
        words = f"Softmax\n(sigmoid higher: {wins} of {len(points)}"
        if "random" in controls:
            chance = {dataset: found[metric]["random"].value for dataset, found in scores.items()}
            above = sum(min(point) > chance[dataset] for dataset, point in points.items())
            words += f";\nboth above random: {above})"
        axes.set_title(METRICS.get(metric, metric))
        axes.set_xlabel(words.rstrip(")") + ")")
    for axes in grid[::columns]:
        axes.set_ylabel("Sigmoid")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4))
    remark(
        figure,
        f"{model_label(config, sigmoid)} against {model_label(config, softmax)}; above "
        "the diagonal sigmoid is better.",
        f"On the diagonal: {' and '.join(CONTROL_WORDS[name] for name in controls)}, in a corner "
        "where far off."
        if controls
        else "",
        evaluated_on(kinds),
    )
    return figure


def umap(results: Results, dataset: str) -> "Figure":
    """UMAP of both models' embeddings, softmax left, sigmoid right, the same colours."""
    config = results.config
    sigmoid, softmax = config.evaluation.pair
    points = {name: results.umap(dataset, name) for name in (softmax, sigmoid)}
    types = sorted({kind for found in points.values() for kind in found.cell_type} - {""})
    rows = -(-len(types) // 4)
    figure = new_figure(DOUBLE, 3.45 + 0.14 * rows)
    grid = figure.subplots(1, 2)
    for axes, (name, found) in zip(grid, points.items(), strict=True):
        size = float(np.clip(6000 / len(found), 0.3, 14))
        for index, kind in enumerate(["", *types], start=-1):  # cells without a label lie below
            cells = found[found.cell_type == kind]
            if not kind and cells.empty:
                continue
            axes.scatter(
                cells.x,
                cells.y,
                s=size,
                color=PALETTE[index % len(PALETTE)] if kind else RULE,
                marker=MARKERS[index // len(PALETTE) % len(MARKERS)] if kind else MARKERS[0],
                linewidths=0,
                alpha=0.85,
                label=kind or "no label",
                rasterized=True,
            )
        axes.set_title(model_label(config, name))
        axes.set_xlabel("UMAP 1")
        axes.set(xticks=[], yticks=[])
        axes.set_aspect("equal", adjustable="datalim")
    grid[0].set_ylabel("UMAP 2")
    handles, labels = grid[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=min(len(types), 4))
    for handle in legend.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([22])
            handle.set_alpha(1.0)
    title = config.datasets[dataset].title
    simulated = ", simulated" if results.metadata(dataset)["simulated"] else ""
    remark(figure, f"{title}: {len(points[sigmoid].x):,} cells{simulated}.")
    return figure
