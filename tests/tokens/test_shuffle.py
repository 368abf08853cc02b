"""The order of training cells: complete, computed directly, and mixed like a uniform sample."""

import numpy as np
import pytest

from scsigmoid.tokens import shuffle
from scsigmoid.tokens.shuffle import CellOrder


@pytest.fixture
def small(monkeypatch):
    """Blocks of 4 cells and windows of 3 blocks."""
    monkeypatch.setattr(shuffle, "BLOCK_CELLS", 4)
    monkeypatch.setattr(shuffle, "WINDOW_BLOCKS", 3)


@pytest.mark.parametrize("cells", [1, 4, 13, 59, 60, 61])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_epochs_contain_every_cell_once(small, cells, size):
    order = CellOrder(cells, 3)
    count = -(-3 * cells // size)
    sequence = np.concatenate([order.batch(index, size) for index in range(count)])
    for epoch in range(3):
        rows = sequence[epoch * cells : (epoch + 1) * cells]
        assert sorted(rows.tolist()) == list(range(cells))


@pytest.mark.parametrize("seed", range(4))
def test_any_batch_is_computed_directly(small, seed):
    """The place of the shorter block differs between seeds."""
    order = CellOrder(59, seed)
    whole = np.concatenate([order.batch(index, 1) for index in range(150)])
    for index in (9, 0, 20, 3, 14):
        for source in (CellOrder(59, seed), order):
            assert source.batch(index, 7).tolist() == whole[index * 7 :][:7].tolist()


def test_windows_contain_whole_blocks(small):
    order = CellOrder(120, 1)
    sequence = np.concatenate([order.batch(index, 12) for index in range(10)])
    for rows in np.split(sequence, 10):
        blocks, cells = np.unique(rows // 4, return_counts=True)
        assert len(blocks) == 3
        assert set(cells) == {4}
    assert any((np.diff(rows) != 1).any() for rows in np.split(sequence, 10))


def test_order_depends_on_seed_and_epoch():
    first, other = CellOrder(1000, 1), CellOrder(1000, 2)
    assert first.batch(0, 1000).tolist() != other.batch(0, 1000).tolist()
    assert first.batch(0, 1000).tolist() != first.batch(1, 1000).tolist()


def test_batches_mix_datasets_as_a_uniform_sample_does():
    """500,000 cells of 40 datasets in 8 parts, permuted within their parts like token stores.

    A uniform sample of 256 cells contains a hypergeometric number of each dataset. Squared
    deviations of 1,900 batches are compared with the variance of this distribution. Windows of
    4,096 blocks increase them by 255 / 4,096 times the share of the covariance between parts,
    which is below 0.2 % here.
    """
    generator = np.random.default_rng(11)
    cells = 500_000
    sizes = generator.multinomial(cells, generator.dirichlet(np.ones(40) * 2))
    dataset = np.repeat(np.arange(40), sizes)
    parts = [np.flatnonzero(dataset % 8 == part) for part in range(8)]
    stored = dataset[np.concatenate([generator.permutation(part) for part in parts])]
    order = CellOrder(cells, 5)
    batches = 1900
    numbers = np.stack(
        [np.bincount(stored[order.batch(index, 256)], minlength=40) for index in range(batches)]
    )
    share = sizes / cells
    expected = 256 * share
    variance = 256 * share * (1 - share) * (cells - 256) / (cells - 1)
    # The batches are nearly an epoch, so their mean is nearly exact.
    ratio = ((numbers - expected) ** 2).sum(axis=0) / batches / variance
    assert np.abs(numbers.mean(axis=0) / expected - 1).max() < 0.02
    # 40 ratios with a standard deviation of sqrt(2 / 1900) = 3.2 % each
    assert np.abs(ratio - 1).max() < 4.5 * np.sqrt(2 / batches)
    assert abs(ratio.mean() - 1) < 4.5 * np.sqrt(2 / batches / 40)
