"""The workflow and training on a real Slurm: killed jobs run again, and give the same bytes."""

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from configurations import store
from slurm_cluster import Slurm, missing
from waiting import wait_until

from scsigmoid.benchmarks.simulated import write_simulated_tokens
from scsigmoid.config.check import load
from scsigmoid.config.schema import Config

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here"),
]

OUTPUT = "snakemake.log"
LIGHT = ("figure", "report_page", "table")
MODELS = ("sigmoid_128", "softmax_128", "sigmoid_256")
# Snakemake that asks Slurm every second. The plugin would increase the interval.
IMPATIENT = """
import snakemake.cli
from snakemake_executor_plugin_slurm import Executor
Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, value: None)
snakemake.cli.main()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A running cluster, whose commands are first in ``PATH``."""
    running = Slurm(tmp_path_factory.mktemp("slurm") / "cluster")
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{running.commands}{os.pathsep}{before}"
    try:
        yield running
    finally:
        os.environ["PATH"] = before
        running.stop()


@contextmanager
def submitted(project: Any, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start Snakemake with the Slurm profile."""
    child = subprocess.Popen(
        [
            *(sys.executable, "-c", IMPATIENT, "--workflow-profile", "workflow/profiles/slurm"),
            *("--cores", "2", "--configfile", "tiny.yaml", "--slurm-status-command", "squeue"),
            *("--slurm-init-seconds-before-status-checks", "1", *arguments),
        ],
        cwd=project.folder,
        env=project.environment(),
        stdout=(project.folder / OUTPUT).open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def outcome(project: Any, run: "subprocess.Popen[bytes]", seconds: float = 120.0) -> str:
    """Wait until Snakemake ends. Return what it has printed."""
    run.wait(timeout=seconds)
    text: str = (project.folder / OUTPUT).read_text(encoding="utf-8")
    return text


def train(config: Config, model: str, tokens: Path, vocabulary: Path) -> list[str]:
    """Return the command that trains a model, without its output."""
    configuration = store(config, tokens.parent / "stored")
    return [
        *(sys.executable, "-m", "scsigmoid", "train", "--model", model, "--tokens", str(tokens)),
        *("--vocabulary", str(vocabulary), "--configuration", str(configuration)),
    ]


def workers(model: str, folder: Path) -> list[psutil.Process]:
    """Return the processes that train a model in a folder. Other tests train in other folders."""
    command = ["-m", "scsigmoid", "train", "--model", model]
    return [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if (process.info["cmdline"] or [])[1:6] == command and process.info["cwd"] == str(folder)
    ]


@pytest.mark.timeout(900)
def test_the_demo_runs_through_the_profile(
    cluster: Slurm, finished: Any, make_project: Callable[..., Any], tiny: dict[str, Any]
) -> None:
    """Tables equal those of a local run. Tables, figures and the report are one submission.

    The job of one model is cancelled, the process of another is killed, and the time of a third
    runs out.
    """
    earlier = len(cluster.jobs())
    # The demo does not ask for GPUs.
    project = make_project(tiny | {"device": "auto"})

    def number(model: str) -> str:
        comment = f"rule_train_wildcards_{model}"
        return [number for number, name, _ in cluster.jobs() if name == comment][-1]

    first: dict[str, str] = {}

    def new_worker() -> tuple[str, psutil.Process] | None:
        for model in MODELS:
            for worker in () if model in first else workers(model, project.folder):
                return model, worker
        return None

    with submitted(project) as run:
        while len(first) < len(MODELS):
            model, worker = wait_until(new_worker, seconds=400)
            worker.suspend()  # so that it does not end by itself
            first[model] = number(model)
            assert worker.environ()["CUDA_VISIBLE_DEVICES"] == "0"
            if model == "sigmoid_128":
                cluster.ask("scancel", first[model])
            elif model == "softmax_128":
                worker.kill()
            else:
                cluster.ask("scontrol", "update", f"JobId={first[model]}", "EndTime=now+1")
        output = outcome(project, run, seconds=400)
    assert run.returncode == 0, output
    expected, found = finished.science(), project.science()
    assert expected.keys() == found.keys()
    assert [name for name in expected if expected[name] != found[name]] == []
    assert (project.folder / "results/demo/report.html").is_file()

    jobs = cluster.jobs()[earlier:]
    states = {number: state for number, _, state in jobs}
    assert [states[first[model]] for model in MODELS] == ["CANCELLED", "FAILED", "TIMEOUT"]
    rules = Counter(comment.removeprefix("rule_").split("_wildcards")[0] for _, comment, _ in jobs)
    planned = Counter(project.jobs("--forceall"))
    del planned["all"]
    for rule in LIGHT:
        del planned[rule]
    # The plugin names a group's job after its rules.
    assert rules == planned + Counter({"train": len(MODELS), "_".join(["report", *LIGHT]): 1})
    for job, comment, _ in jobs:
        facts = cluster.ask("scontrol", "show", "job", job)
        assert ("gres:gpu" in facts) == ("Partition=gpu" in facts), comment


def test_a_failing_job_is_reported(
    cluster: Slurm, make_project: Callable[..., Any], tmp_path: Path
) -> None:
    """The message names the rule and the log, and the log contains the error."""
    bad = tmp_path / "bad.h5ad"
    bad.write_bytes(b"not an h5ad file")
    project = make_project(
        {
            "preset": "demo",
            "corpus": {"source": "local", "local": [{"files": str(bad), "held_out": 0.5}]},
        }
    )
    with submitted(project, "results/demo/corpus/manifest.csv", "--retries", "0") as run:
        output = outcome(project, run)
    assert run.returncode != 0
    assert "Error in rule manifest" in output
    assert "SLURM status is: 'FAILED'" in output
    assert "results/demo/logs/manifest.log" in output
    assert f"scsigmoid: error: {bad}" in output
    assert "Traceback" not in output


def test_two_nodes_stop_in_time_and_continue(
    cluster: Slurm, tiny: dict[str, Any], tmp_path: Path
) -> None:
    """After SIGTERM, training writes a checkpoint and Slurm requeues the job."""
    tiny["training"] |= {"steps": 60, "execution": {"checkpoint_every": 10, "log_every": 20}}
    config = load(overrides=tiny)
    write_simulated_tokens(tmp_path, config.benchmarks.training, 64, 127, 1)
    command = train(config, "sigmoid_128", tmp_path / "tokens", tmp_path / "vocabulary.parquet")
    two, log, script = tmp_path / "two", tmp_path / "two.log", tmp_path / "job.sh"
    words = [*command, "--nodes", "2", "--output", str(two), "--log", str(log)]
    script.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
    number = cluster.ask(
        *("sbatch", "--parsable", "--partition=gpu", "--nodes=2", "--gpus=2", "--requeue"),
        *("--time=10", f"--output={tmp_path / 'slurm.log'}", "--open-mode=append", str(script)),
    )
    wait_until(lambda: any(two.glob("checkpoints/step-*.sha256")))
    # The signal that --signal=TERM@300 sends 300 seconds before the time limit.
    cluster.ask("scancel", "--signal=TERM", number)
    wait_until(lambda: (number, "PENDING") in [(n, s) for n, _, s in cluster.jobs()])
    # The first process writes "SIGTERM", or "a signal" if the other process received it first.
    assert re.search("stopped by (SIGTERM|a signal to another process) after step", log.read_text())
    # Slurm would wait two minutes before it runs the job again. A restart within a second fails,
    # because Slurm revokes the credentials of the first run, and times them to the second.
    cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now+2")
    wait_until(lambda: (two / "model.safetensors").is_file())
    assert "continuing from the checkpoint" in log.read_text()

    whole = tmp_path / "whole"
    subprocess.run([*command, "--gpus", "2", "--output", whole], check=True, capture_output=True)
    assert (two / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_no_process_outlives_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs outlived the daemons, so a test that failed left its jobs running."""
    other = Slurm(tmp_path / "cluster")
    try:
        monkeypatch.setenv("PATH", f"{other.commands}{os.pathsep}{os.environ['PATH']}")
        script, numbers = tmp_path / "job.sh", tmp_path / "numbers"
        script.write_text(f"#!/bin/sh\nsetsid sleep 600 &\necho $! $$ > {numbers}\nkill -STOP $$\n")
        other.ask("sbatch", "--output=/dev/null", str(script))
        wait_until(lambda: numbers.is_file() and numbers.read_text().endswith("\n"))
    finally:
        other.stop()
    wait_until(lambda: not any(map(psutil.pid_exists, map(int, numbers.read_text().split()))), 5)
