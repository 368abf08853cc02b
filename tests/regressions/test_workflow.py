"""Faults of the workflow that were reported once: its records, signals, folders and resources."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from configurations import store
from permissions import without_privileges
from projects import TINY, Project
from slurm_cluster import Slurm, missing
from small_disk import mount, small_disk
from small_models import GENES, write_model
from stages import write_cells
from tenx import tenx_folder

from scsigmoid.benchmarks.simulated import write_simulated_tokens
from scsigmoid.cli import main
from scsigmoid.config import stored
from scsigmoid.config.check import load, merge
from scsigmoid.corpus.metadata import write_manifest
from scsigmoid.files import locked

MANIFEST = "results/demo/corpus/manifest.csv"
EVALUATION = "results/demo/corpus/evaluation/simulated_heart.h5ad"
MODELS = {
    name: f"results/demo/training/{name}/model.safetensors"
    for name in ("sigmoid_128", "softmax_128")
}
#: A plugin for another file system, which Snakemake can load.
STORAGE = """
from snakemake_interface_storage_plugins.storage_object import StorageObjectRead, StorageObjectWrite
from snakemake_interface_storage_plugins.storage_provider import StorageProviderBase

class StorageProvider(StorageProviderBase):
    pass

StorageProvider.__abstractmethods__ = frozenset()

class StorageObject(StorageObjectRead, StorageObjectWrite):
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.new(tmp_path / "project", TINY)


def test_a_job_prints_its_line_and_the_number_of_jobs_done(project: Project) -> None:
    run = project.run(MANIFEST)
    assert " manifest, log: " in run.stderr
    assert "1 of 1 steps (100%) done" in run.stderr
    assert "Select jobs" not in run.stderr
    assert "Execute" not in run.stderr
    assert "Finished jobid" not in run.stderr


def mark_submitted(project: Project, output: str, number: str) -> None:
    """Write Snakemake's mark of a job that was submitted to a cluster and has not ended."""
    folder = project.folder / ".snakemake" / "incomplete"
    folder.mkdir(parents=True, exist_ok=True)
    name = base64.urlsafe_b64encode(output.encode()).decode()
    (folder / name).write_text(json.dumps({"external_jobid": number}))


def place_tokens(project: Project, overrides: dict[str, Any]) -> None:
    """Write simulated tokens at the place of the training tokens of the only part."""
    project.configure(overrides)
    tokens = project.folder / "results/demo/tokens"
    settings = load(overrides=overrides).benchmarks.training
    write_simulated_tokens(tokens, settings, cells=64, longest=255, seed=1)
    (tokens / "training").mkdir()
    (tokens / "tokens").rename(tokens / "training/part-00000")


def train_command(project: Project, overrides: dict[str, Any], model: str) -> list[str]:
    """Return the arguments of ``scsigmoid`` that train a model."""
    configuration = store(load(overrides=overrides), project.folder / "stored")
    tokens = project.folder / "results/demo/tokens"
    output = (project.folder / MODELS[model]).parent
    arguments = ["train", "--model", model, "--tokens", str(tokens / "training/part-00000")]
    arguments += ["--vocabulary", str(tokens / "vocabulary.parquet"), "--configuration"]
    return [*arguments, str(configuration), "--output", str(output)]


def test_a_model_with_other_settings_than_the_configuration_is_trained_again(
    project: Project,
) -> None:
    """Snakemake has no record of the models, as after a copy, or if it was killed on a cluster."""
    overrides = merge(TINY, {"corpus": {"parts": 1}, "training": {"steps": 1}})
    place_tokens(project, overrides)
    for model in MODELS:
        assert main(train_command(project, overrides, model)) == 0
    # A setting that does not affect models, and one that affects one model.
    changes = {
        "training": {"execution": {"checkpoint_every": 7}},
        "models": {"softmax_128": {"training": {"learning_rate": 0.5}}},
    }
    project.configure(merge(overrides, changes))
    run = project.run("-n", *MODELS.values(), "--allowed-rules", "train")
    (line,) = [line for line in run.stderr.splitlines() if "settings" in line]
    assert "softmax_128" in line
    assert "learning_rate" in line
    assert re.findall(r"^    output: (\S+),", run.stdout, re.MULTILINE) == [MODELS["softmax_128"]]


