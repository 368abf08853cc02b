"""The jobs of the workflow on real cells: blood cell types and lung cancer cell lines."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

MODELS = ("sigmoid_128", "softmax_128")


def test_local_files_from_cells_to_tables(
    real_data: Path, make_project: Callable[..., Any], tiny: dict[str, Any]
) -> None:
    """Training predicts genes and separates types better than chance.

    Snakemake lists the jobs. Each runs in a fork of this process, which does not import PyTorch
    again. ``test_runs.py`` runs Snakemake for all targets, ``test_initial.py`` on own cells.
    """
    datasets = ("pbmc_facs", "lung_cell_lines")
    files = [{"files": str(real_data / f"{name}.h5ad"), "held_out": 0.1} for name in datasets]
    others = ("sigmoid_256", "softmax_256", "sigmoid_384", "softmax_384")
    scib = {"metrics": ["logistic", "silhouette_label"], "controls": ["random"]}
    project = make_project(
        {
            "preset": "demo",
            "corpus": {"source": "local", "parts": 2, "local": files},
            "tokens": {"vocabulary": {"sizes": {"Homo sapiens": 3000}}},
            "training": {"steps": 60, "learning_rate": 3e-3},
            "models": dict.fromkeys(others),
            "evaluation": {**tiny["evaluation"], "pair": [*MODELS], "scib": scib},
        }
    )
    project.run("results/demo/corpus/manifest.csv")
    wanted = ["tables/validation_loss.md"]
    for name in datasets:
        wanted += [f"metrics/logistic/{name}.csv", f"tables/mmd_{name}.csv"]
    for module in ("training.loop", "evaluation.validation_loss", "evaluation.mmd"):
        import_module(f"scsigmoid.{module}")
    import_module("torch._dynamo")
    for job in project.listed(*(f"results/demo/{name}" for name in wanted)):
        assert job.run() == 0, job.arguments
    results = project.folder / "results" / "demo"
    for dataset in datasets:
        scores = pd.read_csv(results / f"metrics/logistic/{dataset}.csv")
        scores = scores[scores["compared_with"].isna()].set_index("model").value
        for model in MODELS:
            # After 60 steps, the types of blood cells are too similar to be separated.
            assert dataset == "pbmc_facs" or scores[model] > scores["random"] + 0.15, scores
            journal = pd.read_csv(results / f"training/{model}/journal.csv", comment="#")
            losses = pd.read_csv(results / f"metrics/validation_loss/{dataset}/{model}.csv")
            assert losses.value[0] < journal.loss[0] - 0.1
            assert losses.n[0] > 0
        assert len(pd.read_csv(results / f"tables/mmd_{dataset}.csv")) > 0
    assert "simulated" not in (results / "tables" / "validation_loss.md").read_text().lower()
