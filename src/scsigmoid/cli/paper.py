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

    stages.add("study-runs", study_runs, "gather the runs of a study into tables").paths(
        "configuration"
    ).output()
    stages.add("study-scores", study_scores, "score the embeddings of a study's runs").paths(
        "embeddings", many=True
    ).paths("cells").settings().output()
    stages.add("study", study, "make the tables and figures of a study").paths("runs").output()


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
    from scsigmoid.paper.claims import counted, make_claims, read_claims

    make_claims(results_of(options.configuration), options.output)
    rows = read_claims(options.output)
    counts = (f"{count} {verdict}" for verdict, count in counted(rows).items() if count)
    print(f"{len(rows)} claims about runs: {', '.join(counts)}")


def report(options: argparse.Namespace) -> None:
    from scsigmoid.paper.report import make_report

    make_report(results_of(options.configuration), options.output)


def compare_seeds(options: argparse.Namespace) -> None:
    from scsigmoid.paper.tables.seeds import compare_seeds as compare

    for path in compare(options.folders, options.output):
        print(path)


def study_runs(options: argparse.Namespace) -> None:
    from scsigmoid.study.baselines import baselines
    from scsigmoid.study.runs import collect

    config, results = stored(options.configuration), options.configuration.parent
    collect(config, results, options.output)
    baselines(config, results, options.output / "baselines.csv")


def study_scores(options: argparse.Namespace) -> None:
    from scsigmoid.study.scores import score

    embeddings = {path.stem: path for path in options.embeddings}
    score(embeddings, options.cells, options.settings["seed"], options.output)


def study(options: argparse.Namespace) -> None:
    from scsigmoid.study.figures import draw
    from scsigmoid.study.runs import Study
    from scsigmoid.study.tables import write_tables

    found = Study(options.runs)
    baselines = found.table("baselines")
    for make in (write_tables, draw):
        for path in make(found, baselines, options.output):
            print(path)
    if found.unfinished:
        print(f"left out, not at their end: {', '.join(found.unfinished)}")
