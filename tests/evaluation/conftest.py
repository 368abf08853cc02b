"""A small token store, an untrained model for it, and embeddings with known values."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_models import TOY, VOCABULARY_SIZE
from small_training import token_table

from scsigmoid.config.schema import Embeddings
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.evaluation.embeddings import embed_dataset
from scsigmoid.evaluation.umap import import_umap
from scsigmoid.files import sha256
from scsigmoid.tokens.store import grouped, write_shards

# Before scib-metrics, which imports umap-learn, so that Numba stores the code that it compiles.
import_umap()

VOCABULARY = TOY.fingerprint
# Numbers of genes of the cells, many of them close to the context.
LENGTHS = (1, 7, 14, 15, 16, 30, 3, 10, 10, 2, 25, 5)


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    """Write a dataset file without counts. It has three times as many cells as the store."""
    import anndata

    path = tmp_path / "results/corpus/evaluation/toy.h5ad"
    path.parent.mkdir(parents=True)
    obs = pd.DataFrame({"batch": range(36)}, index=[f"barcode-{row}" for row in range(36)])
    anndata.AnnData(obs=obs).write_h5ad(path)
    return path


@pytest.fixture
def make_store(tmp_path: Path, cells: Path):
    """Return a function that writes the token store of the dataset, in shards of 5 cells."""

    def make(lengths=LENGTHS, donors=None, size=VOCABULARY_SIZE, **identity) -> Path:
        random = np.random.default_rng(0)
        genes = [random.permutation(np.arange(4, size))[:length] for length in lengths]
        rows = np.arange(len(lengths))
        columns = {"cell": rows * 3, "cell_type": [f"type {row % 3}" for row in rows]}
        columns["donor"] = donors or [""] * len(rows)
        batches = token_table(genes, size, **columns).to_batches()
        metadata = {
            "dataset": "toy", "cells": sha256(cells), "vocabulary": VOCABULARY,
            "vocabulary_size": size, "maximum_length": 30, "shard_cells": 5,
            "label": "cell_type", **identity,
        }  # fmt: skip
        path = tmp_path / "results/tokens/evaluation/toy"
        write_shards(path, grouped(batches, 5), metadata)
        return path

    return make


@pytest.fixture
def store(make_store) -> Path:
    return make_store()


@pytest.fixture(params=["sigmoid", "softmax"])
def checkpoint(request: pytest.FixtureRequest, make_model) -> Path:
    return make_model(request.param)


@pytest.fixture
def write_arm(tmp_path: Path):
    """Return a function that writes an embedding with known values to a results folder."""

    def write(model: str, values, labels, rows=None, **identity) -> Path:
        path = tmp_path / f"results/embeddings/toy/{model}.h5ad"
        counts = tmp_path / "results/corpus/evaluation/toy.h5ad"
        rows = np.arange(len(labels)) if rows is None else np.asarray(rows)
        metadata = {
            "model": model, "attention": model.split("_")[0], "context": 256,
            "checkpoint": "c" * 64, "vocabulary": VOCABULARY, "dataset": "toy",
            "cells": sha256(counts) if counts.is_file() else "c" * 64,
            **identity,
        }  # fmt: skip
        donors = [f"donor {row % 3}" for row in range(len(labels))]
        obs = pd.DataFrame({"donor_id": donors}, [f"cell {row}" for row in range(len(labels))])
        values = np.asarray(values, dtype=np.float32)
        write_embedding(path, values, np.asarray(labels), rows, metadata, obs)
        return path

    return write


@pytest.fixture
def write_pair(write_arm):
    """Return a function that writes both arms. Cell types are further apart in the sigmoid arm."""

    def write(counts: dict[str, int], hidden: int = 6, seed: int = 0) -> dict[str, Path]:
        random = np.random.default_rng(seed)
        sizes = list(counts.values())
        labels = np.repeat(list(counts), sizes)
        centers = np.repeat(random.normal(size=(len(counts), hidden)), sizes, axis=0)
        noise = random.normal(size=(len(labels), hidden))
        order = random.permutation(len(labels))
        return {
            model: write_arm(model, (noise + scale * centers)[order], labels[order])
            for model, scale in (("sigmoid_4k", 1.0), ("softmax_4k", 0.6))
        }

    return write


def run(checkpoint, store, cells, folder, batch_tokens=40):
    """Embed the cells and return the file, which is named after the model."""
    output = folder / f"{checkpoint.parent.name}.h5ad"
    settings = Embeddings(batch_tokens=batch_tokens)
    embed_dataset(checkpoint, store, cells, settings, "cpu", output)
    return output