def test_changed_settings_of_renamed_results_are_named(project: Project) -> None:
    """Snakemake has no record of the files, so it would say that nothing is to be done."""
    overrides = merge(TINY, {"corpus": {"parts": 1}, "training": {"steps": 1}})
    place_tokens(project, overrides)
    assert main(train_command(project, overrides, "sigmoid_128")) == 0
    results = project.folder / "results/demo"
    stored.store(load(overrides=overrides), results / "config.yaml", [])
    changes = {"results": "results/mine", "evaluation": {"umap": {"neighbors": 7}}}
    results.rename(results.with_name("mine"))
    project.configure(merge(overrides, changes))
    target = MODELS["sigmoid_128"].replace("demo", "mine")
    run = project.run("-n", target, "--allowed-rules", "train")
    (warning,) = [line for line in run.stderr.splitlines() if "warning" in line]
    assert "results/mine" in warning
    assert "evaluation.umap.neighbors" in warning
    assert "evaluation.umap.variance" not in warning


def test_a_results_folder_may_be_spelled_in_another_way(project: Project) -> None:
    """Snakemake found no records of the files, so changed settings did not run jobs again."""
    project.run(MANIFEST)
    leave_out = {"leave_out": [f"{0:08}-0000-0000-0000-{0:012}"]}
    project.configure(merge(TINY, {"corpus": leave_out, "results": ".//results/demo"}))
    assert project.jobs(MANIFEST) == {"manifest": 1}


def test_a_job_of_a_cluster_records_its_settings(project: Project) -> None:
    """Also if the Snakemake that has submitted the job was killed. Later changes run it again."""
    project.run(MANIFEST, EVALUATION, "--mode", "remote")
    project.configure(merge(TINY, {"corpus": {"leave_out": [f"{0:08}-0000-0000-0000-{0:012}"]}}))
    assert project.jobs(MANIFEST, EVALUATION) == {"manifest": 1}


def test_a_failed_job_of_a_cluster_keeps_its_number(project: Project, tmp_path: Path) -> None:
    """Training that Slurm had requeued was not named by the next run, if Snakemake was killed."""
    bad = tmp_path / "bad.h5ad"
    bad.write_bytes(b"not an h5ad file")
    local = [{"files": str(bad), "held_out": 0.5}]
    project.configure({"preset": "demo", "corpus": {"source": "local", "local": local}})
    mark_submitted(project, MANIFEST, "17")
    assert "Error in rule manifest" in project.failure(MANIFEST, "--mode", "remote")
    marks = list((project.folder / ".snakemake" / "incomplete").iterdir())
    assert len(marks) == 2  # of both outputs
    assert all(json.loads(mark.read_text()) == {"external_jobid": "17"} for mark in marks)


