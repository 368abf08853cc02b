"""Global batches are the same whoever computes them, and their work is evenly divided."""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from scsigmoid.config.schema import Training
from scsigmoid.errors import UserError
from scsigmoid.model.sizes import EncoderSettings, count_flops
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training.batches import Batch
from scsigmoid.training.loading import GlobalBatches, Work, ahead, divide, micro_batches
from scsigmoid.training.run import TrainingRun


def batches(
    run: TrainingRun, corpus: Any, rank: int = 0, processes: int = 1, **training: object
) -> GlobalBatches:
    settings: Training = replace(run.training, **training)  # type: ignore[arg-type]
    store = TokenStore.open(corpus.stores)
    encoder = run.encoder_settings(store.vocabulary_size)
    return GlobalBatches(store, encoder, settings, 42, rank=rank, processes=processes)


def by_cell(parts: Sequence[Batch]) -> dict[int, list[list[int]]]:
    """For each cell its tokens, masked places and targets."""
    cells: dict[int, list[list[int]]] = {}
    for batch in parts:
        bounds = batch.cu_seqlens.tolist()
        for cell, start, end in zip(batch.cells.tolist(), bounds, bounds[1:], strict=False):
            inside = (batch.masked >= start) & (batch.masked < end)
            cells[cell] = [
                batch.tokens[start:end].tolist(),
                (batch.masked[inside] - start).tolist(),
                batch.targets[inside].tolist(),
            ]
    return cells


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_processes_share_the_global_batch_of_one(run: TrainingRun, corpus: Any, processes: int):
    for step in (1, 5):
        (whole,) = batches(run, corpus, micro_batch_tokens=100_000)[step].micro_batches
        shares = [
            batches(run, corpus, rank, processes, micro_batch_tokens=48)[step]
            for rank in range(processes)
        ]
        parts = [batch for share in shares for batch in share.micro_batches]
        assert by_cell(parts) == by_cell([whole])
        assert sum(share.masked for share in shares) == len(whole.masked)
        for share in shares:
            assert share.micro_batches
            assert all(len(batch.tokens) <= 48 for batch in share.micro_batches)
            np.testing.assert_array_equal(share.lengths, whole.cu_seqlens.diff().numpy())
            assert share.capacity == 48 * len(parts)


def test_without_cls_every_place_is_a_gene(run: TrainingRun, corpus: Any):
    share = batches(replace(run, cls_token=False), corpus)[1]
    store = TokenStore.open(corpus.stores)
    for batch in share.micro_batches:
        lengths = np.minimum(store.lengths[batch.cells.numpy()], run.context)
        np.testing.assert_array_equal(batch.cu_seqlens.diff().numpy(), lengths)
    assert sorted(share.lengths.tolist()) == sorted(
        np.minimum(store.lengths[batches(run, corpus).cells(1)], run.context).tolist()
    )


def test_one_micro_batch_keeps_the_order_of_cells(run: TrainingRun, corpus: Any):
    made = batches(run, corpus, micro_batch_tokens=100_000)
    assert made[3].micro_batches[0].cells.tolist() == made.cells(3).tolist()


def test_the_longer_context_sees_the_same_cells(run: TrainingRun, corpus: Any):
    short, long = (batches(replace(run, context=context), corpus) for context in (8, 32))
    assert short.cells(3).tolist() == long.cells(3).tolist()
    lengths = [max(batch.max_seqlen for batch in made[3].micro_batches) for made in (short, long)]
    assert lengths[0] == 8 < lengths[1]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_change_nothing(run: TrainingRun, corpus: Any, workers: int):
    made = batches(run, corpus)
    with closing(ahead(made, range(4, 12), workers, torch.device("cpu"))) as shares:
        for step, share in zip(range(4, 12), shares, strict=True):
            for mine, other in zip(share.micro_batches, made[step].micro_batches, strict=True):
                assert torch.equal(mine.tokens, other.tokens)
                assert torch.equal(mine.masked, other.masked)
                assert torch.equal(mine.cells, other.cells)


def test_a_mistake_in_a_worker_is_the_users(run: TrainingRun, corpus: Any):
    class Damaged(GlobalBatches):
        def __getitem__(self, step: int) -> Any:
            raise UserError("shard-00003.arrow: damaged")

    made = batches(run, corpus)
    made.__class__ = Damaged
    with (
        closing(ahead(made, range(1, 9), 2, torch.device("cpu"))) as shares,
        pytest.raises(UserError, match="shard-00003"),
    ):
        next(shares)


def test_more_processes_than_cells_are_refused(run: TrainingRun, corpus: Any):
    with pytest.raises(UserError, match="8 cells do not occupy 9 processes; start at most 8"):
        batches(run, corpus, 0, 9)


def paper_settings(context: int) -> EncoderSettings:
    return EncoderSettings(
        attention="sigmoid",
        context=context,
        layers=12,
        hidden=768,
        heads=12,
        feed_forward=3072,
        vocabulary_size=44_000,
        dropout=0.02,
        layer_norm_epsilon=1e-5,
        initializer_range=0.02,
    )


def lengths_of_a_global_batch(context: int, seed: int) -> np.ndarray:
    """256 lengths as in Fig. 1 of the paper: log-normal, cut at the context."""
    drawn = np.random.default_rng(seed).lognormal(math.log(1830), 0.65, 256)
    return np.clip(np.rint(drawn), 200, context).astype(np.int64)


def test_work_is_the_counted_one():
    encoder = paper_settings(4096)
    for length, masked in ((100, 15), (2000, 300), (4000, 600)):
        counted = count_flops(encoder, [length], masked)
        work = Work(encoder, 0.15).of(np.array([length]))[0]
        assert work == pytest.approx(counted, rel=1e-12)


@pytest.mark.parametrize("context", [2048, 4096, 8192])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_processes_and_micro_batches_have_even_work(context: int, ranks: int):
    work_of = Work(paper_settings(context), 0.15)
    budget = 65536
    for seed in range(5):
        lengths = lengths_of_a_global_batch(context, seed)
        work = work_of.of(lengths)
        shares = divide(work, ranks)
        # Every cell is computed once.
        assert sorted(np.concatenate(shares).tolist()) == list(range(256))
        loads = [work[share].sum() for share in shares]
        assert max(loads) < 1.02 * min(loads)
        for share in shares:
            parts = micro_batches(lengths[share], work[share], budget)
            assert sorted(np.concatenate(parts).tolist()) == list(range(len(share)))
            assert all(lengths[share][part].sum() <= budget for part in parts)
            loads = [work[share][part].sum() for part in parts]
            assert max(loads) < 1.02 * min(loads)
            # No more of them than needed: one fewer would hold more than the budget allows.
            assert len(parts) - 1 <= math.ceil(lengths[share].sum() / budget)


def test_a_division_depends_on_the_work_alone():
    work = np.array([5.0, 5.0, 1.0, 1.0, 1.0, 3.0])
    assert [part.tolist() for part in divide(work, 2)] == [[0, 5], [1, 2, 3, 4]]
    assert [part.tolist() for part in divide(work, 1)] == [[0, 1, 2, 3, 4, 5]]


def test_a_cell_beyond_the_budget_goes_alone():
    lengths = np.array([4, 50, 4, 4])
    parts = micro_batches(lengths, lengths.astype(float), 10)
    assert [1] in [part.tolist() for part in parts]
    assert all(part.tolist() == [1] or lengths[part].sum() <= 10 for part in parts)
