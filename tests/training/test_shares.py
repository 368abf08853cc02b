"""Batches of a run: division into processes and micro-batches, and reproducibility."""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import PAPER

from scsigmoid.errors import UserError
from scsigmoid.model.batches import Batch, pack
from scsigmoid.model.masking import Masking
from scsigmoid.model.sizes import count_flops
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training.shares import (
    divide,
    micro_batches,
    prefetch,
    validation_indices,
    work_of_cells,
)


def by_cell(parts: Sequence[Batch]) -> dict[int, list[list[int]]]:
    """Return the tokens, masked positions and targets of each cell."""
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
def test_processes_share_the_same_global_batch(run, make_batches, processes):
    (whole,) = make_batches(run, micro_batch_tokens=100_000)[5].micro_batches
    shares = [
        make_batches(run, rank, processes, micro_batch_tokens=48)[5] for rank in range(processes)
    ]
    parts = [batch for share in shares for batch in share.micro_batches]
    assert by_cell(parts) == by_cell([whole])
    assert sum(share.masked for share in shares) == len(whole.masked)
    for share in shares:
        assert share.micro_batches
        assert all(len(batch.tokens) <= 48 for batch in share.micro_batches)
        np.testing.assert_array_equal(share.lengths, whole.cu_seqlens.diff().numpy())
        assert share.capacity == 48 * len(parts)


def test_contexts_have_the_same_cells(run, make_batches):
    short, long = (make_batches(replace(run, context=context)) for context in (8, 32))
    assert short.cells(3).tolist() == long.cells(3).tolist()
    lengths = [max(batch.max_seqlen for batch in made[3].micro_batches) for made in (short, long)]
    assert lengths[0] == 8 < lengths[1]


def test_masks_differ_between_steps(run, make_batches, corpus):
    settings = {"fraction": 0.5, "replacement": "bert", "vocabulary_size": 64}
    made = make_batches(run, mask_fraction=0.5, mask_replacement="bert", micro_batch_tokens=9999)
    for step in (1, 2):
        masking = Masking(seed=derive(42, "masks"), draw=step, **settings)
        expected = pack(TokenStore.open(corpus.stores), made.cells(step), made.settings, masking)
        assert torch.equal(made[step].micro_batches[0].tokens, expected.tokens)
        assert torch.equal(made[step].micro_batches[0].masked, expected.masked)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_do_not_change_batches(run, make_batches, workers):
    made = make_batches(run)
    with closing(prefetch(made, range(4, 12), workers, torch.device("cpu"))) as shares:
        for step, share in zip(range(4, 12), shares, strict=True):
            for batch, expected in zip(share.micro_batches, made[step].micro_batches, strict=True):
                assert torch.equal(batch.tokens, expected.tokens)
                assert torch.equal(batch.masked, expected.masked)
                assert torch.equal(batch.cells, expected.cells)


def test_more_processes_than_cells(run, make_batches):
    with pytest.raises(UserError, match="8 cells do not occupy 9 processes; start at most 8"):
        make_batches(run, 0, 9)


def test_work_equals_counted_operations():
    for length, masked in ((100, 15), (2000, 300), (4000, 600)):
        counted = count_flops(PAPER, [length], masked)
        work = work_of_cells(np.array([length]), PAPER, 0.15)
        assert work == pytest.approx([counted], rel=1e-12)


@pytest.mark.parametrize("context", [2048, 4096, 8192])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_processes_and_micro_batches_have_equal_work(context, ranks):
    """The 256 lengths are log-normal as in Fig. 1 of the paper."""
    budget = 65536
    for seed in range(5):
        drawn = np.random.default_rng(seed).lognormal(math.log(1830), 0.65, 256)
        lengths = np.clip(np.rint(drawn), 200, context).astype(np.int64)
        work = work_of_cells(lengths, PAPER, 0.15)
        shares = divide(work, ranks)
        assert sorted(np.concatenate(shares).tolist()) == list(range(256))
        loads = [work[share].sum() for share in shares]
        assert max(loads) < 1.02 * min(loads)
        for share in shares:
            parts = micro_batches(lengths[share], work[share], budget)
            assert sorted(np.concatenate(parts).tolist()) == list(range(len(share)))
            assert all(lengths[share][part].sum() <= budget for part in parts)
            assert len(parts) <= 1 + math.ceil(lengths[share].sum() / budget)
            loads = [work[share][part].sum() for part in parts]
            assert max(loads) < 1.02 * min(loads)


@pytest.mark.parametrize(
    ("lengths", "count"),
    [([5, 5, 5, 5], 2), ([6, 6, 6, 2], 3), ([4, 4, 4, 4, 4], 3), ([9], 1), ([4, 50, 4, 4], 4)],
)
def test_as_few_micro_batches_as_the_budget_allows(lengths, count):
    """A cell above the budget is a micro-batch of its own."""
    cells = np.array(lengths)
    parts = micro_batches(cells, cells.astype(float), 10)
    assert len(parts) == count
    assert all(len(part) == 1 or cells[part].sum() <= 10 for part in parts)


def test_validation_cells_are_never_trained_on(run, make_batches):
    batches = make_batches(run, validation_cells=6, global_batch=8)
    epoch = np.concatenate([batches.cells(step) for step in (1, 2, 3)])
    assert sorted(epoch.tolist()) == [row for row in range(30) if row % 5]
    assert validation_indices(30, 6).tolist() == [0, 5, 10, 15, 20, 25]
    assert validation_indices(30, 0).tolist() == []
    with pytest.raises(UserError, match=r"validation_cells: 30 of 30 training cells"):
        validation_indices(30, 30)
