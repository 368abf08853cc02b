"""Batches against hand-made expectations."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import CLS, MASK, SPECIAL
from scsigmoid.training.batches import Masking, pack, pack_genes, split_by_tokens
from scsigmoid.training.run import TrainingRun


def test_pack_genes_puts_cls_in_front_of_every_cell():
    batch = pack_genes(
        np.array([7, 8, 9, 5], dtype=np.uint16), np.array([3, 0, 1]), np.array([4, 2, 9])
    )
    assert batch.tokens.tolist() == [CLS, 7, 8, 9, CLS, CLS, 5]
    assert batch.positions.tolist() == [0, 1, 2, 3, 0, 0, 1]
    assert batch.cu_seqlens.tolist() == [0, 4, 5, 7]
    assert batch.cells.tolist() == [4, 2, 9]
    assert batch.max_seqlen == 4
    assert len(batch.masked) == len(batch.targets) == 0
    assert batch.cu_seqlens.dtype == torch.int32
    assert {x.dtype for x in (batch.tokens, batch.positions, batch.cells)} == {torch.int64}


@pytest.mark.parametrize("first", [[CLS], []])
def test_pack_cuts_at_the_context(first: list[int], run: TrainingRun, corpus: Any):
    store = TokenStore.open(corpus.stores)
    rows = np.array([20, 3, 3])
    settings = replace(run, context=6, cls_token=bool(first)).encoder_settings(64)
    batch = pack(store, rows, settings)
    expected = []
    for row in rows:
        expected += [*first, *store.cells([row], 6 - len(first)).tokens.tolist()]
    assert batch.tokens.tolist() == expected
    assert batch.max_seqlen <= 6
    assert batch.positions[: batch.cu_seqlens[1]].tolist() == list(range(batch.cu_seqlens[1]))


def test_masking_leaves_cls_alone_and_keeps_the_targets():
    genes = np.arange(len(SPECIAL), len(SPECIAL) + 40)
    lengths = np.array([10, 30])
    masking = Masking(
        seed=1, draw=2, fraction=0.15, replacement="mask", vocabulary_size=len(SPECIAL) + 40
    )
    plain = pack_genes(genes, lengths, np.array([0, 1]))
    masked = pack_genes(genes, lengths, np.array([0, 1]), masking)
    # max(1, round(0.15 n)): 2 of 10 (1.5 rounds to even) and 4 of 30 (4.5 rounds to even)
    assert len(masked.masked) == 2 + 4
    assert (masked.tokens[masked.masked] == MASK).all()
    assert torch.equal(masked.targets, plain.tokens[masked.masked])
    assert not (masked.targets == CLS).any()
    restored = masked.tokens.clone()
    restored[masked.masked] = masked.targets
    assert torch.equal(restored, plain.tokens)


def test_split_by_tokens_keeps_order_and_budget():
    lengths = np.array([5, 5, 5, 11, 2, 3, 5])
    parts = split_by_tokens(lengths, 10)
    assert [lengths[part].tolist() for part in parts] == [[5, 5], [5], [11], [2, 3, 5]]
