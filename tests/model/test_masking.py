"""Masks: their number, targets and positions, which depend only on the cell."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from scsigmoid.model.masking import Masking

MASK, CLS, FIRST, END = 1, 2, 4, 504
LENGTHS = [1, 2, 3, 7, 100, 0, 33]


def batch(lengths, *, cls=False, seed=0):
    generator = np.random.default_rng(seed)
    parts = []
    for length in lengths:
        genes = generator.choice(np.arange(FIRST, END), size=length, replace=False)
        parts.append(np.concatenate([[CLS], genes]) if cls else genes)
    bounds = np.cumsum([0, *map(len, parts)])
    return np.concatenate(parts).astype(np.uint16), bounds


class Masked(NamedTuple):
    tokens: np.ndarray
    positions: np.ndarray
    targets: np.ndarray


def mask(tokens, cells, bounds, **changes):
    options = {"seed": 42, "draw": 0, "fraction": 0.15, "replacement": "mask", **changes}
    masking = Masking(vocabulary_size=END, **options)
    return Masked(*masking.mask(tokens, np.asarray(cells), bounds))


def by_cell(result, bounds):
    """Return the masked positions of each cell, counted from its start."""
    owner = np.searchsorted(bounds, result.positions, side="right") - 1
    return [
        (result.positions[owner == cell] - bounds[cell]).tolist() for cell in range(len(bounds) - 1)
    ]


@pytest.mark.parametrize("fraction", [0.15, 0.5, 1.0])
def test_number_and_replacement_of_masked_genes(fraction):
    tokens, bounds = batch(LENGTHS)
    result = mask(tokens, np.arange(len(LENGTHS)), bounds, fraction=fraction)
    counts = [len(positions) for positions in by_cell(result, bounds)]
    assert counts == [max(1, round(fraction * n)) if n else 0 for n in LENGTHS]
    assert (np.diff(result.positions) > 0).all()
    assert (result.targets == tokens[result.positions]).all()
    assert (result.tokens[result.positions] == MASK).all()
    is_kept = np.ones(len(tokens), bool)
    is_kept[result.positions] = False
    assert (result.tokens[is_kept] == tokens[is_kept]).all()
    assert result.tokens.dtype == result.positions.dtype == result.targets.dtype == np.int64


def test_special_tokens_are_neither_masked_nor_counted():
    genes_only, bounds = batch(LENGTHS)
    special, special_bounds = batch(LENGTHS, cls=True)
    cells = np.arange(len(LENGTHS)) + 10
    without = by_cell(mask(genes_only, cells, bounds), bounds)
    result = mask(special, cells, special_bounds)
    assert (result.targets >= FIRST).all()
    # A leading [CLS] moves the positions by one and changes nothing else.
    within = by_cell(result, special_bounds)
    assert within == [[position + 1 for position in positions] for positions in without]


def test_mask_of_a_cell_does_not_depend_on_its_batch():
    tokens, bounds = batch(LENGTHS)
    cells = np.array([5, 900, 2**40, 7, 8, 9, 10])
    together = by_cell(mask(tokens, cells, bounds), bounds)
    for index in range(len(LENGTHS)):
        part = tokens[bounds[index] : bounds[index + 1]]
        own_bounds = np.array([0, len(part)])
        alone = mask(part, cells[[index]], own_bounds)
        assert by_cell(alone, own_bounds) == [together[index]]


def test_every_pair_of_positions_is_equally_likely():
    # 2 of 5 genes: 10 pairs. Chi-squared with 9 degrees of freedom is below 33.7 in 99.99 %.
    draws = 4000
    tokens, bounds = batch([5] * draws)
    result = mask(tokens, np.arange(draws), bounds, fraction=0.4)
    pairs = Counter(map(tuple, by_cell(result, bounds)))
    assert len(pairs) == 10
    expected = draws / 10
    assert sum((count - expected) ** 2 / expected for count in pairs.values()) < 33.7


def splitmix(state):
    """Compute one step of splitmix64 with the integers of Python (Steele, Lea and Flood 2014)."""
    bits = 2**64 - 1
    state = (state + 0x9E3779B97F4A7C15) & bits
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & bits
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & bits
    return state ^ (state >> 31)


@pytest.mark.parametrize(("seed", "cell", "draw"), [(42, 0, 0), (7, 123456789, 14), (2**63, 3, 1)])
def test_masks_equal_a_computation_by_hand(seed, cell, draw):
    """Genes with the smallest keys are masked. The key of a gene decides its replacement."""
    tokens, bounds = batch([400])
    stream = splitmix(splitmix(splitmix(seed) ^ splitmix(cell)) ^ splitmix(draw + 1))
    keys = [splitmix(stream ^ splitmix(gene)) for gene in range(400)]
    positions = sorted(sorted(range(400), key=keys.__getitem__)[:60])
    inputs = []
    for position in positions:
        word = splitmix(keys[position] ^ 0xD1B54A32D192ED03)
        share, random = (word >> 11) / 2**53, FIRST + splitmix(word) % (END - FIRST)
        inputs.append(MASK if share < 0.8 else random if share < 0.9 else int(tokens[position]))
    result = mask(tokens, [cell], bounds, seed=seed, draw=draw, replacement="bert")
    assert result.positions.tolist() == positions
    assert result.tokens[positions].tolist() == inputs


@pytest.mark.parametrize("bounds", [[0, 5, 10], [1, 10], [0, 9]])
def test_inconsistent_bounds_are_refused(bounds):
    with pytest.raises(ValueError, match="does not describe 1 cells of 10 tokens"):
        mask(batch([10])[0], [0], np.array(bounds))
