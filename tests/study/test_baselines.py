"""Baselines without attention, compared with counts by hand."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_training import TINY

from scsigmoid.model.masking import Masking
from scsigmoid.study.baselines import PRIOR, ClassShares
from scsigmoid.training.batches import pack

GENES = range(4, 20)


def test_the_baseline_by_rank_and_length_excludes_visible_genes():
    generator = np.random.default_rng(0)
    cells = [generator.permutation(GENES)[: generator.integers(1, 12)] for _ in range(300)]

    def read(rows: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = [cells[row][:most] for row in rows]
        return np.concatenate(chosen), np.cumsum([0, *map(len, chosen)])

    store, settings = SimpleNamespace(cells=read), replace(TINY, vocabulary_size=20)
    shares = ClassShares(store, np.arange(250), settings)
    held_out = np.arange(250, 300)
    masking = Masking(seed=1, draw=0, fraction=0.4, replacement="mask", vocabulary_size=20)
    batch = pack(store, held_out, settings, masking)

    # With [CLS] in front, the gene of rank r is the token r + 1 of n.
    kinds = [
        [((r + 1) * 8 // (len(c) + 1), int(math.log2(len(c) + 1))) for r in range(len(c))]
        for c in cells
    ]
    seen = [
        (kind, gene)
        for cell, own in zip(cells[:250], kinds, strict=False)
        for kind, gene in zip(own, cell, strict=True)
    ]
    pairs, sizes = Counter(seen), Counter(kind for kind, _ in seen)
    genes = Counter(gene for _, gene in seen)
    everything = sum(genes[gene] + 0.5 for gene in GENES)

    def share(kind: tuple[int, int], gene: int) -> float:
        prior = PRIOR * (genes[gene] + 0.5) / everything
        return (pairs[kind, gene] + prior) / (sizes[kind] + PRIOR)

    losses = []
    bounds = batch.cu_seqlens.tolist()
    for row, begin, end in zip(held_out, bounds, bounds[1:], strict=False):
        hidden = [place - begin - 1 for place in batch.masked.tolist() if begin <= place < end]
        shown = [gene for rank, gene in enumerate(cells[row]) if rank not in hidden]
        for rank in hidden:
            kind = kinds[row][rank]
            left = 1 - sum(share(kind, gene) for gene in shown)
            losses.append(-math.log(share(kind, cells[row][rank]) / left))
    assert shares.loss(batch) == pytest.approx(np.mean(losses), rel=1e-9)
    expected = [(genes[gene] + 0.5) / everything for gene in GENES]
    assert shares.mean_share[4:].tolist() == pytest.approx(expected)
