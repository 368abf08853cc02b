"""Batches of unusual sizes, and signals that only one of several processes receives."""

from dataclasses import replace

import torch
from small_training import TINY, TRAINING, masked_batch

from scsigmoid.model.batches import Batch
from scsigmoid.model.encoder import Encoder
from scsigmoid.training.graphs import Graphs, bucket_of
from scsigmoid.training.step import Trainer


def trainer_of() -> Trainer:
    return Trainer(Encoder(TINY).initialise(1), TRAINING, 42, torch.device("cpu"))


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
    first = replace(
        first,
        masked=torch.arange(1, 1 + bounds),
        targets=torch.full((bounds,), 7),
    )
    later = masked_batch([5, 30, 12], TINY.vocabulary_size)
    for step, batch in enumerate((first, later), start=1):
        results = [trainer.step(step, [batch]).loss for trainer in (compiled, eager)]
        torch.testing.assert_close(*results)
    assert counters["stats"]["unique_graphs"] == 1