@pytest.mark.faults
@pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here")
def test_jobs_on_slurm_end_without_snakemake(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new start names the running job. Its settings are recorded when it ends."""
    cluster = Slurm(tmp_path / "cluster")
    monkeypatch.setenv("PATH", f"{cluster.commands}{os.pathsep}{os.environ['PATH']}")
    profile = ("--workflow-profile", "workflow/profiles/slurm", "--slurm-status-command", "squeue")
    launch = {"cwd": project.folder, "env": project.environment(), "stdout": subprocess.DEVNULL}

    def jobs() -> list[psutil.Process]:
        """Return the processes of jobs that make the manifest."""
        command = ["-m", "scsigmoid", "manifest"]
        folder = str(project.folder)
        processes = psutil.process_iter(["cmdline", "cwd"])
        infos = [(process, process.info) for process in processes]
        return [p for p, i in infos if i["cwd"] == folder and (i["cmdline"] or [])[1:4] == command]

    try:
        run = subprocess.Popen(
            project.command(MANIFEST, *profile), stderr=subprocess.DEVNULL, **launch
        )
        end = time.monotonic() + 120
        while not (job := jobs()):
            assert run.poll() is None
            assert time.monotonic() < end
        job[0].suspend()
        run.kill()
        run.wait()
        # The second run names the job of the first, and is killed, too.
        words = project.command(MANIFEST, *profile)
        run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **launch)
        assert run.stderr is not None
        assert any("earlier run" in line and "manifest" in line for line in run.stderr)
        run.kill()
        run.wait()
        job[0].resume()
        while any(state in ("PENDING", "RUNNING") for _, _, state in cluster.jobs()):
            assert time.monotonic() < end
            time.sleep(0.2)
    finally:
        cluster.stop()
    assert project.jobs(MANIFEST) == {}
    project.configure(merge(TINY, {"seed": 5}))
    assert project.jobs(MANIFEST) == {"manifest": 1}


@pytest.mark.faults
@pytest.mark.parametrize("receiver", ["Snakemake", "all processes"])
def test_sigint_stops_training_with_a_checkpoint(project: Project, receiver: str) -> None:
    """``kill -INT`` of Snakemake alone, and Ctrl-C."""
    training = {"steps": 1_000_000, "execution": {"checkpoint_every": 1_000_000}}
    place_tokens(project, merge(TINY, {"corpus": {"parts": 1}, "training": training}))
    model = project.folder / MODELS["sigmoid_128"]
    command = project.command(MODELS["sigmoid_128"], "--allowed-rules", "train")
    run = subprocess.Popen(
        command,
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A test run in the background may ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        end = time.monotonic() + 120
        journal = model.parent / "journal.csv"
        while not (journal.is_file() and re.search(r"^\d+,", journal.read_text(), re.MULTILINE)):
            assert run.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        if receiver == "Snakemake":
            run.send_signal(signal.SIGINT)
        else:
            os.killpg(run.pid, signal.SIGINT)
        assert run.wait(timeout=60) != 0
        with pytest.raises(ProcessLookupError):  # no process of its group is left
            os.killpg(run.pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert len(list(model.parent.glob("checkpoints/step-*.sha256"))) == 1
    log = (project.folder / "results/demo/logs/train/sigmoid_128.log").read_text()
    assert "stopped by SIGINT" in log


def test_earlier_jobs_are_named_and_python_files_of_the_user_are_not_run(project: Project) -> None:
    """One run for two faults. Of two submitted jobs, one still runs."""
    queue = project.folder / "queue"
    queue.mkdir()
    (queue / "squeue").write_text("#!/bin/sh\necho 17\necho 19\n")
    (queue / "squeue").chmod(0o755)
    mark_submitted(project, MANIFEST, "17")
    mark_submitted(project, EVALUATION, "18")
    for name in ("random.py", "umap.py", "numpy.py"):
        (project.folder / name).write_text("open('was_run', 'w').close()\n")

    python, *words = project.command(MANIFEST, EVALUATION)
    environment = project.environment()
    environment["PATH"] = f"{queue}{os.pathsep}{environment['PATH']}"
    run = subprocess.run(
        [python, "-P", *words],  # as the command `snakemake`
        cwd=project.folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert not (project.folder / "was_run").exists()
    (warning,) = [line for line in run.stderr.splitlines() if "earlier run" in line]
    assert re.search(r"17 \(manifest", warning)
    assert "18" not in warning


@pytest.mark.faults
def test_processes_of_training_do_not_run_python_files_of_the_user(project: Project) -> None:
    """torchrun starts them with ``python -m``."""
    overrides = merge(TINY, {"corpus": {"parts": 1}, "training": {"steps": 1}})
    place_tokens(project, overrides)
    (project.folder / "numpy.py").write_text("open('was_run', 'w').close()\n")
    words = train_command(project, overrides, "sigmoid_128")
    command = [sys.executable, "-P", "-m", "scsigmoid", *words, "--gpus", "2"]
    run = subprocess.run(command, cwd=project.folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert not (project.folder / "was_run").exists()


def test_a_default_storage_provider_is_refused_in_one_line(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "snakemake_storage_plugin_elsewhere"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(STORAGE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    options = ("--default-storage-provider", "elsewhere", "--default-storage-prefix", "s3://x")
    lines = project.failure("-n", MANIFEST, *options).splitlines()
    (line,) = [line for line in lines if line.startswith("scsigmoid: error")]
    assert "--default-storage-provider" in line


def test_the_workflow_is_a_module_from_a_git_repository(project: Project, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=project.folder, check=True)
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "Snakefile").write_text(
        "module scsigmoid:\n"
        f'    snakefile: gitfile("{project.folder}", path="workflow/Snakefile", commit="HEAD")\n'
        '    config: {"preset": "demo"}\n'
        "use rule * from scsigmoid\n"
    )
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "-n"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "results/demo/report.html" in run.stdout


def test_the_vocabulary_of_many_parts_gets_time_instead_of_memory(project: Project) -> None:
    """The memory does not depend on the parts. Each part takes two seconds."""
    parts = 300
    project.configure(merge(TINY, {"corpus": {"parts": parts}}))
    statistics = project.folder / "results/demo/tokens/statistics"
    statistics.mkdir(parents=True)
    for part in range(parts):
        with (statistics / f"part-{part:05d}.arrow").open("wb") as file:
            file.truncate(100_000_000)  # a sparse file: 30 GB in total
    run = project.run(
        "-n", "results/demo/tokens/vocabulary.parquet", "--allowed-rules", "vocabulary"
    )
    asked = dict(re.findall(r"(mem_mb|runtime)=(\d+)", run.stdout))
    assert 2000 <= int(asked["mem_mb"]) <= 8000
    assert int(asked["runtime"]) >= 30 + 2 * parts / 60


def test_a_results_folder_may_end_with_a_slash(project: Project) -> None:
    """As the shell completes it. Snakemake would not find the paths with two slashes."""
    project.configure(merge(TINY, {"results": "mine/"}))
    run = project.run("-n", "mine/corpus/manifest.csv")
    assert "double '/'" not in run.stdout + run.stderr


def test_mmd_can_be_requested_for_any_dataset(make_project: Callable[..., Any]) -> None:
    jobs = make_project({}).jobs("results/demo/tables/mmd_pbmc68k.csv")
    assert {"table", "mmd_of_dataset"} <= jobs.keys()


def test_targets_that_a_run_on_own_cells_leaves_out_can_be_requested(project: Project) -> None:
    """As docs/own-cells.md says. Snakemake ended with a MissingInputException."""
    counts = np.random.default_rng(0).poisson(1, (80, 12))
    write_cells(project.folder / "a.h5ad", counts, obs={"kind": ["a", "b"] * 40})
    corpus = {"source": "local", "local": [{"files": "a.h5ad", "label": "kind", "held_out": 0.5}]}
    project.configure({"device": "cpu", "corpus": corpus})
    jobs = project.jobs("kernel_speed", "training_speed")
    assert {"benchmark_kernel", "benchmark_training"} <= jobs.keys()
    # A table that does not exist was a MissingRuleException.
    table = "results/own/tables/comparison.csv"
    problems = {"stress_test": "stress: true", table: "comparison: no such table"}
    for target, words in problems.items():
        assert words in project.error(target)


@pytest.mark.parametrize(
    ("settings", "target", "message"),
    [
        ("corpus: {source: local, local: [{files: none.h5ad}]}", "all", "no such file"),
        # Snakemake accepts duplicate keys.
        ("seed: 1\nseed: 2\n", "all", "tiny.yaml: line 2: 'seed' is given twice"),
        ("seed: 1", "study", "the configuration has no study"),
    ],
)
def test_a_wrong_configuration_stops_before_any_work(
    settings: str, target: str, message: str, make_project: Callable[..., Any]
) -> None:
    project = make_project({})
    (project.folder / "tiny.yaml").write_text(settings)
    assert message in project.error(target)
    assert not (project.folder / "results").exists()


def test_results_that_cannot_be_written_are_one_line(
    make_project: Callable[..., Any], tmp_path: Path
) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    project = make_project({"results": str(place / "results")})
    with small_disk(place) as full:
        full.unlink()
        mount("-o", "remount,ro", place)
        output = project.failure("corpus")
    message = f"{place}/results/config.yaml: cannot be written (Read-only file system)"
    assert f"scsigmoid: error: {message}" in output


@pytest.mark.parametrize(
    ("private", "error"),
    [
        ("elsewhere/deep", "elsewhere/deep/results: Permission denied"),
        ("elsewhere/deep/results/.workflow", "results/.workflow: cannot be written (Permission"),
    ],
)
def test_permissions_of_the_results_are_one_line(
    private: str, error: str, project: Project
) -> None:
    """As in folders of another user: it was a traceback, or the error named another file."""
    results = project.folder / "elsewhere/deep/results"
    project.configure(merge(TINY, {"results": str(results)}))
    results.mkdir(parents=True)
    (results / ".workflow").touch()
    (project.folder / private).chmod(0)
    run = subprocess.run(
        without_privileges(project.command(f"{results}/corpus/manifest.csv")),
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
    )
    (project.folder / private).chmod(0o700)
    assert run.returncode == 1
    last_line = run.stderr.splitlines()[-1]
    assert last_line.startswith("scsigmoid: error: ")
    assert error in last_line


def test_results_are_locked_for_all_working_folders(project: Project, tmp_path: Path) -> None:
    """Snakemake only locks its working folder. When a run ends, it removes the locks of all."""
    results = tmp_path / "results"
    manifest = f"{results}/corpus/manifest.csv"
    project.configure(merge(TINY, {"results": str(results)}))
    with locked(results / ".workflow", "running the workflow"):
        assert f"{results}: process {os.getpid()}" in project.error(manifest)
    assert not (results / "config.yaml").exists()
    project.run(manifest)


def test_a_dry_run_next_to_a_run_prints_no_error(project: Project) -> None:
    locks = project.folder / ".snakemake/locks"
    locks.mkdir(parents=True)
    (locks / "0.output.lock").write_text(f"{MANIFEST}\n")
    dry = project.run("-n", MANIFEST)
    assert "Error" not in dry.stdout + dry.stderr
    project.failure(MANIFEST)


def test_a_file_replaced_by_an_older_file_runs_its_jobs_again(project: Project) -> None:
    """As after ``mv`` or ``rsync -a``. Snakemake compares modification times only."""
    path = project.folder / "a.h5ad"
    counts = np.random.default_rng(0).poisson(1, (80, 12))
    write_cells(path, counts, obs={"kind": ["a", "b"] * 40})
    entry = {"files": str(path), "label": "kind", "held_out": 0.5}
    corpus = {"source": "local", "local": [entry]}
    project.configure({"results": "results/demo", "device": "cpu", "corpus": corpus})
    outputs = [MANIFEST, "results/demo/corpus/evaluation/a.h5ad"]
    project.run(*outputs)
    content = path.read_bytes()
    path.write_bytes(content)  # the same cells
    os.utime(path, (0, 0))
    assert project.jobs(*outputs) == {}
    write_cells(path, counts[::-1], obs={"kind": ["a", "b"] * 40})
    os.utime(path, (0, 0))
    assert project.jobs(*outputs) == {"manifest": 1, "evaluation_cells": 1}


def test_a_list_of_genes_replaced_by_an_older_list_makes_the_vocabulary_again(
    project: Project,
) -> None:
    genes = project.folder / "genes.txt"
    project.configure(merge(TINY, {"tokens": {"vocabulary": {"genes": str(genes)}}}))
    vocabulary = "results/demo/tokens/vocabulary.parquet"
    statistics = [f"results/demo/tokens/statistics/part-{part:05}.arrow" for part in range(2)]
    (project.folder / statistics[0]).parent.mkdir(parents=True)
    for path in (*statistics, vocabulary):
        (project.folder / path).touch()
    options = (vocabulary, "--allowed-rules", "vocabulary")
    planned = []
    for text in ("ENSG00000000003\n", "ENSG00000000005\n"):
        genes.write_text(text)
        os.utime(genes, (0, 0))
        planned.append(project.jobs(*options))
        project.run("--touch", "--forceall", *options)
        planned.append(project.jobs(*options))
    assert planned == [{}, {}, {"vocabulary": 1}, {}]


@pytest.mark.parametrize("name", ["tables/my genes (1).csv", "figures/genes.txt"])
def test_an_input_in_a_folder_of_tables_or_figures(name: str, project: Project) -> None:
    """It was taken for an unknown table or figure."""
    results = str(project.folder / "results/demo")
    file = f"{results}/{name}"
    datasets = {"mine": {"file": file, "label": "kind"}}
    tokens = {"vocabulary": {"genes": file}}
    project.configure(merge(TINY, {"results": results, "datasets": datasets, "tokens": tokens}))
    path = Path(file)
    path.parent.mkdir(parents=True)
    path.touch()
    jobs = project.jobs("corpus", "tokens")
    assert {"evaluation_cells", "vocabulary"} <= jobs.keys()
    assert "genes: no such table" in project.error("-n", f"{results}/tables/genes.csv")


@pytest.mark.parametrize("kind", ["dataset", "initial", "manifest"])
def test_an_input_at_the_path_of_an_output_is_kept(kind: str, project: Project) -> None:
    """Snakemake deletes outputs before their jobs, so the input was lost."""
    results = project.folder / "results/own"
    counts = np.random.default_rng(0).poisson(1, (80, len(GENES)))
    (results / "corpus/evaluation").mkdir(parents=True)
    cells = [
        write_cells(path, counts, genes=GENES, obs={"cell_type": ["a", "b"] * 40})
        for path in (project.folder / "a.h5ad", results / "corpus/evaluation/mine.h5ad")
    ]
    model = write_model(results / "training", "sigmoid", cls_token=False)
    lock = results / "corpus/manifest.csv"
    write_manifest(lock, [])
    local = {"source": "local", "local": [{"files": "a.h5ad", "held_out": 0.5}]}
    path, target, settings = {
        "dataset": (
            cells[1],
            "corpus/evaluation/mine.json",
            {"corpus": local, "datasets": {"mine": {"file": str(cells[1]), "label": "cell_type"}}},
        ),
        "initial": (
            model,
            "training/sigmoid_toy/model.safetensors",
            {
                "corpus": local,
                "training": {"initial": str(model)},
                "models": {"sigmoid": None, "sigmoid_toy": {"attention": "sigmoid"}},
            },
        ),
        "manifest": (
            lock,
            "corpus/manifest.json",
            {
                "preset": "small",
                "corpus": {"manifest": str(lock)},
            },
        ),
    }[kind]
    content = path.read_bytes()
    project.configure({"results": "results/own", "device": "cpu", **settings})
    error = project.error(f"results/own/{target}")
    assert str(path.relative_to(project.folder)) in error
    assert "is an input" in error
    assert path.read_bytes() == content


def test_an_input_in_an_output_folder_is_kept(project: Project) -> None:
    """As after a change from CELLxGENE to the files that were downloaded, in the same folder."""
    part = project.folder / "results/own/corpus/training/part-00000"
    part.mkdir(parents=True)
    counts = np.random.default_rng(0).poisson(1, (80, 12))
    path = write_cells(part / "blood.h5ad", counts)
    (part / "files.csv").write_text("file,role\nblood,training\n")
    corpus = {"source": "local", "local": [{"files": str(path), "held_out": 0.5}]}
    project.configure({"results": "results/own", "device": "cpu", "corpus": corpus})
    error = project.error("results/own/corpus/training/part-00000", "-R", "training_cells")
    assert "part-00000: is an input in the configuration, or contains one" in error
    assert path.is_file()


@pytest.mark.parametrize("setting", ["10x", "initial"])
def test_a_10x_folder_or_model_with_braces_in_its_path(setting: str, project: Project) -> None:
    counts = np.random.default_rng(0).poisson(1, (80, len(GENES)))
    initial = None
    if setting == "10x":
        kinds = ["Gene Expression"] * len(GENES)
        cells = tenx_folder(project.folder / "tenx", counts, "my{sample}_", kinds)
    else:
        cells = write_cells(project.folder / "a.h5ad", counts, genes=GENES)
        initial = str(write_model(project.folder / "my{sample}", "sigmoid", cls_token=False))
    corpus = {"source": "local", "local": [{"files": str(cells), "held_out": 0.5}]}
    overrides = {"corpus": corpus, "training": {"initial": initial}}
    project.configure({"results": "results/own", "device": "cpu", **overrides})
    named = initial or f"{cells}/my{{sample}}_barcodes.tsv.gz"
    error = project.error("corpus", "tokens")
    assert named in error
    assert "braces" in error


@pytest.mark.parametrize("setting", ["cells", "genes"])
def test_an_input_with_braces_in_its_name(setting: str, project: Project) -> None:
    """Snakemake took them for a wildcard, and its error named only this wildcard."""
    file = project.folder / "my{sample}.txt"
    file.touch()
    datasets = {"mine": {"file": str(file), "label": "kind"}}
    tokens = {"vocabulary": {"genes": str(file)}}
    project.configure(
        merge(TINY, {"datasets": datasets} if setting == "cells" else {"tokens": tokens})
    )
    assert f"{file}: " in project.error("corpus", "tokens")


@pytest.mark.parametrize("folder", ["corpus/training/part-00000", "tokens/training/part-00000"])
def test_files_of_the_user_in_an_output_folder_are_kept(folder: str, project: Project) -> None:
    """Snakemake deletes an output folder with all its files before the job runs again."""
    rule = {"corpus": "training_cells", "tokens": "training_tokens"}[folder.partition("/")[0]]
    place = project.folder / "results/demo" / folder
    place.mkdir(parents=True)
    cells = project.folder / "results/demo/corpus/training/part-00000"
    cells.mkdir(parents=True, exist_ok=True)
    for path in (cells.parents[1] / "manifest.csv", cells.parents[2] / "tokens/vocabulary.parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (place / "files.csv").write_text("file,role\nheart,training\n")
    for name in ("heart.h5ad", "index.json", "shard-00000.arrow", "mine.h5ad"):
        (place / name).write_text("precious")
    options = (f"results/demo/{folder}", "--allowed-rules", rule, "-R", rule)
    line = project.error(*options)
    assert (place / "mine.h5ad").read_text() == "precious"
    assert line.startswith(f"scsigmoid: error: results/demo/{folder}: ")
    assert "mine.h5ad" in line
    assert "heart" not in line or folder.startswith("tokens")


def test_deleting_all_outputs_keeps_files_of_the_user(project: Project) -> None:
    """Also the lock, if it is the manifest of the configuration, and outputs of another run."""
    results = project.folder / "results/own"
    part = results / "corpus/training/part-00000"
    part.mkdir(parents=True)
    for path in (results / "tokens/vocabulary.parquet", part / "index.json", part / "mine.txt"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    lock = results / "corpus/lock.csv"
    write_manifest(lock, [])
    cellxgene = {"preset": "small", "results": "results/own"}
    project.configure(cellxgene)
    assert "mine.txt" in project.error("--delete-all-output")
    (part / "mine.txt").unlink()
    project.configure({**cellxgene, "corpus": {"manifest": "results/own/corpus/lock.csv"}})
    assert "lock.csv: is an input" in project.error("--delete-all-output")
    project.configure(cellxgene)
    with locked(results / ".workflow", "running the workflow"):
        assert "is running the workflow" in project.error("--delete-all-output")
    assert (results / "tokens/vocabulary.parquet").exists()
    project.run("--delete-all-output")
    assert not any(path.exists() for path in (part, lock, results / "tokens/vocabulary.parquet"))


def test_deleting_all_outputs_before_the_first_run(project: Project) -> None:
    """It made a results folder with a lock."""
    project.run("--delete-all-output")
    assert not (project.folder / "results").exists()


@pytest.mark.parametrize("private", [".", "corpus", ".workflow"])
def test_outputs_that_cannot_be_deleted_are_one_line(private: str, project: Project) -> None:
    """It was a traceback."""
    results = project.folder / "results/demo"
    results.mkdir(parents=True)
    (project.folder / MANIFEST).parent.mkdir()
    (project.folder / MANIFEST).touch()
    if private == ".workflow":
        (results / private).touch()
    (results / private).chmod(0o500)
    run = subprocess.run(
        without_privileges(project.command("--delete-all-output")),
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
    )
    (results / private).chmod(0o700)
    assert run.returncode == 1
    assert (project.folder / MANIFEST).exists()
    assert "Traceback" not in run.stderr
    name = {".": ".workflow", "corpus": "corpus/manifest.csv"}.get(private, private)
    problem = f"results/demo/{name}: cannot be deleted or locked (Permission denied); "
    assert run.stderr.splitlines()[-1].startswith(f"scsigmoid: error: {problem}")


def test_only_a_deleted_model_is_trained_from_the_beginning(project: Project) -> None:
    """Checkpoints were also lost after a job that ended before training, or without a journal."""
    folder = project.folder / "results/demo/training/sigmoid_128"
    model, checkpoint, finished = (
        folder / name
        for name in ("model.safetensors", "checkpoints/step-00000001.pt", "checkpoints/finished")
    )
    tokens = project.folder / "results/demo/tokens"
    parts = [tokens / f"training/part-0000{part}/index.json" for part in range(2)]
    for path in (model, checkpoint, tokens / "vocabulary.parquet", *parts):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    # In place of a file, so the job ends early.
    (project.folder / "results/demo/logs/train/.sigmoid_128.log").mkdir(parents=True)

    def run(*arguments: str) -> bool:
        """Run the job. Return True if the checkpoint was kept."""
        journal = "results/demo/training/sigmoid_128/journal.csv"
        assert "Is a directory" in project.failure(journal, "--allowed-rules", "train", *arguments)
        assert not model.exists()
        return checkpoint.exists()

    finished.write_text(f"{TINY['training']['steps']}\n")
    assert run()  # there is no journal
    assert run()  # Snakemake has deleted the model
    finished.write_text(f"{TINY['training']['steps']}\n")
    assert not run()
    checkpoint.touch()
    model.touch()
    assert not run("--forcerun", "train")


def test_a_failing_job_shows_its_one_line(make_project: Callable[..., Any], tmp_path: Path) -> None:
    bad = tmp_path / "bad.h5ad"
    bad.write_bytes(b"not an h5ad file")
    project = make_project(
        {"corpus": {"source": "local", "local": [{"files": str(bad), "held_out": 0.5}]}}
    )
    assert f"scsigmoid: error: {bad}" in project.failure("corpus")


def test_an_error_without_a_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message was "None: None"."""

    def load(**options: Any) -> None:
        raise OSError("too many links")

    monkeypatch.setattr("scsigmoid.config.check.load", load)  # the run is a forked process
    assert project.error("-n").startswith("scsigmoid: error: too many links; ")
