"""Subcommands for tables, figures, the report page, and studies."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from scsigmoid.cli.arguments import Cells, Configuration, EmbeddingFiles, Name, Output, stage
from scsigmoid.errors import first_few

if TYPE_CHECKING:
    from scsigmoid.results.folder import Results


def results_of(configuration: Configuration) -> "Results":
    from scsigmoid.results.folder import Results

    return Results(configuration.folder, configuration.config)


def write(kind: str, name: str, configuration: Configuration, output: Path) -> None:
    """Write a table or figure to files that are named like ``output`` without suffix."""
    from scsigmoid.report import registry

    registry.write(kind, name, results_of(configuration), output.with_suffix(""))


@stage
def table(name: Name, /, configuration: Configuration, output: Output) -> None:
    """Make one table."""
    write("table", name, configuration, output)


@stage
def figure(name: Name, /, configuration: Configuration, output: Output) -> None:
    """Draw one figure."""
    write("figure", name, configuration, output)


@stage
def report(configuration: Configuration, output: Output) -> None:
    """Write the report page."""
    from scsigmoid.report.page import make_report

    make_report(results_of(configuration), output)


@stage
def study_runs(configuration: Configuration, output: Output) -> None:
    """Collect the runs of a study in CSV files."""
    from scsigmoid.study.baselines import baselines
    from scsigmoid.study.runs import collect

    config, folder = configuration.config, configuration.folder
    collect(config, folder, output)
    baselines(config, folder, output / "baselines.csv")


@stage
def study_scores(
    embeddings: EmbeddingFiles, cells: Cells, configuration: Configuration, output: Output
) -> None:
    """Score the embeddings of a study's runs."""
    from scsigmoid.study.scores import score

    score(embeddings, cells, configuration.config.seed, output)


@stage
def study(
    runs: Annotated[Path, "folder written by the stage study-runs"],
    output: Output,
    without_scores: Annotated[bool, "ignore scores.csv, which may be of earlier models"] = False,
) -> None:
    """Make the tables and figures of a study."""
    from scsigmoid.study.figures import draw
    from scsigmoid.study.runs import Study
    from scsigmoid.study.tables import write_tables

    collected = Study(runs, has_scores=not without_scores)
    for path in (*write_tables(collected, output), *draw(collected, output)):
        print(path)
    if collected.unfinished:
        names = first_few(collected.unfinished)
        print(f"only the tables of learning rates and clipping show unfinished runs: {names}")
    families = collected.runs[collected.runs["purpose"] == ""]["family"].unique()
    if len(families):
        names = ", ".join(families)
        print(f"families without a purpose are in no table; set study.<family>.purpose: {names}")
