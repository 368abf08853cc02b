"""A small vocabulary, token stores, and runs of a small model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from small_training import ARCHITECTURE, TRAINING, token_table, with_values
from training.checkpoint_files import checkpoints

from scsigmoid.config.schema import Size, Training
from scsigmoid.model.encoder import Encoder
from scsigmoid.tokens.store import TokenStore, grouped, write_shards
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.shares import GlobalBatches
from scsigmoid.training.step import Trainer


class Corpus(NamedTuple):
    """Token stores and vocabulary of a training run."""

    stores: list[Path]
    vocabulary: Path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Write two parts of 15 random cells with 4 to 31 of 60 genes."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = np.random.default_rng(0)
    names = (*SPECIAL, *(f"ENSG{gene:011d}" for gene in range(60)))
    vocabulary = Vocabulary(names, names, np.full(64, 30), np.ones(64))
    vocabulary.write(folder / "vocabulary.parquet")
    metadata = {
        "vocabulary": vocabulary.fingerprint,
        "vocabulary_size": 64,
        "maximum_length": 31,
        "shard_cells": 10,
        "label": "cell_type",
    }
    stores = [folder / "part-00000", folder / "part-00001"]
    for store in stores:
        cells = [4 + generator.permutation(60)[: generator.integers(4, 32)] for _ in range(15)]
        write_shards(store, grouped(token_table(cells, 64).to_batches(), 10), metadata)
    return Corpus(stores, folder / "vocabulary.parquet")


@pytest.fixture(scope="session")
def training() -> Training:
    return with_values(
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
        architecture=ARCHITECTURE.model_copy(update={"dropout": 0.1}),
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
        changed = with_values(run.training, **training)
        return GlobalBatches(store, settings, changed, 42, rank=rank, processes=processes)

    return make


@pytest.fixture(scope="session")
def make(make_batches: Any) -> Callable[..., tuple[Trainer, GlobalBatches]]:
    """Return ``make(run, **training)``, which makes a trainer with new weights and its batches."""

    def make(run: TrainingRun, **training: Any) -> tuple[Trainer, GlobalBatches]:
        batches = make_batches(run, **training)
        encoder = Encoder(batches.settings).initialize(1)
        return Trainer(encoder, batches.training, 42, torch.device("cpu")), batches

    return make
