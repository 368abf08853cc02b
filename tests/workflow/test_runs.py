"""Whole runs: complete results, no jobs in a second run, and the same results after a kill."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pandas as pd
import pytest
import yaml


def test_every_table_and_figure_exists(finished: Any) -> None:
    results = finished.folder / "results" / "demo"
    for folder, count, suffixes in (("tables", 10, "csv md"), ("figures", 9, "png pdf txt")):
        for suffix in suffixes.split():
            assert len(list((results / folder).glob(f"*.{suffix}"))) == count
    assert (
        len(pd.read_csv(results / "tables/mmd_simulated_heart.csv")) >= 28
    )  # pairs of 8 cell types
    assert "simulated" in (results / "report.html").read_text()
    assert yaml.safe_load((results / "config.yaml").read_text())["training"]["steps"] == 12


def test_training_prints_its_rate_on_the_terminal_and_in_its_log(finished: Any) -> None:
    lines = (finished.folder / "terminal.txt").read_text().splitlines()
    config = yaml.safe_load((finished.folder / "results/demo/config.yaml").read_text())
    for model in config["models"]:
        first, *_, last = printed = [line for line in lines if line.startswith(f"{model}: ")]
        assert first.startswith(f"{model}: training, step 1 of ")
        assert re.fullmatch(r"\w+: step (\d+) of \1, loss [\d.]+, \d+ cells/s, done in .*", last)
        log = finished.folder / f"results/demo/logs/train/{model}.log"
        assert set(printed) <= set(log.read_text().splitlines())


def test_the_terminal_shows_a_line_per_job(finished: Any) -> None:
    """The line names the log. Snakemake adds the progress."""
    terminal = (finished.folder / "terminal.txt").read_text()
    logs = re.findall(r"^\d\d:\d\d:\d\d \S+, log: (\S+)$", terminal, flags=re.MULTILINE)
    jobs = finished.jobs("--forceall")
    assert len(logs) == len(set(logs)) == sum(jobs.values()) - jobs["all"]
    assert all((finished.folder / log).is_file() for log in logs)
    total = sum(jobs.values())
    assert f"{total} of {total} steps (100%) done" in terminal


def test_the_list_of_targets_fits_a_screen(make_project: Callable[..., Any]) -> None:
    lines = make_project({}).run("--list").stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    _, others = " ".join(lines).split("Other rules: ")
    assert {"train", "table", "embeddings_of_pair"} <= set(others.split(", "))
    described = [line.split(maxsplit=1) for line in lines if re.match(r"\w+  +[A-Z].*\.$", line)]
    assert {"all", "corpus", "mmd", "study"} <= {name for name, _ in described}


def test_snakemakes_report_contains_the_page(finished: Any) -> None:
    finished.run("--report", "packed.zip")
    results = finished.folder / "results/demo"
    with ZipFile(finished.folder / "packed.zip") as packed:
        contents = {packed.read(name) for name in packed.namelist()}
    for path in (results / "report.html", *results.glob("figures/*.png")):
        assert path.read_bytes() in contents


def test_a_second_run_finds_nothing_to_do(finished: Any) -> None:
    run = finished.run()
    assert "Nothing to be done" in run.stdout + run.stderr


def test_a_forced_or_deleted_model_starts_from_the_beginning(finished: Any, tmp_path: Path) -> None:
    """An interrupted training continues from its last checkpoint."""
    model = "results/demo/training/sigmoid_128/model.safetensors"
    project = finished.copy(tmp_path / "project")
    path = project.folder / model
    checkpoints = path.parent / "checkpoints"
    before = path.read_bytes()

    def is_trained(*arguments: str) -> bool:
        """Return True if a run starts at step 0, that is, if it writes an early checkpoint."""
        early = checkpoints / "step-00000008.pt"
        time = early.stat().st_mtime_ns
        project.run(model, *arguments)
        assert path.read_bytes() == before
        return early.stat().st_mtime_ns != time

    path.unlink()
    assert is_trained()
    assert is_trained("--forcerun", "train")
    path.unlink()
    (checkpoints / "finished").write_bytes(b"\xff")  # ended in a traceback
    assert not is_trained()
    path.unlink()
    (checkpoints / "finished").unlink()
    assert not is_trained()


def test_a_study_embeds_its_snapshots(
    make_project: Callable[..., Any], tiny: dict[str, Any]
) -> None:
    seeds = {
        "attention": ["sigmoid", "softmax"],
        "context": [128],
        "size": ["tiny"],
        "seed": [1],
        "training": {"steps": 6, "snapshots": [[6, 900, 4, 2]]},
        "embedded": "simulated_heart",
    }
    validation = {"validate_every": 3, "validation_cells": 16}
    settings = {**tiny, "study": {"seeds": seeds}, "training": tiny["training"] | validation}
    project = make_project(settings)
    commands = project.run("study", "-n", "-p", "--quiet", "host").stdout
    models = re.findall(r"embeddings --checkpoint results/demo/training/(\S+)", commands)
    assert sorted(models) == [
        f"seeds_{arm}_seed_1/model{after}.safetensors"
        for arm in ("sigmoid", "softmax")
        for after in ("-step-00000002", "-step-00000004", "")
    ]
    assert "--without-scores" not in commands
    without = "study={seeds: {embedded: null}}"
    commands = project.run("study", "-n", "-p", "--quiet", "host", "--config", without).stdout
    assert "study/page --log results/demo/logs/study.log --without-scores" in commands


def test_one_table_runs_alone(finished: Any) -> None:
    table = finished.folder / "results/demo/tables/mmd_simulated_heart.csv"
    content = table.read_bytes()
    table.unlink()
    assert finished.jobs("mmd").keys() == {"mmd", "table"}
    finished.run("mmd")
    assert table.read_bytes() == content


def test_a_clock_that_jumped_makes_nothing_run_again(finished: Any) -> None:
    """Inputs that are newer than their outputs, but have the same checksums."""
    vocabulary = finished.folder / "results/demo/tokens/vocabulary.parquet"
    before = vocabulary.stat()
    os.utime(vocabulary, (before.st_atime + 86_400, before.st_mtime + 86_400))
    assert finished.jobs() == {}
    os.utime(vocabulary, ns=(before.st_atime_ns, before.st_mtime_ns))


def names(folder: Path) -> set[Path]:
    """Return the paths of files in a folder, without unfinished files of killed jobs."""
    return {path.relative_to(folder) for path in folder.rglob("[!.]*") if path.is_file()}


@pytest.mark.faults
def test_killed_runs_end_in_the_same_tables(
    finished: Any, make_project: Callable[..., Any], tiny: dict[str, Any]
) -> None:
    """Another configuration runs between the kills. Two runs at the same time are refused."""
    project = make_project(tiny)
    with project.killed("results/demo/tokens/vocabulary.parquet"):
        assert "Directory cannot be locked" in project.failure()

    embedded = {"training_cells": 60, "training_files": 1, "evaluation_cells": 128}
    corpus = {"source": "embedded", "parts": 1, "embedded": embedded}
    other = {"preset": "demo", "results": "results/other", "corpus": corpus, "seed": 7}
    alone = make_project(other)
    project.configure(other)
    for each in (alone, project):
        each.run("results/other/tokens/vocabulary.parquet")
    project.configure(tiny)
    results, expected_results = (each.folder / "results/other" for each in (project, alone))
    assert names(results) == names(expected_results)
    for name in names(expected_results):
        if name.parts[0] in ("corpus", "tokens"):
            assert (results / name).read_bytes() == (expected_results / name).read_bytes(), name

    for done in ("training/*/checkpoints/**/step-*", "metrics/validation_loss/*/*.csv"):
        with project.killed(f"results/demo/{done}"):
            pass
    project.run()
    expected, found = finished.science(), project.science()
    assert expected.keys() == found.keys()
    assert [name for name in expected if expected[name] != found[name]] == []
    assert names(project.folder / "results/demo") == names(finished.folder / "results/demo")
