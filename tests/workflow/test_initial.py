"""Runs on own cells that start from a model file (``training.initial``)."""

from collections.abc import Callable
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from small_models import GENES, write_model
from stages import write_cells

import scsigmoid as ss
from scsigmoid.files import sha256
from scsigmoid.model.weights import load_encoder, save_encoder

TABLE = "results/own/tables/scib.csv"
MODEL = "results/own/training/sigmoid/model.safetensors"
NEW_GENES = [f"NEW{number}" for number in range(4)]


@pytest.fixture(scope="module")
def finished(make_project: Callable[[dict[str, Any]], Any]) -> Any:
    """A finished run on 120 cells of three types, which adds four genes that the model lacks."""
    settings = {
        "corpus": {"source": "local", "local": [{"files": "cells.h5ad", "held_out": 0.5}]},
        "training": {"initial": "sigmoid_toy/model.safetensors", "steps": 2},
        "tokens": {"cls": True, "vocabulary": {"sizes": {"other": 100}}},
    }
    project = make_project(settings)
    write_model(project.folder, "sigmoid")
    random = np.random.default_rng(0)
    genes = [*GENES, *NEW_GENES]
    rates = np.where(np.arange(len(genes)) % 3 == np.arange(120)[:, None] % 3, 3.0, 0.5)
    write_cells(project.folder / "cells.h5ad", random.poisson(rates) + 0, genes=genes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")  # the CPU is chosen on any machine
        project.run()
    return project


def test_the_initial_model_is_scored_as_it_is(finished: Any) -> None:
    """Its embedding is that of `ss.embed`, which does not see the new genes either."""
    initial = finished.folder / "sigmoid_toy/model.safetensors"
    _, metadata = load_encoder(finished.folder / MODEL)
    assert metadata["initial"] == sha256(initial)
    assert metadata["vocabulary_size"] == 40 + len(NEW_GENES)
    cells = anndata.read_h5ad(finished.folder / "results/own/corpus/evaluation/cells.h5ad")
    ss.embed(cells, ss.load(initial, device="cpu"), verbose=False)
    embedded = anndata.read_h5ad(finished.folder / "results/own/embeddings/cells/initial.h5ad")
    expected = cells[embedded.obs_names].obsm["X_scsigmoid"]
    np.testing.assert_allclose(embedded.obsm["X_initial"], expected, atol=1e-5)
    table = pd.read_csv(finished.folder / TABLE)
    scores = table[table["compared_with"].isna() & (table["metric"] == "logistic")]
    names = ["sigmoid", "initial", "random", "pca_log_counts", "variable_genes"]
    assert scores["model"].tolist() == names
    pairs = table[table["compared_with"].notna()]
    assert len(pairs) == 10
    assert (pairs["low"] <= pairs["high"]).all()


def test_a_complete_run_is_not_repeated(finished: Any) -> None:
    """Reasons of choices may differ in the next run, e.g. the device of the first run is known."""
    assert finished.jobs() == {}


def test_only_other_content_trains_again(finished: Any) -> None:
    path = finished.folder / "sigmoid_toy/model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content)  # a newer file with the same content
    assert finished.jobs(TABLE) == {}
    encoder, metadata = load_encoder(path)
    encoder.final_norm.weight.data += 1
    vocabulary = ss.load(path, device="cpu").vocabulary
    save_encoder(encoder, {"model": metadata["model"], "step": 0, "seed": 1}, vocabulary, path)
    jobs = finished.jobs(TABLE)
    assert (jobs["train"], jobs["embeddings_of_initial"]) == (1, 1)
    path.unlink()
    (error,) = [line for line in finished.failure(TABLE, "-n").splitlines() if "error" in line]
    assert "training.initial: sigmoid_toy/model.safetensors: No such file" in error
