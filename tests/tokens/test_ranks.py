"""Rank tokens compared with a loop that follows the definition."""

import numpy as np
import pytest
import scipy.sparse as sp

from scsigmoid.tokens.ranks import rank_tokens


def split(ranked):
    return [cell.tolist() for cell in np.split(ranked.tokens, ranked.offsets[1:-1])]


@pytest.fixture
def check(by_definition):
    """Return a function that compares tokens and numbers of genes with the definition."""

    def check(counts, tokens, medians, maximum_length):
        expected = [by_definition(row, tokens, medians) for row in counts]
        ranked = rank_tokens(sp.csr_matrix(counts), tokens, medians, 1e4, maximum_length)
        assert split(ranked) == [cell[:maximum_length] for cell in expected]
        assert ranked.genes.tolist() == [len(cell) for cell in expected]

    return check


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("medians", ["distinct", "equal", "two"])
@pytest.mark.parametrize("maximum_length", [5, 1000])
def test_equals_the_definition(shuffled, medians, maximum_length, draw, check):
    tokens = np.arange(4, 64)
    tokens[::7] = -1
    if shuffled:
        tokens = np.random.default_rng(0).permutation(tokens)
    values = {
        "distinct": np.random.default_rng(1).lognormal(2, 1, 64),
        "equal": np.ones(64),
        "two": np.where(np.arange(64) % 2, 3.0, 7.0),
    }[medians]
    check(draw(3, 80, 60), tokens, values, maximum_length)


def test_wide_vocabulary(draw, check):
    tokens = np.random.default_rng(0).permutation(100_000)[:40]
    check(draw(3, 10, 40), tokens, np.ones(100_000), 99)


def test_by_hand():
    # Totals are 10 and 4. They include the second gene, which is outside the vocabulary.
    counts = sp.csr_matrix(np.array([[2, 5, 3, 0], [0, 4, 0, 0]]))
    ranked = rank_tokens(
        counts, np.array([4, -1, 5, 6]), np.array([1, 1, 1, 1, 10.0, 20.0, 1.0]), 100, 9
    )
    # gene 0: 20 / 10 = 2; gene 2: 30 / 20 = 1.5
    assert split(ranked) == [[4, 5], []]
    assert ranked.genes.tolist() == [2, 0]


@pytest.mark.parametrize("medians", ["equal", "real"])
def test_crowded_and_long_cells(medians, check):
    generator = np.random.default_rng(5)
    counts = generator.poisson(0.9, (6, 9000))
    tokens = generator.permutation(9000) + 4
    values = np.ones(9004) if medians == "equal" else generator.lognormal(0.5, 1, 9004)
    check(counts, tokens, values, 4000)


def test_extreme_values(check):
    counts = np.array([[2**31 - 1, 1, 2**30, 7, 0], [1, 1, 1, 1, 1]])
    medians = np.array([1, 1, 1, 1, 1e-300, 1e300, 3e-320, 1.0, 2.0])
    check(counts, np.arange(4, 9), medians, 9)


def test_equals_geneformer(draw):
    """Compare with the numpy code of Geneformer's tokenizer (V1, tokenizer.py)."""
    counts = draw(8, 60, 80)
    tokens = np.arange(4, 84)
    medians = np.concatenate([np.ones(4), np.random.default_rng(2).lognormal(0.5, 1, 80)])
    ranked = split(rank_tokens(sp.csr_matrix(counts), tokens, medians, 1e4, 2048))
    for row, cell in zip(counts, ranked, strict=True):
        scaled = row / row.sum() * 10_000 / medians[tokens]
        nonzero = np.nonzero(scaled)[0]
        assert cell == tokens[nonzero][np.argsort(-scaled[nonzero])][:2048].tolist()
