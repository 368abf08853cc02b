"""Embedding on GPUs: batches overlap, and several GPUs embed together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_training import PAPER

from scsigmoid.benchmarks.simulated import write_simulated_tokens
from scsigmoid.config.schema import Size, TrainingBenchmark
from scsigmoid.model.batches import pack
from scsigmoid.model.devices import autocast
from scsigmoid.model.embedding import embed_cells, make_batches, pool
from scsigmoid.model.embedding_processes import embed_store, started
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.weights import load_encoder, save_encoder
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import Vocabulary

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GENES = 1000
BATCH_TOKENS = 2048


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """300 cells of at most 700 tokens."""
    lengths = TrainingBenchmark.model_construct(
        vocabulary=GENES, median_length=400, sigma_length=0.5
    )
    write_simulated_tokens(tmp_path, lengths, 300, 700, 1)
    return tmp_path / "tokens"


@pytest.fixture(params=["sigmoid", "softmax"])
def model(request: pytest.FixtureRequest, store: Path) -> Path:
    small = Size(layers=2, hidden=128, heads=2, feed_forward=256)
    settings = replace(
        PAPER,
        attention=request.param,
        context=512,
        vocabulary_size=GENES,
        initializer_range=0.2,
        **small.model_dump(),
    )
    encoder = Encoder(settings).initialize(1)
    origin = {"model": "small", "step": 0, "seed": 1, "training": {}}
    vocabulary = Vocabulary.read(store.parent / "vocabulary.parquet")
    save_encoder(encoder, origin, vocabulary, store.parent / "model.safetensors")
    return store.parent / "model.safetensors"


def one_after_the_other(encoder: Encoder, tokens: TokenStore) -> np.ndarray:
    """Embed cells batch by batch, and wait for the GPU after each batch."""
    parts = []
    for rows in make_batches(tokens, encoder.settings, BATCH_TOKENS):
        with torch.inference_mode(), autocast(torch.device("cuda")):
            batch = pack(tokens, np.arange(rows.start, rows.stop), encoder.settings)
            batch = batch.to(torch.device("cuda"))
            hidden = encoder(batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen)
            parts.append(pool(hidden.float(), batch).cpu().numpy())
    return np.concatenate(parts)


def test_overlapping_batches_and_several_gpus_change_no_bit(store, model):
    encoder, _ = load_encoder(model, "cuda")
    tokens = TokenStore.open(store)
    expected = one_after_the_other(encoder, tokens)
    assert np.isfinite(expected).all()
    assert len(np.unique(expected, axis=0)) == len(tokens)
    np.testing.assert_array_equal(embed_cells(encoder, tokens, BATCH_TOKENS, "embedding"), expected)
    gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    # With one GPU, two processes share it.
    with started(model, gpus if len(gpus) > 1 else gpus * 2) as workers:
        values = embed_store(workers, store, encoder.settings, BATCH_TOKENS, "embedding")
    np.testing.assert_array_equal(values, expected)
