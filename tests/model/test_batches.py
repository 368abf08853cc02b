"""Packed batches: [CLS], truncation, and slices of a limited number of tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import TINY, token_table

from scsigmoid.model.batches import pack, pack_genes, split_by_tokens
from scsigmoid.tokens.store import TokenStore, grouped, write_shards
from scsigmoid.tokens.vocabulary import CLS


def test_pack_genes_starts_every_cell_with_cls():
    batch = pack_genes(
        np.array([7, 8, 9, 5], dtype=np.uint16), np.array([0, 3, 3, 4]), np.array([4, 2, 9])
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
def test_pack_truncates_to_the_context(first, tmp_path):
    cells = [np.arange(4, 4 + length) for length in (3, 20, 6, 9)]
    metadata = {"vocabulary": "", "vocabulary_size": 50, "maximum_length": 31, "shard_cells": 3}
    metadata |= {"label": ""}
    write_shards(tmp_path, grouped(token_table(cells, 50).to_batches(), 3), metadata)
    rows = np.array([3, 1, 1, 0])
    settings = replace(TINY, context=6, cls_token=bool(first))
    batch = pack(TokenStore.open(tmp_path), rows, settings)
    expected = []
    for row in rows:
        expected += [*first, *cells[row][: 6 - len(first)].tolist()]
    assert batch.tokens.tolist() == expected
    assert batch.max_seqlen <= 6
    assert batch.positions[: batch.cu_seqlens[1]].tolist() == list(range(batch.cu_seqlens[1]))


def test_empty_batch():
    none = np.zeros(0, dtype=np.int64)
    empty = pack_genes(none, np.zeros(1, dtype=np.int64), none)
    assert (empty.max_seqlen, empty.cu_seqlens.tolist()) == (0, [0])


def test_a_batch_moves_to_another_device():
    meta = torch.device("meta")
    moved = pack_genes(np.arange(4, 9), np.array([0, 5]), np.array([7])).to(meta)
    assert moved.tokens.device == moved.cu_seqlens.device == meta
    assert moved.cells.tolist() == [7]  # indices of cells stay on the CPU


def test_split_by_tokens_keeps_order_and_budget():
    lengths = np.array([5, 5, 5, 11, 2, 3, 5])
    parts = split_by_tokens(lengths, 10)
    assert [lengths[part].tolist() for part in parts] == [[5, 5], [5], [11], [2, 3, 5]]
