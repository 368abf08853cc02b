"""Rank tokens compared with a loop that follows the definition."""

import numpy as np
import pytest
import scipy.sparse as sp
from tokens.conftest import by_definition, draw

from scsigmoid.tokens.ranks import rank_tokens


def split(ranked):
    return [cell.tolist() for cell in np.split(ranked.tokens, ranked.offsets[1:-1])]


def check(counts, tokens, medians, maximum_length):
    """Compare tokens and numbers of genes with the definition."""
    expected = [by_definition(row, tokens, medians) for row in counts]
    ranked = rank_tokens(sp.csr_matrix(counts), tokens, medians, maximum_length)
    assert split(ranked) == [cell[:maximum_length] for cell in expected]
    assert ranked.genes.tolist() == [len(cell) for cell in expected]


@pytest.mark.parametrize("vocabulary_size", [64, 100_000])
@pytest.mark.parametrize("medians", ["distinct", "equal", "extreme"])
@pytest.mark.parametrize("maximum_length", [5, 1000])
def test_equals_the_definition(vocabulary_size, medians, maximum_length):
    generator = np.random.default_rng(0)
    tokens = generator.permutation(vocabulary_size - 4)[:60] + 4
    tokens[::7] = -1
    values = {
        "distinct": generator.lognormal(2, 1, vocabulary_size),
        "equal": np.ones(vocabulary_size),
        "extreme": 10.0 ** generator.uniform(-320, 300, vocabulary_size),
    }[medians]
    counts = draw(3, 80, 60)
    counts[5, 3] = 2**31 - 1
    check(counts, tokens, values, maximum_length)


@pytest.mark.parametrize("medians", ["equal", "real"])
def test_crowded_and_long_cells(medians):
    generator = np.random.default_rng(5)
    counts = generator.poisson(0.9, (6, 9000))
    tokens = generator.permutation(9000) + 4
    values = np.ones(9004) if medians == "equal" else generator.lognormal(0.5, 1, 9004)
    check(counts, tokens, values, 4000)


def test_equals_geneformer():
    """Compare with the numpy code of Geneformer's tokenizer (V1, tokenizer.py)."""
    counts = draw(8, 60, 80)
    tokens = np.arange(4, 84)
    medians = np.random.default_rng(2).lognormal(0.5, 1, 84)
    ranked = split(rank_tokens(sp.csr_matrix(counts), tokens, medians, 2048))
    for row, cell in zip(counts, ranked, strict=True):
        scaled = row / row.sum() * 10_000 / medians[tokens]
        nonzero = np.nonzero(scaled)[0]
        assert cell == tokens[nonzero][np.argsort(-scaled[nonzero])][:2048].tolist()


def test_cells_in_memory_are_read_in_any_order():
    counts, medians = draw(3, 20, 30), np.ones(34)
    ranked = rank_tokens(sp.csr_matrix(counts), np.arange(4, 34), medians, 9)
    cells = split(ranked)
    assert len(ranked) == len(cells) == 20
    assert ranked.lengths.tolist() == [*map(len, cells)]
    for rows, longest in (([7, 0, 7, 19], 100), ([3, 2], 4), ([], 5)):
        packed = ranked.cells(rows, longest)
        expected = [cells[row][:longest] for row in rows]
        assert packed.tokens.tolist() == [token for cell in expected for token in cell]
        assert packed.cu_seqlens.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
        assert (packed.tokens.dtype, packed.cu_seqlens.dtype) == (np.uint16, np.int32)
