"""The workflow and training on a real Slurm: what is killed comes back, and to the same bytes."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from slurm_cluster import Slurm, missing

from scsigmoid.benchmarks.simulated_tokens import write_simulated_tokens
from scsigmoid.config.check import as_json, load
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here")

MODELS = ("sigmoid_2k", "softmax_2k", "sigmoid_4k")
# Snakemake, but for the plugin's habit of asking less and less often.
IMPATIENT = """
import snakemake.cli
from snakemake_executor_plugin_slurm import Executor
Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, value: None)
snakemake.cli.main()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A running cluster, first in ``PATH``."""
    running = Slurm(tmp_path_factory.mktemp("slurm") / "cluster")
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{running.commands}{os.pathsep}{before}"
    try:
        yield running
    finally:
        os.environ["PATH"] = before
        running.stop()


def until(found: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """Wait until something is found."""
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)
    return result


@contextmanager
def submitted(project: Any, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Snakemake with the profile as it is shipped, but asking Slurm every second."""
    child = subprocess.Popen(
        [
            *(sys.executable, "-c", IMPATIENT, "--workflow-profile", "workflow/profiles/slurm"),
            *("--cores", "2", "--configfile", "tiny.yaml", "--slurm-status-command", "squeue"),
            *("--slurm-init-seconds-before-status-checks", "1", *arguments),
        ],
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def train(config: Config, model: str, tokens: Path, vocabulary: Path) -> list[str]:
    """The command that trains a model, but for its output."""
    settings = as_json(Plan(config).settings(f"models.{model}"))
    return [
        *(sys.executable, "-m", "scsigmoid", "train", "--model", model, "--tokens", str(tokens)),
        *("--vocabulary", str(vocabulary), "--settings", settings),
    ]


def workers(model: str, folder: Path) -> list[psutil.Process]:
    """Processes that train a model in a folder; other tests train elsewhere meanwhile."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        trains = words[1:6] == ["-m", "scsigmoid", "train", "--model", model]
        if trains and process.info["cwd"] == str(folder):
            found.append(process)
    return found


def test_killed_jobs_are_retried_to_the_same_bytes(
    cluster: Slurm, make_project: Callable[..., Any], tiny: dict[str, Any]
) -> None:
    """One model's job is cancelled, one's process killed, one's time runs out."""
    tiny["corpus"]["parts"] = 1
    tiny["training"] |= {"steps": 80, "checkpoint_every": 10, "log_every": 50}
    # The demo asks for no GPU; whether jobs get theirs is the question here.
    project = make_project(tiny | {"device": "auto"})
    config = load(overrides=tiny)
    results = project.folder / "results" / "demo"
    simulated = project.folder / "simulated"
    write_simulated_tokens(simulated, config.benchmarks.throughput, 64, 383, 1)
    tokens = results / "tokens/training/part-00000"
    vocabulary = results / "tokens/vocabulary.parquet"
    tokens.parent.mkdir(parents=True)
    (simulated / "tokens").rename(tokens)
    (simulated / "vocabulary.parquet").rename(vocabulary)

    def number(model: str) -> str:
        comment = f"rule_train_wildcards_{model}"
        return [number for number, name, _ in cluster.jobs() if name == comment][-1]

    def checkpointed(model: str) -> bool:
        return any((results / "training" / model / "checkpoints").glob("step-*.sha256"))

    targets = [f"results/demo/training/{model}/model.safetensors" for model in MODELS]
    table = "results/demo/tables/hyperparameters.csv"
    with submitted(project, table, *targets, "--allowed-rules", "train", "table") as run:
        waiting, first = set(MODELS), {}
        while waiting:
            model = until(lambda: next(filter(checkpointed, waiting), None), "a checkpoint")
            waiting.remove(model)
            first[model] = number(model)
            (worker,) = workers(model, project.folder)
            assert worker.environ()["CUDA_VISIBLE_DEVICES"] == "0"
            if model == "sigmoid_2k":
                cluster.ask("scancel", first[model])
            elif model == "softmax_2k":
                worker.kill()
            else:
                cluster.ask("scontrol", "update", f"JobId={first[model]}", "EndTime=now+1")
        output, _ = run.communicate(timeout=240)
    assert run.returncode == 0, output

    jobs = cluster.jobs()
    states = {number: state for number, _, state in jobs}
    assert [states[first[model]] for model in MODELS] == ["CANCELLED", "FAILED", "TIMEOUT"]
    assert len(jobs) == 1 + 2 * len(MODELS)
    for job, comment, _ in jobs:
        granted = "gres:gpu" in cluster.ask("scontrol", "show", "job", job)
        assert granted == comment.startswith("rule_train"), comment

    for model in MODELS:
        undisturbed = project.folder / "undisturbed" / model
        command = [*train(config, model, tokens, vocabulary), "--output", str(undisturbed)]
        subprocess.run(command, check=True, capture_output=True)
        trained = results / "training" / model / "model.safetensors"
        assert trained.read_bytes() == (undisturbed / "model.safetensors").read_bytes(), model


def test_a_failing_job_is_reported(
    cluster: Slurm, make_project: Callable[..., Any], tmp_path: Path
) -> None:
    """The rule, where its log is, and what stands there."""
    bad = tmp_path / "bad.h5ad"
    bad.write_bytes(b"not an h5ad file")
    project = make_project(
        {"corpus": {"source": "local", "local": [{"files": str(bad), "held_out": 0.5}]}}
    )
    with submitted(project, "results/demo/corpus/manifest.csv", "--retries", "0") as run:
        output, _ = run.communicate(timeout=120)
    assert run.returncode != 0
    print(output)
    assert "Error in rule manifest" in output
    assert "results/demo/logs/manifest.log" in output
    assert f"scsigmoid: error: {bad}" in output
    assert "Traceback" not in output


def test_two_nodes_stop_in_time_and_go_on(
    cluster: Slurm, tiny: dict[str, Any], tmp_path: Path
) -> None:
    """Nodes find each other; warned, they write a checkpoint, and Slurm runs the job again."""
    tiny["training"] |= {"steps": 60, "checkpoint_every": 10, "log_every": 20}
    config = load(overrides=tiny)
    write_simulated_tokens(tmp_path, config.benchmarks.throughput, 64, 127, 1)
    command = train(config, "sigmoid_2k", tmp_path / "tokens", tmp_path / "vocabulary.parquet")
    two, log, script = tmp_path / "two", tmp_path / "two.log", tmp_path / "job.sh"
    words = [*command, "--nodes", "2", "--output", str(two), "--log", str(log)]
    script.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
    number = cluster.ask(
        *("sbatch", "--parsable", "--partition=gpu", "--nodes=2", "--gpus=2", "--requeue"),
        *("--time=10", f"--output={tmp_path / 'slurm.log'}", "--open-mode=append", str(script)),
    )
    until(lambda: any(two.glob("checkpoints/step-*.sha256")), "a checkpoint")
    # What --signal=TERM@300 does 300 seconds before the end.
    cluster.ask("scancel", "--signal=TERM", number)
    until(lambda: (number, "PENDING") in [(n, s) for n, _, s in cluster.jobs()], "the requeued job")
    assert "stopped by SIGTERM after step" in log.read_text()
    # Slurm waits two minutes before it runs a job again.
    cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now")
    until(lambda: (two / "model.safetensors").is_file(), "the model")
    assert "going on from the checkpoint" in log.read_text()

    whole = tmp_path / "whole"
    subprocess.run([*command, "--gpus", "2", "--output", whole], check=True, capture_output=True)
    assert (two / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
