"""SIGKILL in every stage: no unfinished file is left, and the next attempt has the same bytes."""

import importlib
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import Job

from scsigmoid.cli.arguments import STAGES

pytestmark = pytest.mark.faults

RESULTS = "results/demo"
#: Stages that are not jobs of the demo, with arguments and outputs.
OTHERS = {
    "lock": (
        f"--manifest {RESULTS}/corpus/manifest.csv --cells {RESULTS}/corpus/training/part-00000"
        f" {RESULTS}/corpus/training/part-00001"
        f" --metadata {RESULTS}/corpus/evaluation/simulated_heart.json --output lock.csv",
        ["lock.csv"],
    ),
    "embed": (
        f"{RESULTS}/corpus/evaluation/simulated_heart.h5ad embedded.h5ad"
        f" --checkpoint {RESULTS}/training/sigmoid_128/model.safetensors",
        ["embedded.h5ad"],
    ),
    "annotate": (
        f"{RESULTS}/corpus/training/part-00001/simulated_training_00.h5ad"
        f" {RESULTS}/corpus/evaluation/simulated_heart.h5ad annotated.h5ad --label cell_type"
        f" --checkpoint {RESULTS}/training/sigmoid_128/model.safetensors",
        ["annotated.h5ad"],
    ),
    "simulate-tokens": (
        f"--configuration {RESULTS}/config.yaml --cells 64 --output simulated",
        ["simulated/tokens", "simulated/vocabulary.parquet"],
    ),
}
#: Stages that are not killed: `plan` writes nothing. `tests/study` calls the others, which are not
#: jobs of the demo and write files as `table` does.
LEFT_OUT = {"plan", "study", "study-runs", "study-scores"}


@pytest.fixture(scope="module")
def jobs(finished: Any) -> dict[str, Job]:
    """The first job of each stage."""
    slow = ("anndata", "matplotlib.pyplot", "seaborn", "sklearn.decomposition", "torch._dynamo")
    for module in slow:
        importlib.import_module(module)  # once, for all forked processes
    jobs = {job.stage: job for job in reversed(finished.listed("--forceall"))}
    for stage, (arguments, outputs) in OTHERS.items():
        jobs[stage] = Job([stage, *arguments.split()], outputs, Path())
    return jobs


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - LEFT_OUT))
def test_a_killed_stage_leaves_nothing_and_runs_again(
    stage: str, jobs: dict[str, Job], finished: Any, tmp_path: Path
) -> None:
    job = replace(jobs[stage], folder=finished.copy(tmp_path / "project").folder)
    if stage in OTHERS:
        assert job.run() == 0
    before = job.checksums()
    job.remove()
    assert job.run(is_killed=True) == -signal.SIGKILL
    assert job.checksums() == {}
    assert job.run() == 0
    assert job.checksums() == before
