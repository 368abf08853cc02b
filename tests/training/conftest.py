"""A small vocabulary, token stores, and runs of a small model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from small_training import TRAINING

from scsigmoid.config.schema import Architecture, Size, Training
from scsigmoid.model.encoder import Encoder
from scsigmoid.tokens.store import TokenStore, grouped, store_schema, write_shards
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.batches import GlobalBatches
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import Trainer

GENES = 60


@dataclass(frozen=True)
class Corpus:
    """Token stores and vocabulary of a training run."""

    stores: list[Path]
    vocabulary: Path


def write_corpus(folder: Path, cells: int = 30, longest: int = 31, seed: int = 0) -> Corpus:
    """Write two parts of random cells. Genes of a cell are unique."""
    generator = np.random.default_rng(seed)
    names = (*SPECIAL, *(f"ENSG{gene:011d}" for gene in range(GENES)))
    size = len(names)
    vocabulary = Vocabulary(names, names, np.full(size, cells), np.ones(size))
    vocabulary.write(folder / "vocabulary.parquet")
    schema = store_schema(size)
    stores = []
    for part in range(2):
        ids = [
            (len(SPECIAL) + generator.permutation(GENES)[: generator.integers(4, longest + 1)])
            for _ in range(cells // 2)
        ]
        lengths = [len(cell) for cell in ids]
        texts = {name: [""] * len(ids) for name in ("cell_type", "donor", "tissue", "assay")}
        batch = pa.RecordBatch.from_pydict(
            {
                "input_ids": ids,
                "length": lengths,
                "genes": lengths,
                "cell": list(range(len(ids))),
                "file": ["simulated"] * len(ids),
                **texts,
                "is_primary": [True] * len(ids),
            },
            schema=schema,
        )
        stores.append(folder / f"part-{part:05d}")
        write_shards(
            stores[-1],
            grouped([batch], 10),
            {
                "vocabulary": vocabulary.fingerprint,
                "vocabulary_size": size,
                "maximum_length": longest,
                "shard_cells": 10,
                "simulated": True,
                "label": "cell_type",
            },
        )
    return Corpus(stores, folder / "vocabulary.parquet")


@pytest.fixture(name="write_corpus")
def writer() -> Callable[..., Corpus]:
    return write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def training() -> Training:
    return replace(
        TRAINING,
        steps=20,
        global_batch=8,
        learning_rate=1e-2,
        warmup_steps=5,
        log_every=3,
        checkpoint_every=4,
        keep_checkpoints=2,
        workers=2,
    )


@pytest.fixture(scope="session")
def run(training: Training) -> TrainingRun:
    return TrainingRun(
        model="sigmoid_2k",
        attention="sigmoid",
        context=24,
        cls_token=True,
        backend="auto",
        size=Size(layers=1, hidden=16, heads=2, feed_forward=32),
        architecture=Architecture(
            size="tiny", dropout=0.1, layer_norm_epsilon=1e-5, initializer_range=0.02
        ),
        training=training,
        seed=42,
        device="cpu",
    )


@pytest.fixture(scope="session")
def make_batches(corpus: Corpus) -> Callable[..., GlobalBatches]:
    """Return ``make_batches(run, rank, processes, **training)``."""

    def make(run: TrainingRun, rank: int = 0, processes: int = 1, **training: Any) -> GlobalBatches:
        store = TokenStore.open(corpus.stores)
        settings = run.encoder_settings(store.vocabulary_size)
        changed = replace(run.training, **training)
        return GlobalBatches(store, settings, changed, 42, rank=rank, processes=processes)

    return make


@pytest.fixture(scope="session")
def make(make_batches: Any) -> Callable[..., tuple[Trainer, GlobalBatches]]:
    """Makes a trainer of new weights, and its batches: ``make(run, **training)``."""

    def make(run: TrainingRun, **training: Any) -> tuple[Trainer, GlobalBatches]:
        batches = make_batches(run, **training)
        encoder = Encoder(batches.settings).initialise(1)
        return Trainer(encoder, batches.training, 42, torch.device("cpu")), batches

    return make
