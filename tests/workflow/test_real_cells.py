"""The whole workflow on real cells: blood cell types and lung cancer cell lines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd


def test_local_files_from_cells_to_tables(
    real_data: Path, make_project: Callable[..., Any], tiny: dict[str, Any]
) -> None:
    """Training predicts genes and separates types better than chance.

    Only files that the test reads are made. ``test_runs.py`` makes all targets.
    """
    datasets = ("pbmc_facs", "lung_cell_lines")
    files = [{"files": str(real_data / f"{name}.h5ad"), "held_out": 0.1} for name in datasets]
    models = ("sigmoid_128", "softmax_128", "sigmoid_384", "softmax_384")
    project = make_project(
        {
            "preset": "demo",
            "corpus": {"source": "local", "parts": 2, "local": files},
            "tokens": {"minimum_cells": 20},
            "training": {"steps": 200, "execution": {"checkpoint_every": 100}},
            "models": dict.fromkeys(models),
            "evaluation": tiny["evaluation"],
        }
    )
    wanted = ["tables/validation_loss.md"]
    for name in datasets:
        wanted += [f"metrics/leiden_nmi/{name}.csv", f"tables/mmd_{name}.csv"]
        wanted.append(f"figures/umap_{name}.png")
    run = project.run(*(f"results/demo/{name}" for name in wanted))
    assert run.returncode == 0, run.stdout + run.stderr
    results = project.folder / "results" / "demo"
    for dataset in datasets:
        scores = pd.read_csv(results / f"metrics/leiden_nmi/{dataset}.csv").set_index("model").value
        for model in ("sigmoid_256", "softmax_256"):
            # After 200 steps, 140 held-out cells of the cell lines are too few to show their types.
            assert dataset != "pbmc_facs" or scores[model] > scores["random"] + 0.05, scores
            journal = pd.read_csv(results / f"training/{model}/journal.csv", comment="#")
            losses = pd.read_csv(results / f"metrics/validation_loss/{dataset}/{model}.csv")
            assert losses.value[0] < journal.loss[0] - 0.1
            assert losses.n[0] > 0
        assert len(pd.read_csv(results / f"tables/mmd_{dataset}.csv")) > 0
        assert (results / f"figures/umap_{dataset}.png").stat().st_size > 10_000
    assert "simulated" not in (results / "tables" / "validation_loss.md").read_text().lower()
