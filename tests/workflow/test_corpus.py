"""From a loopback CELLxGENE service to training tokens, and the graph of the full corpus."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loopback import HOSTS, Loopback, uuid

from scsigmoid.config.check import load
from scsigmoid.corpus.embedded import write_embedded
from scsigmoid.corpus.manifest import build_manifest
from scsigmoid.corpus.metadata import read_manifest
from scsigmoid.tokens.store import TokenStore

TOKENS = (
    "results/demo/tokens/training/part-00000",
    "results/demo/tokens/training/part-00001",
    "results/demo/tokens/evaluation/heart",
    "results/demo/corpus/lock.csv",
)

# Runs a command and prints its largest memory in kB.
WATCH = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)
sys.exit(code)
"""


def source(server: Loopback, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a corpus from the loopback service."""
    download = {"hosts": HOSTS, "timeout": 2, "longest_pause": 0, **changes.pop("download", {})}
    return {
        "corpus": {
            "source": "cellxgene",
            "api": server.api,
            "organisms": ["Homo sapiens"],
            "parts": 2,
            "download": download,
            **changes,
        },
        "datasets": {
            # without the datasets of the demo and of the paper
            **dict.fromkeys(load().datasets | load(overrides={"preset": "paper"}).datasets),
            "heart": {"title": "Heart", "id": uuid(1009)},
        },
    }


@pytest.mark.faults
def test_from_the_service_to_tokens(
    server: Loopback, make_project: Callable[..., Any], tmp_path: Path
) -> None:
    """Requests fail at first. Checksums are right, and raw files are deleted after tokenization."""
    sizes = load().corpus.embedded.model_copy(
        update={"training_cells": 150, "training_files": 3, "evaluation_cells": 64}
    )
    paths = []
    for number in range(3):
        file = tmp_path / f"{number}.h5ad"
        write_embedded(f"simulated_training_{number:02d}", sizes, 1, file)
        paths.append(server.add(number + 1, file.read_bytes(), cells=50))
    write_embedded("simulated_heart", sizes, 1, tmp_path / "heart.h5ad")
    heart = (tmp_path / "heart.h5ad").read_bytes()
    server.add(9, heart, cells=64, collection=90)
    sibling = server.add(10, heart, cells=64, collection=90)
    server.script = {
        f"/curation/v1/datasets/{uuid(2)}/versions": ["503", "drop"],
        # The first request of a file asks for its size. "well" is a response without a fault.
        paths[0]: ["well", "cut", "503"],
        paths[1]: ["429 0", "well", "stall"],
        paths[2]: ["well", "drop", "429 0", "ignores range"],
    }

    project = make_project(source(server, download={"keep_files": False}))
    run = project.run(*TOKENS)
    assert f"held out   {uuid(10)}: collection of heart" in run.stdout
    assert "none of the 3 training files shares a dataset or collection" in run.stdout
    assert server.ranges(sibling) == []
    assert "bytes=" in " ".join(server.ranges(paths[0]))

    results = project.folder / "results" / "demo"
    assert len(TokenStore.open(sorted((results / "tokens/training").glob("part-*"))).lengths) == 150
    assert len(TokenStore.open(results / "tokens/evaluation/heart").lengths) == 64
    lock = read_manifest(results / "corpus/lock.csv")
    assert [row.sha256 for row in lock] == [
        hashlib.sha256(server.files[row.location.removeprefix(server.address)]).hexdigest()
        for row in lock
    ]
    assert json.loads((results / "corpus/manifest.json").read_text())["training"]["cells"] == 150
    left = [path.name for path in (results / "corpus").rglob("*.h5ad") if not path.is_symlink()]
    assert left == [f"{uuid(1009)}.h5ad"]

    # A part whose tokens are lost is downloaded and tokenized again by one job.
    lost = results / "tokens/training/part-00001"
    before = {path.name: path.read_bytes() for path in lost.glob("*.arrow")}
    shutil.rmtree(lost)
    run = project.run(str(lost.relative_to(project.folder)))
    assert {path.name: path.read_bytes() for path in lost.glob("*.arrow")} == before
    assert "training_cells" not in run.stdout
    assert "gene_statistics" not in run.stdout

    # Download settings do not rerun jobs.
    project.configure(source(server, download={"keep_files": False, "connections": 2}))
    assert "Nothing to be done" in project.run("-n", TOKENS[0], TOKENS[-1]).stdout


def test_1600_datasets_make_few_jobs(
    server: Loopback, make_project: Callable[..., Any], tmp_path: Path
) -> None:
    """The number of jobs does not grow with the files, and planning them takes little memory."""
    for number in range(1, 1601):
        server.add(number, b"x", cells=number)
    overrides = source(server, parts=64)
    project = make_project({**overrides, "preset": "paper"})
    config = load(overrides=overrides)
    folder = project.folder / "results" / "paper" / "corpus"
    outputs = folder / "manifest.csv", folder / "manifest.json"
    build_manifest(config, tmp_path / "downloads", *outputs)
    rows = read_manifest(folder / "manifest.csv")
    assert len(rows) == 1600
    assert {row.part for row in rows if row.role == "training"} == {str(p) for p in range(64)}
    # In a new process, because RUSAGE_CHILDREN is the largest memory of any child.
    command = [sys.executable, "-c", WATCH, *project.command("-n")]
    run = subprocess.run(command, cwd=project.folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    jobs = int(run.stdout.split("total")[1].split()[0])
    # Each of the 64 parts has three jobs. The number of other jobs does not depend on the corpus.
    assert 192 < jobs < 300
    assert int(run.stdout.split("peak")[-1]) < 2e6
