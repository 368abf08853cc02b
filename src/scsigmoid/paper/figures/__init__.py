"""The paper's figures, from result files alone."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scsigmoid.config.check import nearest
from scsigmoid.errors import UserError
from scsigmoid.paper.figures import embeddings, lengths, speed, style, training
from scsigmoid.paper.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Results], "Figure"]] = {
    "sequence_lengths": lengths.sequence_lengths,
    "tflops": speed.tflops,
    "latency": speed.latency,
    "gpu_hours": speed.gpu_hours,
    "loss": training.loss,
    "stability": training.stability,
    "scib": embeddings.scib,
}


def make_figure(name: str, results: Results, png: str | Path, pdf: str | Path) -> None:
    """Draw one figure as PNG and PDF.

    Args:
        name: a key of :data:`FIGURES`, or ``umap_<dataset>``.
        results: the result files.
        png: path of the PNG.
        pdf: path of the PDF.

    Raises:
        UserError: for an unknown figure, or a result file that is missing or damaged.
    """
    with style.styled():
        style.save(draw(name, results), results, png, pdf)


def draw(name: str, results: Results) -> "Figure":
    """Draw one figure."""
    if name.startswith("umap_"):
        dataset = name.removeprefix("umap_")
        if dataset not in results.config.datasets:
            known = results.config.datasets
            raise UserError(f"figure {name}: unknown dataset {dataset!r}{nearest(dataset, known)}")
        return embeddings.umap(results, dataset)
    if name not in FIGURES:
        raise UserError(f"figure {name}: no such figure{nearest(name, FIGURES)}")
    return FIGURES[name](results)
