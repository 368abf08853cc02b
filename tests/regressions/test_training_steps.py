"""Batches of unusual sizes, and signals that only one of several processes receives."""

from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from small_training import TINY, TRAINING, masked_batch
from training import conftest as training_fixtures

from scsigmoid.attention.reference import weight_statistics
from scsigmoid.model.batches import Batch
from scsigmoid.model.encoder import Encoder
from scsigmoid.training import graphs
from scsigmoid.training.graphs import Graphs, bucket_of
from scsigmoid.training.step import Trainer

corpus, make, make_batches, run, training = (
    getattr(training_fixtures, name)
    for name in ("corpus", "make", "make_batches", "run", "training")
)


def trainer_of() -> Trainer:
    return Trainer(Encoder(TINY).initialize(1), TRAINING, 42, torch.device("cpu"))


def test_a_graph_has_memory_for_many_short_cells_with_many_masked_genes():
    """Cells of one gene without [CLS], nearly all of which are masked."""
    cells = 1024  # a power of two needs the most memory
    one = torch.arange(cells)
    batch = Batch(
        tokens=torch.ones(cells, dtype=torch.int64),
        positions=torch.zeros(cells, dtype=torch.int64),
        cu_seqlens=torch.arange(cells + 1, dtype=torch.int32),
        masked=one,
        targets=torch.full((cells,), 5),
        cells=one,
        max_seqlen=1,
        cls_token=False,
    )
    bucket = bucket_of(batch, context=32, mask_fraction=1.0)
    graphs = Graphs(lambda *_: torch.zeros(()), [torch.zeros(1)], cells, torch.device("cpu"))
    padded = graphs.copy_padded(batch, bucket)
    assert len(padded.masked) == bucket.masked
    assert len(padded.cu_seqlens) == bucket.sequences + 1


def test_sizes_that_are_equal_in_the_first_batch_may_differ_later():
    from torch._dynamo.utils import counters

    compiled, eager = trainer_of(), trainer_of()
    torch.compiler.reset()
    counters.clear()
    compiled.compile(backend="aot_eager")
    first = masked_batch([9, 9, 9, 9], TINY.vocabulary_size)
    # As many masked genes as cumulative lengths.
    bounds = len(first.cu_seqlens)
    first = replace(first, masked=torch.arange(1, 1 + bounds), targets=torch.full((bounds,), 7))
    later = masked_batch([5, 30, 12], TINY.vocabulary_size)
    for step, batch in enumerate((first, later), start=1):
        results = [trainer.step(step, [batch]).loss for trainer in (compiled, eager)]
        torch.testing.assert_close(*results)
    assert counters["stats"]["unique_graphs"] == 1


def test_operations_that_cannot_be_captured_are_computed_without_graphs(
    run, make, monkeypatch, capsys
):
    def refused(*_: object, **__: object) -> Any:
        raise RuntimeError("CUDA error: not while capturing")

    trainer, batches = make(run, micro_batch_tokens=10**6)
    trainer.graphed_tokens = 1000
    trainer.prepare(batches[1].micro_batches)
    recorded = trainer._graphs
    recorded.recording, recorded._pool, recorded._warm_stream = True, (0, 1), MagicMock()
    for name in ("CUDAGraph", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(graphs, "capture", refused)
    for step in (1, 2):
        assert not trainer.step(step, batches[step].micro_batches).graphed
    assert not recorded.recording
    message = "small batches are computed without CUDA graphs: CUDA error: not while capturing\n"
    assert capsys.readouterr().err.count(message) == 1


def test_a_row_without_weights_attends_to_no_key():
    q, v = torch.full((4, 1, 2), 300.0), torch.ones(4, 1, 2)
    statistics = weight_statistics("sigmoid", q, -q, v, [(0, 4)])
    assert (statistics["row_sum"], statistics["keys"]) == (0, 0)
    assert statistics["score_max"] == pytest.approx(2 * 300**2 / 2**0.5)
