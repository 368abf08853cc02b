"""What a journal's header says."""

import subprocess
from pathlib import Path

import pytest
import torch

from scsigmoid.training import run as module
from scsigmoid.training.processes import Processes
from scsigmoid.training.run import TrainingRun


def test_header(run: TrainingRun):
    found = module.header(
        run, run.encoder_settings(64), Processes(device=torch.device("cpu"), count=4)
    )
    assert found["torch"] == torch.__version__
    assert found["device"] == "cpu"
    assert found["processes"] == "4"
    assert '"learning_rate": 0.01' in found["training"]
    assert all(isinstance(value, str) for value in found.values())


def test_the_commit_is_that_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "run.py"
    source.write_text("old")
    monkeypatch.setattr(module, "__file__", str(source))
    assert module.commit() == "unknown"

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init")
    # Inside a checkout, but not of it.
    assert module.commit() == "unknown"
    git("add", "run.py")
    git("commit", "-m", "one")
    assert module.commit() == git("rev-parse", "HEAD")
    source.write_text("new")
    assert module.commit() == git("rev-parse", "HEAD") + "-dirty"
