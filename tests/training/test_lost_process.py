"""One of two processes is lost; two runs are started at once."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from scsigmoid.cli import main
from scsigmoid.training.run import TrainingRun

pytestmark = pytest.mark.faults


def arguments(run: TrainingRun, corpus: Any, output: Path, gpus: int) -> list[str]:
    settings = asdict(run)
    del settings["model"]
    return [
        *("train", "--model", run.model, "--gpus", str(gpus), "--output", str(output)),
        *("--tokens", *map(str, corpus.stores), "--vocabulary", str(corpus.vocabulary)),
        *("--settings", json.dumps({f"models.{run.model}": settings})),
    ]


def start(words: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "scsigmoid", *words], stderr=subprocess.PIPE, text=True
    )


def until(found: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until something is found."""
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return result


def test_a_lost_process_ends_the_run_which_goes_on(run: TrainingRun, corpus: Any, tmp_path: Path):
    long = replace(run, training=replace(run.training, steps=80, checkpoint_every=10))
    lost, whole = tmp_path / "lost", tmp_path / "whole"
    child = start(arguments(long, corpus, lost, 2))
    until(lambda: list(lost.glob("checkpoints/*.sha256")))
    second = next(
        process
        for process in psutil.Process(child.pid).children(recursive=True)
        if process.environ().get("RANK") == "1"
    )
    second.kill()
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 1
    lines = [line for line in errors.splitlines() if line.startswith("scsigmoid: error")]
    assert any("process 1 of 2 was killed by SIGKILL; run again" in line for line in lines), errors
    assert "Traceback" not in errors
    assert not (lost / "model.safetensors").exists()

    children = [start(arguments(long, corpus, folder, 2)) for folder in (lost, whole)]
    outputs = [child.communicate(timeout=240)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    assert "going on from the checkpoint after step" in outputs[0]
    assert (lost / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_two_runs_at_once_do_not_share_a_folder(
    run: TrainingRun, corpus: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    endless = replace(run, training=replace(run.training, steps=10**6))
    words = arguments(endless, corpus, tmp_path / "model", 1)
    first = start(words)
    try:
        until(lambda: list((tmp_path / "model").glob("checkpoints/*.sha256")))
        capfd.readouterr()
        assert main(words) == 1
        (error,) = [e for e in capfd.readouterr().err.splitlines() if "error" in e]
        assert f"process {first.pid} on" in error
        assert "is training this model; let it end, or stop it, and run again" in error
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
