"""Faults in single stages: a one-line error, no unfinished file, and the same bytes afterwards.

Killed stages are in ``test_killed.py``, killed runs in ``test_runs.py``, jobs of a cluster in
``test_slurm.py``, downloads in ``tests/corpus``, checkpoints and lost processes in
``tests/training``.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import Job
from small_disk import mount, small_disk

pytestmark = pytest.mark.faults

RESULTS = "results/demo"
MODEL = "training/sigmoid_256/model.safetensors"
LOSSES = "metrics/validation_loss/simulated_heart/sigmoid_256.parquet"


@pytest.fixture(scope="module")
def listed(finished: Any) -> list[Job]:
    """All jobs of a finished run."""
    jobs: list[Job] = finished.listed("--forceall")
    return jobs


@pytest.fixture
def find(finished: Any, listed: list[Job], tmp_path: Path) -> Callable[[str], Job]:
    """A function that returns the job that writes a result file, in a copy of the finished run."""
    folder = finished.copy(tmp_path / "project").folder

    def find_job(file: str) -> Job:
        (job,) = (
            job
            for job in listed
            if any(f"{RESULTS}/{file}/".startswith(f"{output}/") for output in job.outputs)
        )
        return replace(job, folder=folder)

    return find_job


def run_to_error(job: Job, capfd: pytest.CaptureFixture[str]) -> str:
    """Run a job that fails. Return its error, which is the same line on terminal and log."""
    capfd.readouterr()
    assert job.run() == 1
    (error,) = {line for line in capfd.readouterr().err.splitlines() if "error" in line}
    return error


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        ("corpus/evaluation/simulated_heart.h5ad", "full"),
        ("tokens/training/part-00000", "full"),
        ("training/sigmoid_128/model.safetensors", "full"),
        ("tables/evaluation_datasets.csv", "full"),
        ("tables/evaluation_datasets.csv", "read-only"),
    ],
)
def test_a_disk_without_room_or_permission_is_one_line(
    file: str, fault: str, find: Callable[[str], Job], capfd: pytest.CaptureFixture[str]
) -> None:
    """The job's folder is on a disk of its own."""
    job = find(file)
    before = job.checksums()
    job.remove()
    place = (job.folder / RESULTS / file).parent
    with small_disk(place) as full:
        if fault == "read-only":
            full.unlink()
            mount("-o", "remount,ro", place)
        error = run_to_error(job, capfd)
        reasons = {"full": ("No space left", "disk is full"), "read-only": ("Read-only file",)}
        assert any(reason in error for reason in reasons[fault])
        assert str(place) in error or str(place.relative_to(job.folder)) in error
        assert not list(place.rglob(".*partial*"))
        assert job.checksums() == {}
        if fault == "read-only":
            mount("-o", "remount,rw", place)
        full.unlink(missing_ok=True)
        assert job.run() == 0
        assert job.checksums() == before


@pytest.mark.parametrize(
    ("fault", "file", "reader"),
    [
        ("flipped", "corpus/evaluation/simulated_heart.h5ad", "tokens/evaluation/simulated_heart"),
        ("truncated", "corpus/evaluation/simulated_heart.json", "tables/evaluation_datasets.csv"),
        ("truncated", "tokens/training/part-00000/shard-00000.arrow", MODEL),
        ("flipped", MODEL, "embeddings/simulated_heart/sigmoid_256.h5ad"),
        ("truncated", LOSSES, "tables/validation_loss.csv"),
        (
            "truncated",
            "metrics/umap/simulated_heart/sigmoid_256.parquet",
            "figures/umap_simulated_heart.png",
        ),
    ],
)
def test_a_damaged_file_is_named_and_made_again(
    fault: str,
    file: str,
    reader: str,
    find: Callable[[str], Job],
    capfd: pytest.CaptureFixture[str],
) -> None:
    jobs = find(file), find(reader)
    before = [job.checksums() for job in jobs]
    path = jobs[0].folder / RESULTS / file
    data = bytearray(path.read_bytes())
    if fault == "truncated":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    jobs[1].remove()
    assert path.name in run_to_error(jobs[1], capfd)
    assert jobs[1].checksums() == {}
    for job in jobs:
        job.remove()
        assert job.run() == 0
    assert [job.checksums() for job in jobs] == before


def test_a_clock_that_jumps_changes_no_byte(find: Callable[[str], Job]) -> None:
    files = (
        "tokens/training/part-00000",
        "tokens/evaluation/simulated_heart",
        MODEL,
        "embeddings/simulated_heart/sigmoid_256.h5ad",
    )
    jobs = [find(file) for file in files]
    before = [job.checksums() for job in jobs]
    for job in jobs:
        job.remove()
    for path in (jobs[0].folder / RESULTS).rglob("*"):
        os.utime(path, (2**31, 2**31) if path.is_dir() else (0, 0))
    for job in jobs:
        assert job.run() == 0
    assert [job.checksums() for job in jobs] == before
