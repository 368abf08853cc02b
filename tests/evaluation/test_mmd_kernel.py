"""MMD estimates against double loops, and against kernels recomputed for every resample."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist

from scsigmoid.evaluation.mmd import (
    median_squared_distance,
    mmd_squared,
    resample_counts,
)


def samples(n, m, seed=0, dimensions=5, shift=0.7):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, dimensions)).astype(np.float32)
    y = (random.normal(size=(m, dimensions)) + shift).astype(np.float32)
    return x, y


def loops(x, y, bandwidth):
    """Both estimates of one sample, each term a mean over pairs that are named one by one."""

    def kernel(a, b):
        return np.exp(
            -sum((float(p) - float(q)) ** 2 for p, q in zip(a, b, strict=True)) / (2 * bandwidth)
        )

    def mean(a, b, *, apart=False):
        values = [
            kernel(p, q) for i, p in enumerate(a) for j, q in enumerate(b) if not (apart and i == j)
        ]
        return sum(values) / len(values)

    cross = 2 * mean(x, y)
    return (
        mean(x, x, apart=True) + mean(y, y, apart=True) - cross,
        mean(x, x) + mean(y, y) - cross,
    )


def plain_bootstrap(x, y, w, v, bandwidth):
    """Every resample's cells written out, copies included, and its kernels computed anew."""
    unbiased, biased = [], []
    for counts_x, counts_y in zip(w, v, strict=True):
        rows, columns = (np.repeat(np.arange(len(c)), c) for c in (counts_x, counts_y))
        kxx, kyy, kxy = (
            np.exp(-cdist(a.astype(float), b.astype(float), "sqeuclidean") / (2 * bandwidth))
            for a, b in ((x[rows], x[rows]), (y[columns], y[columns]), (x[rows], y[columns]))
        )
        # of the same cell: itself and its copies
        other_x, other_y = rows[:, None] != rows, columns[:, None] != columns
        biased.append(kxx.mean() + kyy.mean() - 2 * kxy.mean())
        unbiased.append(kxx[other_x].mean() + kyy[other_y].mean() - 2 * kxy.mean())
    return np.array(unbiased), np.array(biased)


@pytest.mark.parametrize("block", [4, 7, 4096])
def test_equals_double_loops(block):
    x, y = samples(9, 13)
    ones = (np.ones((1, 9), dtype=np.int64), np.ones((1, 13), dtype=np.int64))
    found = mmd_squared(x, y, *ones, bandwidth=3.1, block=block)
    unbiased, biased = loops(x, y, 3.1)
    assert found.unbiased[0] == pytest.approx(unbiased, abs=1e-14)
    assert found.biased[0] == pytest.approx(biased, abs=1e-14)


@pytest.mark.parametrize("block", [11, 4096])
def test_equals_kernels_recomputed_for_every_resample(block):
    x, y = samples(30, 45, dimensions=20)
    w, v = resample_counts(30, 200, seed=1), resample_counts(45, 200, seed=2)
    found = mmd_squared(x, y, w, v, bandwidth=40.0, block=block)
    unbiased, biased = plain_bootstrap(x, y, w, v, 40.0)
    np.testing.assert_allclose(found.unbiased, unbiased, atol=1e-13)
    np.testing.assert_allclose(found.biased, biased, atol=1e-13)


def test_far_from_the_origin_no_digits_are_lost():
    x, y = samples(20, 20)
    w = v = resample_counts(20, 5, seed=0)
    near = mmd_squared(x, y, w, v, bandwidth=5.0, block=64)
    offset = np.float64(2**20)
    far = mmd_squared(x + offset, y + offset, w, v, bandwidth=5.0, block=64)
    np.testing.assert_allclose(far.unbiased, near.unbiased, atol=1e-12)


def test_counts_are_multinomial():
    counts = resample_counts(40, 3000, seed=5)
    assert counts.shape == (3001, 40)
    assert (counts[0] == 1).all()
    assert (counts.sum(1) == 40).all()
    drawn = counts[1:]
    assert drawn.mean() == 1
    # variance 1 - 1/n; its standard error here is below 0.01
    assert drawn.var() == pytest.approx(1 - 1 / 40, abs=0.03)
    np.testing.assert_array_equal(counts, resample_counts(40, 3000, seed=5))


@pytest.mark.parametrize("count", [7, 8, 9])
def test_median_heuristic(count):
    values = np.random.default_rng(count).normal(size=(count, 4))
    expected = np.median(pdist(values, "sqeuclidean"))
    found = median_squared_distance(torch.from_numpy(values))
    assert found == pytest.approx(expected, rel=1e-12)


def with_copies(x, y, w, v, bandwidth):
    """MMD^2 as U statistic that counts pairs of a cell with its copies: what we do not take."""
    kxx, kyy, kxy = (
        np.exp(-cdist(a.astype(float), b.astype(float), "sqeuclidean") / (2 * bandwidth))
        for a, b in ((x, x), (y, y), (x, y))
    )
    n, m = len(x), len(y)
    xx, yy, xy = (((p @ k) * q).sum(1) for p, k, q in ((w, kxx, w), (v, kyy, v), (w, kxy, v)))
    return (xx - n) / (n * (n - 1)) + (yy - m) / (m * (m - 1)) - 2 * xy / (n * m)


@pytest.mark.parametrize(
    ("n", "m", "repetitions", "lowest", "highest_copies", "highest_biased"),
    [(100, 60, 200, 0.92, 0.7, 0.1), (500, 100, 50, 0.85, 0.8, 0.4)],
)
def test_intervals_cover(n, m, repetitions, lowest, highest_copies, highest_biased):
    """Nominal 95 % intervals of three estimators: normal cells and a fixed bandwidth, for which
    the population's MMD^2 is known in closed form."""
    dimensions, shift, bandwidth = 50, 0.3, 100.0
    # E k(a, b) for a - b ~ N(mean, 2 I): (s^2 / (s^2 + 2))^(d/2) exp(-|mean|^2 / (2 (s^2 + 2)))
    base = (bandwidth / (bandwidth + 2)) ** (dimensions / 2)
    truth = 2 * base * (1 - np.exp(-dimensions * shift**2 / (2 * (bandwidth + 2))))
    covered = dict.fromkeys(("unbiased", "copies", "biased"), 0)
    inside = dict.fromkeys(covered, 0)
    for repetition in range(repetitions):
        x, y = samples(n, m, 1000 + repetition, dimensions, shift)
        w = resample_counts(n, 300, 2 * repetition)
        v = resample_counts(m, 300, 2 * repetition + 1)
        estimates = mmd_squared(x, y, w, v, bandwidth=bandwidth, block=4096)._asdict()
        estimates["copies"] = with_copies(x, y, w, v, bandwidth)
        for name, values in estimates.items():
            low, high = np.quantile(values[1:], [0.025, 0.975])
            covered[name] += int(low <= truth <= high)
            inside[name] += int(low <= values[0] <= high)
    assert lowest <= covered["unbiased"] / repetitions <= 0.995
    assert covered["copies"] / repetitions <= highest_copies
    assert covered["biased"] / repetitions <= highest_biased
    # the point lies in its own interval always; the V statistic's hardly ever, for small types
    assert inside["unbiased"] == repetitions
    assert n > 100 or inside["biased"] / repetitions < 0.2
