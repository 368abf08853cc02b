"""A manifest that lost, gained or changed a row is refused by every job that reads it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import with_settings
from loopback import HOSTS, Loopback, uuid
from stages import configured, local_corpus, make_evaluation, make_manifest, make_part, write_cells

from scsigmoid.config.check import load
from scsigmoid.config.local_files import replaced_files
from scsigmoid.config.schema import Config, Dataset, LocalFiles
from scsigmoid.corpus.fetch import fetch_evaluation, raw_files
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.corpus.manifest import check_not_trained_on, write_lock
from scsigmoid.corpus.metadata import ManifestRow, read_manifest, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.forecast.volume import estimate_volume

DATASETS = {"held": Dataset(title="Held-out cells")}
DAMAGED = "damaged or changed manifest"


def lose_first(lines: list[str]) -> list[str]:
    return [lines[0], *lines[2:]]


def lose_last(lines: list[str]) -> list[str]:
    return lines[:-1]


def lose_all(lines: list[str]) -> list[str]:
    return lines[:1]


def gain(lines: list[str]) -> list[str]:
    return [*lines, f"more_{lines[1]}"]


def reorder(lines: list[str]) -> list[str]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def change_cells(lines: list[str]) -> list[str]:
    assert ",20," in lines[1]
    return [lines[0], lines[1].replace(",20,", ",21,"), *lines[2:]]


DAMAGES = [lose_first, lose_last, lose_all, gain, reorder, change_cells]


def edit(path: Path, damage: Callable[[list[str]], list[str]]) -> None:
    """Change the lines of a file."""
    path.write_text("".join(damage(path.read_text().splitlines(keepends=True))))


@pytest.fixture
def corpus(tmp_path: Path) -> Any:
    """Three files of 20 cells: ``a`` and ``b`` are trained on, and ``held`` is held out."""
    counts = np.random.default_rng(0).poisson(2, (60, 40))
    folder = tmp_path / "own"
    folder.mkdir()
    entries = []
    for name, cells in zip(("a", "b", "held"), np.split(counts, 3), strict=True):
        path = write_cells(folder / f"{name}.h5ad", cells)
        entries.append(LocalFiles(files=str(path), held_out=name == "held"))
    corpus = local_corpus(*entries, parts=1)
    make_manifest(corpus, DATASETS, tmp_path)
    return corpus


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_manifest_of_a_run(damage, corpus, tmp_path):
    make_part(corpus, tmp_path)
    make_evaluation(corpus, "held", DATASETS["held"], tmp_path)
    config = configured(corpus, DATASETS)
    check_not_trained_on(tmp_path / "held.csv", tmp_path / "manifest.csv", config)
    write_lock(tmp_path / "manifest.csv", [tmp_path / "part-0"], [], tmp_path / "lock.csv")
    edit(tmp_path / "manifest.csv", damage)
    for job in (
        lambda: make_part(corpus, tmp_path),
        lambda: write_lock(tmp_path / "manifest.csv", [], [], tmp_path / "other.csv"),
        lambda: check_not_trained_on(tmp_path / "held.csv", tmp_path / "manifest.csv", config),
    ):
        with pytest.raises(UserError, match=rf"manifest\.csv: {DAMAGED}.*make it again"):
            job()
    assert not (tmp_path / "other.csv").exists()
    make_manifest(corpus, DATASETS, tmp_path)
    make_part(corpus, tmp_path)


@pytest.mark.parametrize("damage", [lose_first, lose_last, lose_all])
def test_the_rows_of_a_part(damage, corpus, tmp_path):
    """A file without a row would not be tokenized."""
    part = make_part(corpus, tmp_path)
    assert len(cells_of_part(part)) == 2
    (part / "._a.h5ad").write_bytes(b"written by macOS")
    assert len(cells_of_part(part)) == 2
    edit(part / "files.csv", damage)
    with pytest.raises(UserError, match=r"files\.csv.* no row for [ab]"):
        cells_of_part(part)
    with (
        pytest.raises(UserError, match=r"files\.csv.* no row for [ab]"),
        raw_files(part, corpus, tmp_path / "downloads", last=False),
    ):
        pass


@pytest.mark.parametrize("damage", [lose_all, gain])
def test_the_row_of_an_evaluation_dataset(damage, corpus, tmp_path):
    cells, metadata = make_evaluation(corpus, "held", DATASETS["held"], tmp_path)
    row = tmp_path / "held.csv"
    edit(row, damage)
    config = configured(corpus, DATASETS)
    for job in (
        lambda: fetch_evaluation(row, config, tmp_path / "downloads", cells, metadata, {}),
        lambda: write_lock(tmp_path / "manifest.csv", [], [metadata], tmp_path / "lock.csv"),
        lambda: check_not_trained_on(row, tmp_path / "manifest.csv", config),
    ):
        with pytest.raises(UserError, match=r"held\.csv.* rows instead of 1"):
            job()


def test_a_cut_manifest_does_not_stop_the_workflow(corpus, tmp_path):
    """The workflow looks for files that were replaced. A cut row ended in a traceback."""
    path = tmp_path / "manifest.csv"
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        replaced_files(path)
    path.write_bytes(content + b"a" * 200_000)
    assert replaced_files(path) == []


def test_the_workflow_reads_manifests_with_long_fields(tmp_path):
    """A traceback, later an empty result, if a manifest excluded tens of thousands of cells.

    Another process, because the limit of the module csv is changed by reading other tables.
    """
    cells, part = tmp_path / "a.h5ad", tmp_path / "corpus/training/part-00000"
    part.mkdir(parents=True)
    cells.touch()
    (part / "a.h5ad").touch()
    excluded = ",".join(map(str, range(0, 60_000, 2)))
    row = {"role": "training", "source": "local", "location": str(cells), "bytes": "5"}
    for path in (tmp_path / "manifest.csv", part / "files.csv"):
        write_manifest(path, [ManifestRow(file="a", excluded=excluded, **row)])
    os.utime(tmp_path / "manifest.csv", (0, 0))
    program = (
        "import sys; from pathlib import Path; folder = Path(sys.argv[1])\n"
        "from scsigmoid.config import local_files, stored\n"
        "print(*local_files.replaced_files(folder / 'manifest.csv'))\n"
        "print(stored.find_other_files(folder / 'corpus/training/part-00000', folder))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout.splitlines() == [str(cells), "[]"], run.stderr


def test_digits_of_other_scripts(corpus, tmp_path):
    (tmp_path / "manifest.json").unlink()
    edit(tmp_path / "manifest.csv", lambda lines: [line.replace(",20,", ",٢٠,") for line in lines])
    with pytest.raises(UserError, match="not a valid cells"):
        read_manifest(tmp_path / "manifest.csv")


@pytest.fixture
def remote(server: Loopback) -> Config:
    """A configuration of a corpus of three files on a loopback server."""
    for number in (1, 2, 3):
        server.add(number, b"x" * number)
    config = load(overrides={"preset": "paper"})
    changes = {"api": server.api, "parts": 1, "organisms": ["Homo sapiens"]}
    values = {"hosts": HOSTS, "timeout": 1.5, "longest_pause": 0}
    download = config.corpus.download.model_copy(update=values)
    corpus = config.corpus.model_copy(update={"download": download, **changes})
    heart = {"heart": Dataset(title="Heart", id=uuid(1003))}
    return config.model_copy(update={"corpus": corpus, "datasets": heart})


def test_a_lock_may_be_edited(remote, tmp_path):
    """People remove rows of locks. A manifest is also a lock, even next to its summary."""
    make_manifest(remote.corpus, remote.datasets, tmp_path)
    summary = json.loads((tmp_path / "manifest.json").read_text())
    assert summary["manifest"]["rows"] == 3
    edit(tmp_path / "manifest.csv", lose_first)
    edited = with_settings(remote, {"corpus.manifest": str(tmp_path / "manifest.csv")})
    assert estimate_volume(edited, tmp_path / "results").files == 2
    (tmp_path / "results").mkdir()
    make_manifest(edited.corpus, remote.datasets, tmp_path / "results")
    names = [row.file for row in read_manifest(tmp_path / "results" / "manifest.csv")]
    assert names == [uuid(1002), "heart"]
    # A file with the name of a lock that is not a summary does not matter.
    for content in ("[1]", '{"rows": 9}', "not JSON"):
        (tmp_path / "results" / "manifest.json").write_text(content)
        assert len(read_manifest(tmp_path / "results" / "manifest.csv")) == 2


def test_invalid_values(tmp_path):
    values = [("cells", "-1"), ("part", "../1"), ("location", "/a\x1b[2J"), ("excluded", "1-")]
    row = ManifestRow(file="one", role="training", source="local", location="/one", cells="5")
    for name, value in values + [("file", x) for x in ("", "../a", "/a", ".a", "a\n", "a" * 201)]:
        write_manifest(tmp_path / "m.csv", [row, replace(row, **{"file": "two", name: value})])
        with pytest.raises(UserError, match=f"row 2: .* is not a valid {name};") as caught:
            read_manifest(tmp_path / "m.csv")
        assert str(caught.value).isprintable()


def test_a_replaced_file_without_training_cells(tmp_path):
    """All its cells were repeated, so the manifest did not list it, and nothing was made again."""
    counts = np.random.default_rng(0).poisson(2, (3, 20, 30))
    names = ("cells", "copy", "other")
    paths = [
        write_cells(tmp_path / f"{name}.h5ad", counts[number], obs={"cell_type": ["T", "B"] * 10})
        for name, number in zip(names, (0, 0, 1), strict=True)
    ]
    files = LocalFiles(files=str(paths[0]), held_out=0.5), LocalFiles(files=str(paths[1]))
    corpus, datasets = local_corpus(*files), {"cells": Dataset(title="Cells")}
    make_manifest(corpus, datasets, tmp_path)
    assert replaced_files(tmp_path / "manifest.csv") == []
    os.utime(paths[2], (0, 0))  # Snakemake compares modification times
    paths[2].replace(paths[1])
    assert replaced_files(tmp_path / "manifest.csv") == [paths[1]]
    make_manifest(corpus, datasets, tmp_path)
    parts = [row.cells for row in read_manifest(tmp_path / "manifest.csv") if row.part]
    assert parts == ["10", "20"]
