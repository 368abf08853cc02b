"""The paper's tables, from result files alone."""

from pathlib import Path

from scsigmoid.paper import registry
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.writing import write_table


def make_table(name: str, results: Results, stem: str | Path) -> list[Path]:
    """Make one table as CSV, Markdown and LaTeX.

    Args:
        name: as :func:`scsigmoid.paper.registry.names` has it.
        results: the result files.
        stem: path of the outputs without a suffix, e.g. ``results/demo/tables/scib``.

    Returns:
        The paths written: ``.csv``, ``.md``, ``.tex``.

    Raises:
        UserError: for an unknown table, or a result file that is missing or damaged.
    """
    return write_table(registry.make("table", name, results), name, stem)
