"""Whole runs of the workflow, in a copy of the project, at a scale of seconds."""

import copy
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "config.yaml", "profiles", "workflow", "envs", "src")

# Two datasets and a few steps: the same code and the same targets as the demo.
TINY: dict[str, Any] = {
    "corpus": {
        "parts": 2,
        "embedded": {"training_cells": 300, "evaluation_cells": 128, "genes": 900},
    },
    "datasets": {
        "adolescent_brain": None,
        "aging_pbmc": None,
        "healthy_colon": None,
        "indonesian_pbmc": None,
        "lung_acr": None,
    },
    "training": {"steps": 12, "global_batch": 8, "log_every": 2, "checkpoint_every": 4},
    "models": {
        "sigmoid_8k": {"training": {"steps": 8}},
        "softmax_8k": {"training": {"steps": 8}},
    },
    "evaluation": {"validation_loss": {"trials": 2}, "mmd": {"resamples": 50, "minimum_cells": 4}},
    "benchmarks": {
        "kernel": {"tokens": 128, "lengths": [64, 128], "iterations": 3, "warmup_ms": 1},
        "throughput": {"sizes": ["160M"], "contexts": [128], "steps": 2},
    },
}


class Project:
    """A copy of the project with a configuration of its own."""

    def __init__(self, folder: Path, overrides: dict[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(source, folder / part, ignore=ignored)
            else:
                shutil.copy(source, folder / part)
        self.configure(overrides)

    def configure(self, overrides: dict[str, Any]) -> None:
        """Set what is laid over ``config.yaml`` and the preset."""
        (self.folder / "tiny.yaml").write_text(yaml.safe_dump(overrides))

    def command(self, *arguments: str) -> list[str]:
        return [
            *(sys.executable, "-m", "snakemake", *arguments),
            *("--cores", "2", "--configfile", "tiny.yaml"),
        ]

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "PATH": path}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def run_and_kill(self, done: str, seconds: float = 240.0) -> None:
        """Run Snakemake and kill it with all its jobs once the file ``done`` exists."""
        process = subprocess.Popen(
            self.command(),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            if list(self.folder.glob(done)):
                break
            time.sleep(0.02)
        assert process.poll() is None, f"the run ended before {done} appeared"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def files(self, *patterns: str) -> dict[str, bytes]:
        """Names and bytes of result files."""
        results = self.folder / "results" / "demo"
        return {
            str(path.relative_to(results)): path.read_bytes()
            for pattern in patterns
            for path in sorted(results.glob(pattern))
            if path.is_file()
        }


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose workflow has run once, undisturbed."""
    project = Project(tmp_path_factory.mktemp("finished") / "project", TINY)
    run = project.run()
    assert run.returncode == 0, run.stdout + run.stderr
    return project


@pytest.fixture
def tiny() -> dict[str, Any]:
    """The overrides of a run of seconds."""
    return copy.deepcopy(TINY)


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[..., Project]:
    """Makes projects with given overrides."""

    def make(overrides: dict[str, Any], name: str = "project") -> Project:
        return Project(tmp_path / name, overrides)

    return make
