"""Subcommands that make the paper's tables, figures, claims and the report."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scsigmoid.cli.arguments import Stages, stored

if TYPE_CHECKING:
    from scsigmoid.paper.results import Results


def add(stages: Stages) -> None:
    """Add the stage's subcommands."""
    stages.add("table", table, "make one table").name().paths("configuration").output()
    stages.add("figure", figure, "draw one figure").name().paths("configuration").output()
    stages.add("claims", claims, "check the paper's claims").paths("configuration").output()
    stages.add("report", report, "write the report page").paths("configuration").output()
    stages.add(
        "compare-seeds", compare_seeds, "compare the two arms over runs with several seeds"
    ).folders().output()


def results_of(configuration: Path) -> "Results":
    """The results folder that a stored configuration lies in."""
    from scsigmoid.paper.results import Results

    return Results(configuration.parent, stored(configuration))


def table(options: argparse.Namespace) -> None:
    from scsigmoid.paper.tables import make_table

    make_table(options.name, results_of(options.configuration), options.output.with_suffix(""))


def figure(options: argparse.Namespace) -> None:
    from scsigmoid.paper.figures import make_figure

    make_figure(
        options.name,
        results_of(options.configuration),
        options.output,
        options.output.with_suffix(".pdf"),
    )


def claims(options: argparse.Namespace) -> None:
    from scsigmoid.paper.claims import make_claims

    make_claims(results_of(options.configuration), options.output)


def report(options: argparse.Namespace) -> None:
    from scsigmoid.paper.report import make_report

    make_report(results_of(options.configuration), options.output)


def compare_seeds(options: argparse.Namespace) -> None:
    from scsigmoid.paper.tables.seeds import compare_seeds as compare

    for path in compare(options.folders, options.output):
        print(path)
