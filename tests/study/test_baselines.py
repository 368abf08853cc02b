"""Baselines without attention, compared with counts by hand."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_training import TINY

from scsigmoid.model.batches import pack
from scsigmoid.model.masking import Masking
from scsigmoid.study.baselines import PRIOR, ClassShares

GENES = range(4, 20)


def test_the_baseline_by_rank_and_length_excludes_visible_genes():
    generator = np.random.default_rng(0)
    cells = [generator.permutation(GENES)[: generator.integers(1, 12)] for _ in range(300)]

    def read(rows: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
        """Return tokens and cu_seqlens like the method ``cells`` of a token store."""
        genes = [cells[row][:longest] for row in rows]
        return np.concatenate(genes), np.cumsum([0, *map(len, genes)])

    store, settings = SimpleNamespace(cells=read), replace(TINY, vocabulary_size=20)
    shares = ClassShares(store, np.arange(250), settings)
    held_out = np.arange(250, 300)
    masking = Masking(seed=1, draw=0, fraction=0.4, replacement="mask", vocabulary_size=20)
    batch = pack(store, held_out, settings, masking)

    def class_of(rank: int, cell: np.ndarray) -> tuple[int, int]:
        """Return the class of the gene of a rank. It is token ``rank + 1``, because of [CLS]."""
        length = len(cell) + 1
        return (rank + 1) * 8 // length, int(math.log2(length))

    of_class_and_gene, of_class, of_gene = Counter(), Counter(), Counter()  # numbers of tokens
    for cell in cells[:250]:
        for rank, gene in enumerate(cell):
            of_class_and_gene[class_of(rank, cell), gene] += 1
            of_class[class_of(rank, cell)] += 1
            of_gene[gene] += 1
    total = sum(of_gene[gene] + 0.5 for gene in GENES)

    def share(kind: tuple[int, int], gene: int) -> float:
        """Return the smoothed share of a gene in a class."""
        prior = PRIOR * (of_gene[gene] + 0.5) / total
        return (of_class_and_gene[kind, gene] + prior) / (of_class[kind] + PRIOR)

    losses = []
    for row, begin, end in zip(held_out, batch.cu_seqlens, batch.cu_seqlens[1:], strict=False):
        cell = cells[row]
        masked = [int(index - begin) - 1 for index in batch.masked if begin <= index < end]  # ranks
        visible = [gene for rank, gene in enumerate(cell) if rank not in masked]
        for rank in masked:
            kind = class_of(rank, cell)
            remaining = 1 - sum(share(kind, gene) for gene in visible)
            losses.append(-math.log(share(kind, cell[rank]) / remaining))
    assert shares.loss(batch) == pytest.approx(np.mean(losses), rel=1e-9)
    expected = [(of_gene[gene] + 0.5) / total for gene in GENES]
    assert shares.overall_shares[4:].tolist() == pytest.approx(expected)
