"""Figures of embeddings: scIB scores and UMAP coordinates."""

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from scsigmoid.report.figures import style
from scsigmoid.report.figures.style import CELL_TYPE_COLORS, COLORS, DOUBLE, MUTED, RULE
from scsigmoid.report.tables.writing import fixed
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import METRIC_TITLES, model_label, representation_label

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Offsets (up, right) in points of a label from the median of its cells, shortest first.
OFFSETS = sorted(
    product(range(-60, 61, 6), range(-60, 61, 10)), key=lambda pair: pair[0] ** 2 + pair[1] ** 2
)
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
    metrics = list(next(iter(scores.values())))
    if len(scores) == 1:
        return scib_of_one(results, next(iter(scores)))
    columns = min(len(metrics), 4)
    rows = math.ceil(len(metrics) / columns)
    all_looks = looks(results)
    means_at = len(scores) + 0.5 + 0.7 * np.arange(len(all_looks))  # places of the means
    figure = style.new_figure(DOUBLE, 1.04 + rows * (0.8 + 0.22 * means_at[-1]))
    grid = style.panels(figure, len(metrics), columns, sharey=True)
    for axes, metric in zip(grid, metrics, strict=True):
        for index, (name, look) in enumerate(all_looks.items()):
            by_dataset = [dataset_scores[metric].get(name) for dataset_scores in scores.values()]
            values = [score.value if score else np.nan for score in by_dataset]
            # Marks of a dataset are next to each other, so that none hides another.
            offset = 0.21 * (index - (len(all_looks) - 1) / 2)
            places = np.arange(len(values)) + offset
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
        axes.axhline(len(scores) - 0.25, color=MUTED, linewidth=0.6)
        axes.set_title(METRIC_TITLES[metric])
        axes.set_xlabel("Score", fontsize=7)
        axes.grid(axis="both")
        axes.margins(x=0.26)
        axes.locator_params(axis="x", nbins=4)
    titles = [dataset.title for dataset in config.datasets.values()]
    grid[0].set_yticks([*range(len(titles)), float(means_at.mean())], [*titles, "Mean"])
    grid[0].set_ylim(means_at[-1] + 0.6, -0.5)  # the first dataset is at the top
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    style.remark(figure, "Higher is better.")
    return figure


def scib_of_one(results: Results, dataset: str) -> "Figure":
    """Draw the scores of the only dataset in one panel, with one row of marks per metric."""
    scores = results.scores(dataset)
    figure = style.new_figure(DOUBLE, 1.2 + 0.26 * len(scores))
    axes = figure.add_subplot()
    for name, look in looks(results).items():
        by_metric = [by_model.get(name) for by_model in scores.values()]
        values = [score.value if score else np.nan for score in by_metric]
        axes.plot(values, range(len(values)), linestyle="none", markersize=5.5, **look)
    axes.set_yticks(range(len(scores)), [METRIC_TITLES[metric] for metric in scores])
    axes.set_ylim(len(scores) - 0.5, -0.5)  # the first metric is at the top
    axes.set_xlabel("Score")
    axes.grid(axis="both")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    cells = max(score.n for by_model in scores.values() for score in by_model.values())
    title = results.config.datasets[dataset].title
    style.remark(figure, f"{title}: {cells:,} cells. Higher is better.")
    return figure


