"""The paper's figures, from result files alone."""

from pathlib import Path

from scsigmoid.paper import registry
from scsigmoid.paper.figures import style
from scsigmoid.paper.results import Results


def make_figure(name: str, results: Results, png: str | Path, pdf: str | Path) -> None:
    """Draw one figure as PNG and PDF.

    Args:
        name: as :func:`scsigmoid.paper.registry.names` has it.
        results: the result files.
        png: path of the PNG.
        pdf: path of the PDF.

    Raises:
        UserError: for an unknown figure, or a result file that is missing or damaged.
    """
    with style.styled():
        style.save(registry.make("figure", name, results), results, png, pdf)
