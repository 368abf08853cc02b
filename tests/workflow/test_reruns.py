"""Jobs that a single change needs after a finished run."""

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from projects import ROOT
from stages import write_cells

from scsigmoid.config.check import merge
from scsigmoid.config.stored import MARKER

# Two evaluation datasets, four models that are evaluated and two of the stress test.
DEMO: dict[str, Any] = {
    "datasets": dict.fromkeys(
        ["simulated_brain", "simulated_blood", "simulated_colon", "simulated_blood_2", "pbmc68k"]
    )
}
OWN_CELLS = {"files": "cells.h5ad", "held_out": 0.3}
LOCAL: dict[str, Any] = {"corpus": {"source": "local", "local": [OWN_CELLS]}}
HELD_OUT = {"corpus": {"local": [OWN_CELLS, {"files": "mine.h5ad", "held_out": True}]}}
LARGER_MODEL = {"attention": "sigmoid", "context": 256, "size": "tiny_96"}
EXECUTION = {
    "training": {
        "execution": {
            "log_every": 7, "checkpoint_every": 7, "workers": 1, "micro_batch_tokens": 99_999
        }
    }
}  # fmt: skip
#: Lines of the schema, and the same lines with a setting that a later version may add.
STEPS = "    steps: Annotated[int, Field(ge=1, le=MOST_STEPS), NUMBER]\n"
NEW_SETTING = f"    a_new_setting: NotNegative | None = None\n{STEPS}"
MODEL = "results/demo/training/sigmoid_128/model.safetensors"

PAGE = {"report_page": 1, "all": 1}
# Jobs of a dataset. Tables and figures of all datasets follow.
DATASET = {
    "evaluation_cells": 1,
    "evaluation_tokens": 1,
    "embeddings_of_pair": 1,
    "validation_loss_of_model": 4,
    "scib_of_dataset": 1,
}
ALL_DATASETS = {"table": 4, "figure": 3, **PAGE}
# A model that is not of the compared pair, on two datasets. All tables and figures with labels of
# models are made again if `models` changes.
ONE_MODEL = {"train": 1, "validation_loss_of_model": 2, "table": 6, "figure": 6, **PAGE}
FORCED = {"train": 1, "validation_loss_of_model": 2, "table": 2, "figure": 1, **PAGE}
BENCHMARKS = {"benchmark_kernel": 1, "benchmark_training": 1}

#: Finished run, changed settings, and jobs that are needed.
CHANGES: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "evaluation dataset added": (
        "demo",
        {"datasets": {"simulated_blood": {"title": "Aging"}}},
        DATASET | ALL_DATASETS,
    ),
    "own file added as a dataset": (
        "demo",
        {"datasets": {"mine": {"file": "mine.h5ad", "label": "louvain"}}},
        DATASET | ALL_DATASETS,
    ),
    # The preset `own` has one model, and compares all datasets.
    "held-out local file added": (
        "local",
        HELD_OUT,
        {**DATASET, "validation_loss_of_model": 1, "umap_of_dataset": 1, "table": 2, "figure": 3}
        | PAGE,
    ),
    "dataset removed": ("demo", {"datasets": {"simulated_lung": None}}, ALL_DATASETS),
    "title of a dataset": (
        "demo",
        {"datasets": {"simulated_lung": {"title": "Lung"}}},
        {"table": 3, "figure": 3, **PAGE},
    ),
    "model of another size added": ("demo", {"models": {"new": LARGER_MODEL}}, ONE_MODEL),
    "longer context of a model": ("demo", {"models": {"sigmoid_128": {"context": 512}}}, ONE_MODEL),
    "model forced": ("demo", {}, FORCED),
    "device: auto": ("demo", {"device": "auto"}, BENCHMARKS | {"table": 4, "figure": 3} | PAGE),
    "setting of MMD": (
        "demo",
        {"evaluation": {"mmd": {"resamples": 60}}},
        {"mmd_of_dataset": 1, "table": 2, **PAGE},
    ),
    "setting of the validation loss": (
        "demo",
        {"evaluation": {"validation_loss": {"trials": 3}}},
        {"validation_loss_of_model": 8, "table": 2, "figure": 1, **PAGE},
    ),
    "how training is executed": ("demo", EXECUTION, PAGE),
    "new setting of training": ("demo", {}, {}),
}


def touch_outputs(project: Any) -> None:
    """Make a finished run without running its jobs: empty outputs, and Snakemake's records."""
    summary = project.run("--summary")
    for line in summary.stdout.splitlines()[1:]:
        path = project.folder / line.split("\t")[0]
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        else:
            path.mkdir(parents=True)
    (results,) = (project.folder / "results").iterdir()
    (results / "config.yaml").write_text(MARKER)  # as a run stores it
    project.run("--touch", "--forceall")


@pytest.fixture(scope="module")
def runs(make_project: Callable[..., Any]) -> dict[str, tuple[Any, dict[str, Any]]]:
    """A finished run of the demo, and one of the user's own cells, with their settings."""
    projects = {}
    for name, settings in (("demo", DEMO), ("local", LOCAL)):
        project = make_project(settings)
        for file in ("cells.h5ad", "mine.h5ad"):
            write_cells(project.folder / file, np.ones((18, 9), np.float32))
        touch_outputs(project)
        projects[name] = (project, settings)
    return projects


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_plans_the_jobs_that_it_needs(
    runs: dict[str, tuple[Any, dict[str, Any]]], change: str, request: pytest.FixtureRequest
) -> None:
    run, settings, needed = CHANGES[change]
    project, before = runs[run]
    project.configure(merge(before, settings))
    if change == "new setting of training":
        source = project.folder / "src"
        source.unlink()  # a link to the repository
        shutil.copytree(ROOT / "src", source)
        schema = source / "scsigmoid/config/schema.py"
        text = schema.read_text()
        assert text.count(STEPS) == 1
        schema.write_text(text.replace(STEPS, NEW_SETTING))
        request.addfinalizer(lambda: schema.write_text(text))
    assert project.jobs(*(["--forcerun", MODEL] if change == "model forced" else [])) == needed