def looks(results: Results) -> dict[str, dict[str, Any]]:
    """Return the arguments of ``Axes.plot`` for each model and control."""
    config = results.config
    by_name: dict[str, dict[str, Any]] = {}
    for index, name in enumerate(config.evaluation.pair):
        color = COLORS[config.models[name].attention]
        by_name[name] = {"marker": style.marker(index), "color": color}
    for name in config.evaluation.scib.controls:
        by_name[name] = {"marker": CONTROL_MARKERS[name], "color": MUTED, "markerfacecolor": "none"}
    for name, look in by_name.items():
        look["label"] = representation_label(config, name)
    return by_name


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
    rows_of_legends = sum(math.ceil((len(looks) - 1) / 4) for looks in looks_by_column.values())
    figure = style.new_figure(DOUBLE, 0.45 + height + 0.14 * rows_of_legends)
    grid = dict(zip(panels, style.panels(figure, len(panels), min(len(panels), 2)), strict=True))
    for (name, column), axes in grid.items():
        cells = cells_by_model[name]
        size = float(np.clip(6000 / len(cells), 0.3, 14))
        for group, (color, marker) in looks_by_column[column].items():
            chosen = cells[cells[column] == group]
            if group or not chosen.empty:  # "no label" is in the legend only if needed
                axes.scatter(
                    chosen.x, chosen.y, s=size, color=color, marker=marker, linewidths=0,
                    alpha=0.85, label=group or NO_GROUP[column], rasterized=True,
                )  # fmt: skip
        axes.set_title(model_label(config, name) + (", batches" if column == "batch" else ""))
        axes.set_xlabel("UMAP 1")
        axes.set(xticks=[], yticks=[])
        axes.set_aspect("equal", adjustable="datalim")
    next(iter(grid.values())).set_ylabel("UMAP 2")
    for column in columns:
        axes = next(axes for (_, shown), axes in grid.items() if shown == column)
        handles, labels = axes.get_legend_handles_labels()
        if column == "cell_type":
            legend = figure.legend(handles, labels, loc="outside upper left", ncols=4)
        else:  # below the panel
            place = (0, -0.09)
            legend = axes.legend(handles, labels, loc="upper left", bbox_to_anchor=place, ncols=3)
        # Markers of the legend are larger than the dots of many cells, and opaque.
        for handle in legend.legend_handles:
            if handle is not None and hasattr(handle, "set_sizes"):
                handle.set_sizes([22])
                handle.set_alpha(1.0)
    title = config.datasets[dataset].title
    style.remark(figure, f"{title}: {len(cells_by_model[pair[0]]):,} cells.")
    figure.draw_without_rendering()  # computes the layout, which label_clusters needs
    for (name, column), axes in grid.items():
        if column == "cell_type":
            label_clusters(axes, cells_by_model[name])
    return figure


def group_looks(columns: "Sequence[pd.Series[str]]") -> dict[str, tuple[Any, str]]:
    """Return color and marker of each cell type or batch. Cells without one ("") are gray."""
    looks = {"": (RULE, style.marker(0))}
    for index, group in enumerate(sorted({name for values in columns for name in values} - {""})):
        repetition, color_index = divmod(index, len(CELL_TYPE_COLORS))
        looks[group] = (CELL_TYPE_COLORS[color_index], style.marker(repetition))
    return looks


def label_clusters(axes: "Axes", cells: "pd.DataFrame") -> None:
    """Write each cell type near the median of its cells, the most frequent type first.

    A label gets the first of :data:`OFFSETS` that keeps it inside the panel and off the labels
    before. A label without such an offset is left out. The legend contains all cell types.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    panel, occupied = axes.get_window_extent(), list[Bbox]()
    for cell_type in cells.cell_type[cells.cell_type != ""].value_counts().index:
        typed = cells[cells.cell_type == cell_type]
        median = (float(typed.x.median()), float(typed.y.median()))
        text = axes.annotate(
            cell_type, median, xytext=(0, 0), textcoords="offset points", ha="center", va="center",
            fontsize=7, path_effects=[withStroke(linewidth=2, foreground="white")],
        )  # fmt: skip
        text.set_in_layout(False)
        for up, right in OFFSETS:
            text.xyann = (right, up)  # x first
            box = text.get_window_extent().padded(1)
            is_inside = panel.contains(box.x0, box.y0) and panel.contains(box.x1, box.y1)
            if is_inside and not any(box.overlaps(other) for other in occupied):
                occupied.append(box)
                break
        else:
            text.remove()
