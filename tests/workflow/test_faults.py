"""Faults, stage by stage: one clear line, nothing half-written, and the same bytes afterwards.

Killed workers are in ``test_killed.py``, whole runs that are killed in ``test_runs.py``, jobs of a
cluster in ``test_slurm.py``, downloads in ``tests/corpus``, checkpoints and lost processes in
``tests/training``.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_disk import mount, small_disk
from small_experiment import DATASET, MODEL, OUTPUTS, PART, Line

from scsigmoid.cli import main

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def overrides() -> dict[str, Any]:
    return {
        "corpus": {
            "parts": 1,
            "embedded": {"training_cells": 60, "training_files": 1, "evaluation_cells": 128},
        },
        "datasets": dict.fromkeys(
            (
                "adolescent_brain",
                "aging_pbmc",
                "healthy_colon",
                "indonesian_pbmc",
                "lung_acr",
                "pbmc68k",
            )
        ),
        "training": {"steps": 6, "global_batch": 8, "log_every": 2, "checkpoint_every": 2},
        "evaluation": {"validation_loss": {"trials": 1}},
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, overrides: dict[str, Any]) -> Line:
    """All stages, run once; in this process, which imports what the later ones need."""
    line = Line(tmp_path_factory.mktemp("undisturbed") / "results", overrides)
    for stage in OUTPUTS:
        assert main(line.arguments(stage)) == 0, stage
    return line


@pytest.fixture
def copied(undisturbed: Line, overrides: dict[str, Any]) -> Callable[[Path, str], Line]:
    """Makes lines that have the results of the stages before one."""

    def copy(folder: Path, stage: str) -> Line:
        shutil.copytree(undisturbed.results, folder, dirs_exist_ok=True)
        line = Line(folder, overrides)
        for later in list(OUTPUTS)[list(OUTPUTS).index(stage) :]:
            line.remove(later)
        return line

    return copy


def no_remains(line: Line) -> bool:
    """Whether no unfinished file is left."""
    return not list(line.results.rglob(".*partial*"))


@pytest.mark.parametrize(
    "stage", ["fetch-evaluation", "tokenize", "train", "validation-loss", "table"]
)
def test_a_full_disk_is_one_line(
    stage: str,
    undisturbed: Line,
    copied: Callable[[Path, str], Line],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The stage's folder is on a disk of its own."""
    line = copied(tmp_path / "results", stage)
    place = (line.results / OUTPUTS[stage][0]).parent
    place.mkdir(parents=True, exist_ok=True)
    capfd.readouterr()
    with small_disk(place) as full:
        assert line.run(stage) == 1
        errors = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
        assert len(errors) == 1, errors
        assert "No space left on device" in errors[0] or "disk is full" in errors[0]
        assert str(place) in errors[0]
        assert no_remains(line)
        assert line.bytes(stage) == {}
        full.unlink()
        assert line.run(stage) == 0
        assert line.bytes(stage) == undisturbed.bytes(stage)


def test_a_folder_that_cannot_be_written_is_one_line(
    undisturbed: Line,
    copied: Callable[[Path, str], Line],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    line = copied(tmp_path / "results", "table")
    place = line.results / "tables"
    place.mkdir(exist_ok=True)
    capfd.readouterr()
    with small_disk(place) as full:
        full.unlink()
        mount("-o", "remount,ro", place)
        assert line.run("table") == 1
        (error,) = capfd.readouterr().err.splitlines()
        assert "cannot be written (Read-only file system)" in error
        assert str(place) in error
        mount("-o", "remount,rw", place)
        assert line.run("table") == 0
        assert line.bytes("table") == undisturbed.bytes("table")


@pytest.mark.parametrize(
    ("fault", "file", "made_by", "read_by"),
    [
        ("flipped", f"corpus/evaluation/{DATASET}.h5ad", "fetch-evaluation", "tokenize-evaluation"),
        ("truncated", f"tokens/training/{PART}/shard-00000.arrow", "tokenize", "train"),
        ("flipped", f"training/{MODEL}/model.safetensors", "train", "embeddings"),
    ],
)
def test_a_damaged_file_is_named_and_made_again(
    fault: str,
    file: str,
    made_by: str,
    read_by: str,
    undisturbed: Line,
    copied: Callable[[Path, str], Line],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    line = copied(tmp_path / "results", read_by)
    path = line.results / file
    data = bytearray(path.read_bytes())
    if fault == "truncated":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    capfd.readouterr()
    code = line.run(read_by)
    errors = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert code == 1
    assert len(errors) == 1
    assert path.name in errors[0]
    line.remove(made_by)
    line.remove(read_by)
    assert (line.run(made_by), line.run(read_by)) == (0, 0)
    assert line.bytes(made_by) == undisturbed.bytes(made_by)
    assert line.bytes(read_by) == undisturbed.bytes(read_by)


@pytest.mark.parametrize(
    ("file", "read_by"),
    [
        ("metrics/validation_loss/heart_oft/sigmoid_4k.parquet", "table comparison"),
        ("metrics/mmd/heart_oft.csv", "table mmd_heart_oft"),
        ("metrics/umap/heart_oft/sigmoid_4k.parquet", "figure umap_heart_oft"),
        ("corpus/evaluation/heart_oft.json", "table evaluation_datasets"),
    ],
)
def test_a_truncated_result_is_named(
    file: str,
    read_by: str,
    finished: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    results = finished.folder / "results/demo"
    whole = (results / file).read_bytes()
    (results / file).write_bytes(whole[: len(whole) // 2])
    command = [*read_by.split(), "--configuration", str(results / "config.yaml")]
    assert main([*command, "--output", str(tmp_path / "made.csv")]) == 1
    (results / file).write_bytes(whole)
    (error,) = capfd.readouterr().err.splitlines()
    assert str(results / file) in error
    assert not list(tmp_path.glob("made*"))


def test_a_clock_that_jumps_changes_no_byte(
    undisturbed: Line, copied: Callable[[Path, str], Line], tmp_path: Path
) -> None:
    line = copied(tmp_path / "results", "tokenize")
    for path in line.results.rglob("*"):
        os.utime(path, (2**31, 2**31) if path.is_dir() else (0, 0))
    for stage in ("tokenize", "tokenize-evaluation", "train", "embeddings"):
        assert line.run(stage) == 0
        assert line.bytes(stage) == undisturbed.bytes(stage)
