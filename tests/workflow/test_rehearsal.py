"""``preset=paper`` at a tiny scale, from a service on loopback to the comparison with the paper.

The corpus contains human and mouse cells. The evaluation datasets were published after the snapshot
date, and one has the authors' cell types in a separate column. Snakemake lists the jobs. Each job
runs in a fork of one process, which does not import everything again.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import pandas as pd
import pyarrow.parquet as pq
import pytest
from loopback import HOSTS, Loopback, uuid

from scsigmoid.config.check import load
from scsigmoid.config.schema import EmbeddedCorpus
from scsigmoid.corpus import embedded
from scsigmoid.corpus.embedded import write_embedded
from scsigmoid.corpus.metadata import read_metadata
from scsigmoid.paper.differences import differences
from scsigmoid.paper.reported import reported
from scsigmoid.results.folder import Results

DATASETS = (
    "adolescent_brain", "aging_pbmc", "healthy_colon", "heart_oft", "indonesian_pbmc", "lung_acr",
)  # fmt: skip
CELLS = 48
# Names of the differences that a tiny run on a CPU has from the paper.
SMALL = re.compile(
    "feed_forward|heads|hidden|layers|global_batch|steps|precision|device|GPU|layout|"
    "sizes and contexts|number of training cells|kernel of|benchmarks.kernel|benchmarks.training"
)
# Runs jobs, each in a fork that has their modules already.
JOBS = """
import importlib, json, sys
from forked import forked
from scsigmoid.cli import main
for name in (
    "scsigmoid.tokens.make_stores", "scsigmoid.tokens.vocabulary",
    "scsigmoid.training.loop", "scsigmoid.evaluation.validation_loss", "scsigmoid.evaluation.mmd",
    "scsigmoid.evaluation.scib", "scsigmoid.paper.all_numbers",
    "scsigmoid.benchmarks.kernel", "scsigmoid.benchmarks.training", "torch._dynamo",
    "anndata.io", "pyarrow.dataset", "scib_metrics", "scsigmoid.corpus.fetch",
):
    importlib.import_module(name)
for job in json.load(open(sys.argv[1])):
    if code := forked(lambda: main(job)):
        sys.exit(f"exit code {code}: {job}")
"""


@pytest.fixture
def server(server: Loopback, tmp_path: Path) -> Loopback:
    """Training datasets of June 2024, and six evaluation datasets of 2025."""
    sizes = EmbeddedCorpus(
        training_cells=300, training_files=3, evaluation_cells=CELLS, genes=900, programs=24,
        regulators=3, median_length=115, donors=4,
    )  # fmt: skip
    human, mouse = ("Homo sapiens",), ("Mus musculus",)
    for number in range(3):
        path = tmp_path / "training.h5ad"
        write_embedded(f"simulated_training_{number:02d}", sizes, 1, path)
        if number == 2:
            as_mouse(path)
        kind = mouse if number == 2 else human
        server.add(number + 1, path.read_bytes(), cells=100, organisms=kind)
    for number, (name, simulated) in enumerate(zip(DATASETS, embedded.DATASETS, strict=True)):
        path = tmp_path / f"{name}.h5ad"
        write_embedded(simulated, sizes, 1, path)
        if name == "heart_oft":
            with_authors_types(path)
        content, published = path.read_bytes(), "2025-01-01"
        server.add(10 + number, content, cells=CELLS, collection=90 + number, published=published)
    # This dataset is in the collection of Heart OFT, and was published before the snapshot date.
    server.add(20, b"this file must not be read", collection=93)
    return server


def as_mouse(path: Path) -> None:
    """Give the genes of a file ids of mouse."""
    cells = anndata.read_h5ad(path)
    raw = cells.raw.to_adata()
    for table in (cells, raw):
        table.var_names = [f"ENSMUSG{gene.removeprefix('ENSG')}" for gene in table.var_names]
    del cells.raw
    cells.raw = raw
    cells.write_h5ad(path)


def with_authors_types(path: Path) -> None:
    """Move the cell types to an own column, and write terms of the ontology to ``cell_type``."""
    cells = anndata.read_h5ad(path)
    cells.obs["author_annotation"] = cells.obs["cell_type"].astype(str) + " cells"
    cells.obs["cell_type"] = ["fibroblast", "endothelial cell"] * (CELLS // 2)
    cells.write_h5ad(path)


def overrides(server: Loopback) -> dict[str, Any]:
    """Return settings that replace those of the preset: the service, and sizes."""
    tiny = {"layers": 1, "hidden": 32, "heads": 1, "feed_forward": 64}
    execution = {"log_every": 1, "checkpoint_every": 2}
    stress = {"training": {"steps": 2}}
    return {
        "preset": "paper",
        "device": "cpu",
        "corpus": {
            "api": server.api,
            "parts": 2,
            "download": {"hosts": HOSTS, "timeout": 5, "longest_pause": 0},
        },
        "datasets": {name: {"id": uuid(1010 + i)} for i, name in enumerate(DATASETS)},
        "sizes": {"160M": tiny},
        "training": {"steps": 2, "global_batch": 8, "execution": execution},
        "models": {"sigmoid_8k": stress, "softmax_8k": stress},
        "evaluation": {"mmd": {"minimum_cells": 2}},
        "benchmarks": {
            "kernel": {
                "tokens": 64, "hidden": 128, "lengths": [32, 64], "iterations": 2, "warmup_ms": 1,
                "median_length": 30,
            },
            "training": {
                "sizes": ["160M"], "contexts": [128], "cells_per_gpu": [2], "vocabulary": 900,
                "steps": 1, "rounds": 2, "median_length": 115,
            },
        },
    }  # fmt: skip


def test_paper_in_small(server: Loopback, make_project: Callable[..., Any], tmp_path: Path) -> None:
    settings = overrides(server)
    project = make_project(settings)
    project.run("results/paper/corpus/manifest.csv")
    jobs = project.listed("results/paper/tables/comparison.csv")
    (tmp_path / "jobs.json").write_text(json.dumps([job.arguments for job in jobs]))
    # Numba does not compile, because compiling takes longer than computing with 48 cells.
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", JOBS, str(tmp_path / "jobs.json")]
    subprocess.run(command, cwd=project.folder, env=environment, check=True)
    results = project.folder / "results" / "paper"

    summary = json.loads((results / "corpus/manifest.json").read_text())
    assert summary["held_out"] == {uuid(20): "collection of heart_oft"}
    assert server.ranges(f"/{uuid(1020)}.h5ad") == []
    assert {row["published"] for row in summary["evaluation"].values()} == {"2025-01-01"}
    organisms = json.loads(
        pq.read_schema(results / "tokens/vocabulary.parquet").metadata[b"organisms"]
    )
    assert organisms.keys() == {"Homo sapiens", "Mus musculus"}
    assert all(genes["tokens"] > 500 and not genes["outside"] for genes in organisms.values())
    metadata = read_metadata(results / "corpus/evaluation/heart_oft.json")
    assert metadata.label == "author_annotation"

    # Only sizes, and cells of the evaluation datasets, differ from the paper.
    config = load(overrides=settings)
    names = {row.name for row in differences(config, Results(results, config))}
    assert {name for name in names if not SMALL.match(name)} == {
        reported()["datasets"][name]["title"] for name in DATASETS
    }
    comparison = pd.read_csv(results / "tables/comparison.csv")
    assert set(comparison["verdict"]) == {"no verdict"}
