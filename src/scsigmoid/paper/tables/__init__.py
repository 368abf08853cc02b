"""The paper's tables, from result files alone."""

from collections.abc import Callable
from pathlib import Path

from scsigmoid.config.check import nearest
from scsigmoid.errors import UserError
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables import cost, mmd, quality, ratios, setup, speed, training
from scsigmoid.paper.tables.writing import Table, write_table

TABLES: dict[str, Callable[[Results], Table]] = {
    "model_architecture": setup.model_architecture,
    "hyperparameters": setup.hyperparameters,
    "evaluation_datasets": setup.evaluation_datasets,
    "validation_loss": quality.validation_loss,
    "scib": quality.scib,
    "kernel_speed": speed.kernel_speed,
    "kernel_ratios": ratios.kernel_ratios,
    "training_cost": cost.training_cost,
    "training_speed": training.training_speed,
}


def make_table(name: str, results: Results, stem: str | Path) -> list[Path]:
    """Make one table as CSV, Markdown and LaTeX.

    Args:
        name: a key of :data:`TABLES`, or ``mmd_<dataset>``.
        results: the result files.
        stem: path of the outputs without a suffix, e.g. ``results/demo/tables/scib``.

    Returns:
        The paths written: ``.csv``, ``.md``, ``.tex``.

    Raises:
        UserError: for an unknown table, or a result file that is missing or damaged.
    """
    return write_table(table(name, results), name, stem)


def table(name: str, results: Results) -> Table:
    """The content of one table."""
    if name.startswith("mmd_"):
        dataset = name.removeprefix("mmd_")
        if dataset not in results.config.datasets:
            known = results.config.datasets
            raise UserError(f"table {name}: unknown dataset {dataset!r}{nearest(dataset, known)}")
        return mmd.mmd(results, dataset)
    if name not in TABLES:
        raise UserError(f"table {name}: no such table{nearest(name, TABLES)}")
    return TABLES[name](results)
