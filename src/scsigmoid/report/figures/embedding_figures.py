"""Figures of embeddings: scIB scores and UMAP coordinates."""

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scsigmoid.report.figures import style
from scsigmoid.report.figures.style import CELL_TYPE_COLORS, COLORS, DOUBLE, MUTED, RULE
from scsigmoid.report.tables.writing import fixed
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import METRIC_TITLES, model_label, representation_label

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: Legend of cells without a cell type or batch.
NO_GROUP = {"cell_type": "no label", "batch": "no batch"}
#: Marker of each control. Controls are gray and not filled.
CONTROL_MARKERS = {"initial": "s", "random": "o", "pca_log_counts": "D", "variable_genes": "v"}


def scib(results: Results) -> "Figure":
    """Draw every score as a mark: one panel per metric, one row of marks per dataset.

    The lowest rows are means over the datasets, with their values.
    """
    config = results.config
    scores = {dataset: results.scores(dataset) for dataset in config.datasets}
    metrics = scored_metrics(scores.values())
    if len(scores) == 1:
        return scib_of_one(results, next(iter(scores)))
    columns = min(len(metrics), 4)
    rows = math.ceil(len(metrics) / columns)
    all_looks = looks(results)
    titles = [
        textwrap.fill(style.literal(dataset.title), 24) for dataset in config.datasets.values()
    ]
    # Datasets are far enough apart for one mark per look, and for the lines of their titles.
    lines = max(title.count("\n") + 1 for title in titles)
    spacing = max(1, 0.21 * len(all_looks) + 0.16, 0.6 * lines)
    end = spacing * (len(scores) - 0.5)  # of the datasets, below are the means
    means_at = end + 1 + 0.7 * np.arange(len(all_looks))
    figure = style.new_figure(DOUBLE, 0.72 + rows * (0.8 + 0.22 * means_at[-1]))
    grid = style.panels(figure, len(metrics), columns, sharey=True)
    for axes, metric in zip(grid, metrics, strict=True):
        for index, (name, look) in enumerate(all_looks.items()):
            by_dataset = [dataset_scores[metric].get(name) for dataset_scores in scores.values()]
            values = [score.value if score else np.nan for score in by_dataset]
            # Marks of a dataset are next to each other, so that none hides another.
            offset = 0.21 * (index - (len(all_looks) - 1) / 2)
            places = spacing * np.arange(len(values)) + offset
            axes.plot(values, places, linestyle="none", markersize=3.8, **look)
            # Datasets without a batch do not have the scores of batches of any model.
            is_scored = [bool(dataset_scores[metric]) for dataset_scores in scores.values()]
            mean = float(np.mean(np.array(values)[is_scored])) if any(is_scored) else math.nan
            if np.isfinite(mean):
                of_mean = look | {"label": "_nolegend_", "linestyle": "none", "markersize": 3.8}
                axes.plot([mean], [means_at[index]], **of_mean)
                axes.annotate(
                    fixed(mean, 2), (mean, means_at[index]), xytext=(5, 0),
                    textcoords="offset points", va="center", fontsize=7,
                )  # fmt: skip
        axes.axhline(end + 0.25, color=MUTED, linewidth=0.6)
        axes.set_title(METRIC_TITLES[metric])
        axes.set_xlabel("Score", fontsize=7)
        axes.grid(axis="both")
        axes.margins(x=0.26)
        axes.locator_params(axis="x", nbins=4)
    centers = spacing * np.arange(len(titles))
    grid[0].set_yticks([*centers, float(means_at.mean())], [*titles, "Mean"])
    # The first dataset is at the top. Its marks need space above it.
    grid[0].set_ylim(means_at[-1] + 0.6, -0.3 - 0.105 * len(all_looks))
    style.add_legend(figure, grid[0], 2)
    return figure


