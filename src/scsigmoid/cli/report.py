"""Subcommands for tables, figures, the report page, and studies."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scsigmoid.cli.arguments import read_config, stage
from scsigmoid.errors import first_few

if TYPE_CHECKING:
    from scsigmoid.results.folder import Results


def results_of(configuration: Path) -> "Results":
    from scsigmoid.results.folder import Results

    return Results(configuration.parent, read_config(configuration))


def write(kind: str, options: argparse.Namespace) -> None:
    """Write a table or figure to files that are named like ``options.output`` without suffix."""
    from scsigmoid.report import registry

    results = results_of(options.configuration)
    registry.write(kind, options.name, results, options.output.with_suffix(""))


@stage("name --configuration --output")
def table(options: argparse.Namespace) -> None:
    """Make one table."""
    write("table", options)


@stage("name --configuration --output")
def figure(options: argparse.Namespace) -> None:
    """Draw one figure."""
    write("figure", options)


@stage("--configuration --output")
def report(options: argparse.Namespace) -> None:
    """Write the report page."""
    from scsigmoid.report.page import make_report

    make_report(results_of(options.configuration), options.output)


@stage("--configuration --output")
def study_runs(options: argparse.Namespace) -> None:
    """Collect the runs of a study in CSV files."""
    from scsigmoid.study.baselines import baselines
    from scsigmoid.study.runs import collect

    config, folder = read_config(options.configuration), options.configuration.parent
    collect(config, folder, options.output)
    baselines(config, folder, options.output / "baselines.csv")


@stage("--embeddings+ --cells --settings --output")
def study_scores(options: argparse.Namespace) -> None:
    """Score the embeddings of a study's runs."""
    from scsigmoid.study.scores import score

    score(options.embeddings, options.cells, options.settings["seed"], options.output)


@stage("--runs --output")
def study(options: argparse.Namespace) -> None:
    """Make the tables and figures of a study."""
    from scsigmoid.study.figures import draw
    from scsigmoid.study.runs import Study
    from scsigmoid.study.tables import write_tables

    collected = Study(options.runs)
    for path in (*write_tables(collected, options.output), *draw(collected, options.output)):
        print(path)
    if collected.unfinished:
        names = first_few(collected.unfinished)
        print(f"only the tables of learning rates and clipping show unfinished runs: {names}")
    families = collected.runs[collected.runs["purpose"] == ""]["family"].unique()
    if len(families):
        names = ", ".join(families)
        print(f"families without a purpose are in no table; set study.<family>.purpose: {names}")
