"""Kill -9 of the worker in every stage: nothing half-written, and the same bytes afterwards.

The workflow's stages are called as the workflow calls them.
"""

import argparse
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked import forked

from scsigmoid.cli import main, parser

pytestmark = pytest.mark.faults

RESULTS = "results/demo"
VOCABULARY = f"{RESULTS}/tokens/vocabulary.parquet"
# Stages that a run of the demo does without: what they are called with, and what they leave.
OTHERS = {
    "lock": (
        f"--manifest {RESULTS}/corpus/manifest.csv --cells {RESULTS}/corpus/training/part-*"
        f" --metadata {RESULTS}/corpus/evaluation/*.json --output lock.csv",
        ["lock.csv"],
    ),
    "embed": (
        f"{RESULTS}/corpus/evaluation/heart_oft.h5ad embedded.h5ad"
        f" --checkpoint {RESULTS}/training/sigmoid_2k/model.safetensors",
        ["embedded.h5ad"],
    ),
    "simulate-tokens": (
        f"--configuration {RESULTS}/config.yaml --cells 64 --output simulated",
        ["simulated/tokens", "simulated/vocabulary.parquet"],
    ),
}
LEFT_OUT = {
    "plan": "writes nothing",
    **dict.fromkeys(
        ("study", "study-runs", "study-scores"),
        "not in the demo; tests/study calls them, and they write as `table` does",
    ),
}


# These set numba up before it is imported, which a forked process may find done.
COMPILED = {"scib", "umap"}
LIVING = "import sys; from scsigmoid.cli import main; sys.exit(main(sys.argv[1:]))"
DYING = f"import os; os.replace = lambda *names: os.kill(os.getpid(), 9); {LIVING}"


@dataclass(frozen=True)
class Stage:
    """A stage, its arguments as the shell gives them, and what it leaves."""

    name: str
    arguments: list[str]
    outputs: list[Path]

    def is_measured(self, path: Path) -> bool:
        """Whether a result holds times, which differ from run to run."""
        return self.name.startswith("benchmark") or path.name == "journal.csv"

    def run(self, folder: Path, *, dies: bool = False) -> int:
        """Run it in a folder, in a process of its own; returns the exit code.

        Args:
            folder: where to.
            dies: as by kill -9, with its first file complete but not in its place.
        """
        if self.name in COMPILED:
            command = [sys.executable, "-c", DYING if dies else LIVING, self.name, *self.arguments]
            return subprocess.run(command, cwd=folder, check=False).returncode

        def work() -> int:
            os.chdir(folder)
            if dies:
                os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
            return main([self.name, *self.arguments])

        return forked(work)

    def remove(self) -> None:
        """Remove what it leaves, and what training goes on from."""
        for path in self.outputs:
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            shutil.rmtree(path.parent / "checkpoints", ignore_errors=True)

    def bytes(self) -> dict[Path, bytes]:
        """What it has left, by path."""
        files = (file for path in self.outputs for file in (path, *path.rglob("[!.]*")))
        return {file: file.read_bytes() for file in sorted(files) if file.is_file()}


def names() -> list[str]:
    """All subcommands."""
    (stages,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    return sorted(stages.choices.keys() - LEFT_OUT.keys())


@pytest.fixture(scope="module")
def stages(finished: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stage]:
    """Every stage; of the workflow's jobs the first of each."""
    for slow in (
        "anndata",
        "matplotlib.pyplot",
        "seaborn",
        "sklearn.decomposition",
        "torch._dynamo",
    ):
        importlib.import_module(slow)  # once, for all forked processes
    run = finished.run("--dry-run", "--printshellcmds", "--forceall", "--quiet", "host")
    assert run.returncode == 0, run.stdout + run.stderr
    jobs = []
    for job in run.stdout.split("\nrule ")[1:]:
        outputs = re.search(r"^    output: (.*)$", job, re.MULTILINE)
        command = re.search(r"^Shell command: (.*)$", job, re.MULTILINE)
        if outputs and command:
            jobs.append((command[1], outputs[1].split(", ")))
    for name, (given, outputs) in OTHERS.items():
        jobs.append((f"python -m scsigmoid {name} {given}", outputs))

    words = tmp_path_factory.mktemp("words")
    (words / "python").write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    (words / "python").chmod(0o755)
    path = os.pathsep.join([str(words), os.environ["PATH"]])
    found: dict[str, Stage] = {}
    for command, outputs in jobs:
        name = command.partition(" -m scsigmoid ")[2].split()[0]
        if name not in found:
            printed = subprocess.run(
                ["sh", "-c", command],
                cwd=finished.folder,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=True,
            )
            arguments = printed.stdout.split("\0")[3:-1]
            found[name] = Stage(name, arguments, [finished.folder / name for name in outputs])
    return found


@pytest.mark.parametrize("name", names())
def test_a_killed_stage_leaves_nothing_and_runs_again(
    name: str, stages: dict[str, Stage], finished: Any
) -> None:
    stage = stages[name]
    if not all(path.exists() for path in stage.outputs):
        assert stage.run(finished.folder) == 0
    before = stage.bytes()
    stage.remove()
    assert stage.run(finished.folder, dies=True) == -signal.SIGKILL
    assert stage.bytes() == {}
    assert stage.run(finished.folder) == 0
    after = stage.bytes()
    assert after.keys() == before.keys()
    for path, data in before.items():
        if stage.is_measured(path):
            path.write_bytes(data)
        else:
            assert after[path] == data, path