def scored_metrics(by_dataset: Collection[Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return the metrics that have a score on at least one dataset."""
    metrics = next(iter(by_dataset))  # equal for all datasets
    return [name for name in metrics if any(scores[name] for scores in by_dataset)]


def scib_scatter(results: Results) -> "Figure":
    """Draw the scores of the first model by the scores of the second, one panel per metric.

    Each dataset is a mark. It is above the diagonal if the first model has the higher score.
    """
    config = results.config
    first, second = config.evaluation.pair
    scores = {dataset: results.scores(dataset) for dataset in config.datasets}
    metrics = scored_metrics(scores.values())
    columns = min(len(metrics), 4)
    figure = style.new_figure(DOUBLE, 0.1 + 2.0 * math.ceil(len(metrics) / columns))
    grid = style.panels(figure, len(metrics), columns)
    for axes, metric in zip(grid, metrics, strict=True):
        for index, (dataset, entry) in enumerate(config.datasets.items()):
            by_model = scores[dataset][metric]
            is_scored = first in by_model and second in by_model  # some metrics need a batch
            x, y = (by_model[name].value if is_scored else np.nan for name in (second, first))
            axes.plot(
                [x], [y], linestyle="none", marker=style.marker(index), markersize=4.5,
                color=CELL_TYPE_COLORS[index % len(CELL_TYPE_COLORS)],
                label=style.literal(entry.title),
            )  # fmt: skip
        axes.margins(0.15)
        low, high = np.array([axes.get_xlim(), axes.get_ylim()]).T
        limits = (low.min(), high.max())
        axes.set(xlim=limits, ylim=limits, box_aspect=1)
        axes.plot(limits, limits, color=MUTED, linewidth=0.8, linestyle="--", zorder=0)
        for locate in ("x", "y"):
            axes.locator_params(axis=locate, nbins=4)
        axes.set_title(METRIC_TITLES[metric])
    for axes in grid[::columns]:
        axes.set_ylabel(textwrap.fill(model_label(config, first), 32))
    figure.supxlabel(textwrap.fill(model_label(config, second), 96), fontsize=7.5)
    style.add_legend(figure, grid[0], 3)
    return figure


def scib_of_one(results: Results, dataset: str) -> "Figure":
    """Draw the scores of the only dataset in one panel, with one row of marks per metric."""
    all_scores = results.scores(dataset)
    scores = {metric: all_scores[metric] for metric in scored_metrics([all_scores])}
    all_looks = looks(results)
    spacing = 0.12 + 0.05 * len(all_looks)  # of the metrics, in inches
    figure = style.new_figure(DOUBLE, 0.9 + spacing * len(scores))
    axes = figure.add_subplot()
    for index, (name, look) in enumerate(all_looks.items()):
        by_metric = [by_model.get(name) for by_model in scores.values()]
        values = [score.value if score else np.nan for score in by_metric]
        # Marks of a metric are next to each other, so that none hides another.
        offset = 0.05 / spacing * (index - (len(all_looks) - 1) / 2)
        places = np.arange(len(values)) + offset
        axes.plot(values, places, linestyle="none", markersize=4.5, **look)
    axes.set_yticks(range(len(scores)), [METRIC_TITLES[metric] for metric in scores])
    axes.set_ylim(len(scores) - 0.5, -0.5)  # the first metric is at the top
    axes.set_xlabel("Score")
    axes.grid(axis="both")
    style.add_legend(figure, axes, 3)
    cells = max(score.n for by_model in scores.values() for score in by_model.values())
    title = results.config.datasets[dataset].title
    style.add_notes(figure, f"{title}: {cells:,} cells.")
    return figure


def looks(results: Results) -> dict[str, dict[str, Any]]:
    """Return the arguments of ``Axes.plot`` for each model and control."""
    config = results.config
    by_name: dict[str, dict[str, Any]] = {
        name: {"marker": style.marker(index), "color": COLORS[config.models[name].attention]}
        for index, name in enumerate(config.evaluation.pair)
    }
    for name in config.evaluation.scib.controls:
        by_name[name] = {"marker": CONTROL_MARKERS[name], "color": MUTED, "markerfacecolor": "none"}
    return {x: look | {"label": representation_label(config, x)} for x, look in by_name.items()}


def umap(results: Results, dataset: str) -> "Figure":
    """Draw the UMAP of the models' embeddings, in the order of the pair.

    If the dataset has a batch, further panels have the same points, colored by batch.
    """
    config = results.config
    pair = config.evaluation.pair
    cells_by_model = {name: results.umap(dataset, name) for name in pair}
    columns = ["cell_type"]
    columns += ["batch"] if all("batch" in cells for cells in cells_by_model.values()) else []
    panels = [(name, column) for column in columns for name in cells_by_model]
    looks_by_column = {
        column: group_looks([cells[column] for cells in cells_by_model.values()])
        for column in columns
    }
    height = 4.2 if len(panels) == 1 else 3.0 * math.ceil(len(panels) / 2)
    figure = style.new_figure(DOUBLE, 0.4 + height)
    grid = dict(zip(panels, style.panels(figure, len(panels), min(len(panels), 2)), strict=True))
    for (name, column), axes in grid.items():
        cells = cells_by_model[name]
        size = float(np.clip(6000 / len(cells), 0.3, 14))
        for group, (color, marker) in looks_by_column[column].items():
            chosen = cells[cells[column] == group]
            if group or not chosen.empty:  # "no label" is in the legend only if needed
                axes.scatter(
                    chosen.x, chosen.y, s=size, color=color, marker=marker, linewidths=0,
                    alpha=0.85, label=style.literal(group) or NO_GROUP[column], rasterized=True,
                )  # fmt: skip
        title = f"{config.datasets[dataset].title}, {model_label(config, name)}"
        title += ", batches" if column == "batch" else ""
        axes.set_title(textwrap.fill(style.literal(title), 48))
        axes.set_xlabel("UMAP 1")
        axes.set(xticks=[], yticks=[])
        axes.set_aspect("equal", adjustable="datalim")
    for axes in [*grid.values()][:: min(len(panels), 2)]:
        axes.set_ylabel("UMAP 2")
    for column in columns:
        axes = next(axes for (_, shown), axes in grid.items() if shown == column)
        legend = style.add_legend(figure, axes, 4, is_below=column == "batch")
        # Markers of the legend are larger than the dots of many cells, and opaque.
        for handle in filter(None, legend.legend_handles):
            handle.set(sizes=[22], alpha=1.0)
    style.add_notes(figure, f"{len(cells_by_model[pair[0]]):,} cells.")
    return figure


def group_looks(columns: "Sequence[pd.Series[str]]") -> dict[str, tuple[Any, str]]:
    """Return color and marker of each cell type or batch. Cells without one ("") are gray."""
    looks = {"": (RULE, style.marker(0))}
    for index, group in enumerate(sorted({name for values in columns for name in values} - {""})):
        repetition, color_index = divmod(index, len(CELL_TYPE_COLORS))
        looks[group] = (CELL_TYPE_COLORS[color_index], style.marker(repetition))
    return looks
