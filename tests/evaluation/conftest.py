"""A small token store, an untrained model for it, and embeddings with known values."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from small_training import TRAINING
from tokens.conftest import token_table

from scsigmoid.config.schema import Architecture, Size
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.files import sha256
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.weights import load_encoder, save_encoder
from scsigmoid.tokens.store import grouped, write_shards
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.run import TrainingRun

VOCABULARY_SIZE = 40
GENES = tuple(f"ENSG{gene:011d}" for gene in range(VOCABULARY_SIZE - len(SPECIAL)))
TOY = Vocabulary(
    (*SPECIAL, *GENES), (*SPECIAL, *GENES), np.ones(VOCABULARY_SIZE, int), np.ones(VOCABULARY_SIZE)
)
VOCABULARY = TOY.fingerprint
CONTEXT = 16
# Numbers of genes of the cells, many of them close to the context.
LENGTHS = (1, 7, 14, 15, 16, 30, 3, 10, 10, 2, 25, 5)


def one_by_one(checkpoint, cells, pooling="mean"):
    """Embed cells (lists of gene tokens) with one forward pass per cell."""
    encoder, metadata = load_encoder(checkpoint)
    cls = [2] if metadata["cls_token"] else []
    rows = []
    for genes in cells:
        tokens = torch.tensor([*cls, *genes[: metadata["context"] - len(cls)]], dtype=torch.int64)
        cu_seqlens = torch.tensor([0, len(tokens)], dtype=torch.int32)
        with torch.no_grad():
            hidden = encoder(tokens, torch.arange(len(tokens)), cu_seqlens, len(tokens)).double()
        rows.append(hidden[len(cls) :].mean(0) if pooling == "mean" else hidden[0])
    return torch.stack(rows).numpy()


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

    def make(lengths=LENGTHS, donors=None, **identity) -> Path:
        random = np.random.default_rng(0)
        genes = [random.permutation(np.arange(4, VOCABULARY_SIZE))[:length] for length in lengths]
        rows = np.arange(len(lengths))
        columns = {"cell": rows * 3, "cell_type": [f"type {row % 3}" for row in rows]}
        columns["donor"] = donors or [""] * len(rows)
        batches = token_table(genes, VOCABULARY_SIZE, **columns).to_batches()
        metadata = {
            "dataset": "toy", "cells": sha256(cells), "vocabulary": VOCABULARY,
            "vocabulary_size": VOCABULARY_SIZE, "maximum_length": 30, "shard_cells": 5,
            "simulated": True, "label": "cell_type", **identity,
        }  # fmt: skip
        path = tmp_path / "results/tokens/evaluation/toy"
        write_shards(path, grouped(batches, 5), metadata)
        return path

    return make


@pytest.fixture
def store(make_store) -> Path:
    return make_store()


@pytest.fixture
def make_model(tmp_path: Path):
    """Return a function that writes an untrained model and returns its path."""

    def make(attention: str, vocabulary: Vocabulary = TOY, cls_token: bool = True) -> Path:
        run = TrainingRun(
            model=f"{attention}_toy", attention=attention, context=CONTEXT, cls_token=cls_token,
            backend="reference" if attention == "sigmoid" else "auto",
            size=Size(layers=2, hidden=16, heads=2, feed_forward=32),
            architecture=Architecture(
                size="toy", dropout=0.1, layer_norm_epsilon=1e-5, initializer_range=0.5
            ),
            training=TRAINING, seed=1, device="cpu",
        )  # fmt: skip
        encoder = Encoder(run.encoder_settings(VOCABULARY_SIZE)).initialise(run.seed)
        path = tmp_path / "results" / "training" / run.model / "model.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_encoder(encoder, run.origin(0), vocabulary, path)
        return path

    return make


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
            "model": model, "attention": model.split("_")[0], "context": 256, "pooling": "mean",
            "checkpoint": "c" * 64, "vocabulary": VOCABULARY, "dataset": "toy",
            "cells": sha256(counts) if counts.is_file() else "c" * 64, "simulated": True,
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
