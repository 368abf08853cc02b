"""Sequence lengths of the training cells (fig:jaggedness)."""

from typing import TYPE_CHECKING

import numpy as np

from scsigmoid.paper.figures.style import INK, MUTED, SINGLE, new_figure, remark
from scsigmoid.paper.labels import context_label
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def thresholds(results: Results) -> list[int]:
    """The contexts to mark: the paper's four, or the models' where a smaller scale shrank them."""
    contexts = sorted({model.context for model in results.config.models.values()})
    paper = list(reported()["sequence_lengths"]["thresholds"])
    if set(contexts) <= set(paper):
        return paper
    return [*contexts, 2 * contexts[-1]]


def covered(lengths: np.ndarray, cells: np.ndarray, places: int) -> float:
    """Share of the cells whose genes all fit."""
    return float(cells[lengths <= places].sum() / cells.sum())


def sequence_lengths(results: Results) -> "Figure":
    """Histogram (grey, left), cumulative share (black, right), contexts with the share covered."""
    lengths, cells = results.lengths
    marks = thresholds(results)
    figure = new_figure(SINGLE, 2.75)
    axes = figure.add_subplot()
    end = float(np.clip(lengths[-1], marks[-1] * 1.08, marks[-1] * 1.3))
    axes.hist(
        lengths, bins=np.linspace(0, end, 70).tolist(), weights=cells, color="#b5b5b5", linewidth=0
    )
    axes.set_xlim(0, end)
    axes.set_xlabel("Expressed genes per cell")
    axes.set_ylabel("Cells")
    axes.yaxis.set_major_formatter(thousands)
    axes.xaxis.set_major_formatter(thousands)

    right = axes.twinx()
    right.spines["right"].set_visible(True)
    share = np.cumsum(cells) / cells.sum()
    right.plot(
        [0, *lengths, max(end, lengths[-1])], [0, *share, 1], color="black", drawstyle="steps-post"
    )
    right.set_ylim(0, 1.0)
    right.set_ylabel("Cumulative share of cells")
    right.yaxis.set_major_formatter(percent)
    for level, context in enumerate(marks):
        share_here = covered(lengths, cells, context - results.config.tokens.cls)
        right.axvline(context, color=MUTED, linestyle=(0, (4, 2)), linewidth=0.8)
        right.annotate(
            f"{context_label(context)}\n{share_here * 100:.0f} %",
            (context, 1.0),
            xycoords=right.get_xaxis_transform(),
            # Neighbours stand at different heights, because short contexts lie close together.
            xytext=(0, 3 + 19 * (level % 2)),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=7,
            color=INK,
            linespacing=1.1,
        )
    kind = results.training_data
    remark(
        figure,
        f"{int(cells.sum()):,} training cells" + (f", {kind}." if kind != "real" else "."),
        "Dashed: contexts, with the share of cells that fit.",
    )
    return figure


def thousands(value: float, _: float) -> str:
    """A tick with separators, short from ten thousand on."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}K" if abs(value) >= 1e4 else f"{value:,.0f}"


def percent(value: float, _: float) -> str:
    """A tick in percent."""
    return f"{value * 100:.0f} %"
