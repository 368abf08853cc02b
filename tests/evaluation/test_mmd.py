"""MMD: estimates compared with explicit kernels of every resample, and the table of a dataset."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from scsigmoid.config.schema import Mmd
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embeddings
from scsigmoid.evaluation.mmd import mmd_dataset, mmd_squared, ratio, resample_counts
from scsigmoid.records.measurements import read_measurements
from scsigmoid.seeds import derive

SETTINGS = Mmd(
    resamples=200, confidence=0.95, estimator="unbiased", minimum_cells=10,
    block_cells=16,
)  # fmt: skip
ORDER = ("Mesenchymal", "Cardiac", "Immune")
COUNTS = {"Immune": 25, "B cell": 31, "Mesenchymal": 20, "Cardiac": 18, "Rare": 9}


def samples(n, m, dimensions=5):
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(count, dimensions)).astype(np.float32) for count in (n, m))
    return x, y + np.float32(0.7)


def gaussian(a, b, bandwidth):
    return np.exp(-cdist(a.astype(float), b.astype(float), "sqeuclidean") / (2 * bandwidth))


def bootstrap(x, y, w, v, bandwidth):
    """Compute the kernels of every resample from its cells, including duplicates."""
    unbiased, biased = [], []
    for counts_x, counts_y in zip(w, v, strict=True):
        rows, columns = (np.repeat(np.arange(len(c)), c) for c in (counts_x, counts_y))
        kxx, kyy, kxy = (
            gaussian(a, b, bandwidth)
            for a, b in ((x[rows], x[rows]), (y[columns], y[columns]), (x[rows], y[columns]))
        )
        biased.append(kxx.mean() + kyy.mean() - 2 * kxy.mean())
        # Without pairs of a cell with itself or with its copies.
        is_pair_x, is_pair_y = rows[:, None] != rows, columns[:, None] != columns
        unbiased.append(kxx[is_pair_x].mean() + kyy[is_pair_y].mean() - 2 * kxy.mean())
    return np.array(unbiased), np.array(biased)


@pytest.mark.parametrize("block", [7, 15, 4096])
def test_equals_kernels_recomputed_for_every_resample(block):
    x, y = samples(30, 45, dimensions=20)
    w, v = resample_counts(30, 200, seed=1), resample_counts(45, 200, seed=2)
    estimate = mmd_squared(x, y, w, v, bandwidth=40.0, block=block)
    unbiased, biased = bootstrap(x, y, w, v, 40.0)
    np.testing.assert_allclose(estimate.unbiased, unbiased, atol=1e-13)
    np.testing.assert_allclose(estimate.biased, biased, atol=1e-13)


def test_precision_far_from_the_origin():
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
    # The expected variance is 1 - 1/n. The standard error is below 0.01.
    assert drawn.var() == pytest.approx(1 - 1 / 40, abs=0.03)
    np.testing.assert_array_equal(counts, resample_counts(40, 3000, seed=5))


def run(paths, tmp_path, settings=SETTINGS, seed=42):
    output = tmp_path / "results/metrics/mmd/toy.csv"
    mmd_dataset(paths, "toy", settings, seed, output, order=ORDER)
    return read_measurements(output)


def select(rows, metric, model=None, group=None):
    """Return the rows of a metric, and of a model and a group unless they are None."""
    return [
        row
        for row in rows
        if row.metric == metric and model in (None, row.model) and group in (None, row.group)
    ]


def test_rows(write_pair, tmp_path):
    rows = run(write_pair(COUNTS), tmp_path)
    pairs = [row.group for row in select(rows, "mmd_unbiased", "sigmoid_4k")]
    assert pairs == [f"{a} vs {b}" for a, b in combinations([*ORDER, "B cell"], 2)]
    (small,) = select(rows, "mmd_left_out")
    assert (small.group, small.value) == ("Rare", 9)
    assert all(row.seed == 42 and row.context == 256 for row in rows if row is not small)
    assert {row.source for row in rows} == {
        "embeddings/toy/sigmoid_4k.h5ad embeddings/toy/softmax_4k.h5ad"
    }
    assert all(row.low <= row.value <= row.high for row in select(rows, "mmd_unbiased"))


def roots(x, y, w, v):
    """Return the MMD of the sample and of every resample, by both estimators."""
    s2 = np.median(pdist(np.concatenate([x, y]), "sqeuclidean"))
    return np.sqrt(np.maximum(bootstrap(x, y, w, v, s2), 0))


@pytest.mark.parametrize(("index", "estimator", "seed"), [(0, "unbiased", 42), (1, "biased", 7)])
def test_intervals_use_resamples_shared_by_the_arms(write_pair, tmp_path, index, estimator, seed):
    paths = write_pair({"a": 20, "b": 25, "c": 15})
    rows = run(paths, tmp_path, seed=seed)
    counts = {
        kind: resample_counts(count, 200, derive(seed, "mmd", "toy", kind))
        for kind, count in (("a", 20), ("b", 25), ("c", 15))
    }
    mmds = []  # models x pairs x (1 + resamples)
    for embedding in read_embeddings(paths, "toy").values():
        cells = {kind: embedding.values[embedding.labels == kind].astype(float) for kind in "abc"}
        pairs = (("a", "b"), ("a", "c"), ("b", "c"))
        mmds.append([roots(cells[x], cells[y], counts[x], counts[y])[index] for x, y in pairs])
    sigmoid, softmax = np.array(mmds)
    for metric, group, model, expected in (
        ("", "a vs b", "sigmoid_4k", sigmoid[0]),
        ("", "a vs b", "softmax_4k", softmax[0]),
        ("_ratio", "a vs b", None, sigmoid[0] / softmax[0]),
        ("_difference", "a vs b", None, sigmoid[0] - softmax[0]),
        ("_mean_ratio_of_means", "", None, sigmoid.mean(0) / softmax.mean(0)),
        ("_mean_of_ratios", "", None, (sigmoid / softmax).mean(0)),
    ):
        (row,) = select(rows, f"mmd_{estimator}{metric}", model, group)
        assert row.value == pytest.approx(expected[0], abs=1e-10)
        # The 2.5th percentile of 200 values is between the 5th and the 6th value.
        ordered = np.sort(expected[1:])
        assert row.low == pytest.approx(ordered[4], abs=1e-10)
        assert row.high == pytest.approx(ordered[195], abs=1e-10)
        if model is not None:
            assert (row.n, row.attention) == (45, model.split("_")[0])
            (mean,) = select(rows, f"mmd_{estimator}_bootstrap_mean", model, group)
            assert mean.value == pytest.approx(expected[1:].mean(), abs=1e-10)
            assert (mean.low, mean.high) == (row.low, row.high)
    (row,) = select(rows, f"mmd_{estimator}_bootstrap_mean_ratio_of_means")
    assert row.value == pytest.approx(sigmoid[:, 1:].mean() / softmax[:, 1:].mean(), abs=1e-10)


def test_bandwidth_of_a_large_pair_uses_a_sample(write_arm, tmp_path, monkeypatch):
    """Types are far apart: a sample of a single type would give a tenth of the bandwidth."""
    labels = np.repeat(["a", "b"], 300)
    values = np.random.default_rng(0).normal(size=(600, 3)) + 5 * (labels == "b")[:, None]
    paths = {model: write_arm(model, values, labels) for model in ("sigmoid_4k", "softmax_4k")}

    def estimate():
        rows = run(paths, tmp_path, SETTINGS.model_copy(update={"resamples": 2}))
        (ratio,) = select(rows, "mmd_unbiased_ratio")
        assert ratio.value == 1  # both models use the same cells
        return select(rows, "mmd_unbiased")[0].value

    of_all_cells = estimate()
    monkeypatch.setattr("scsigmoid.evaluation.mmd.BANDWIDTH_CELLS", 200)
    of_sample = estimate()
    assert of_sample == pytest.approx(of_all_cells, rel=0.02)
    assert of_sample != of_all_cells


def test_few_cells_have_no_unbiased_interval(write_pair, tmp_path, capsys):
    """About 22 of 200 resamples of 3 cells contain copies of one cell only, and have no pair."""
    rows = run(
        write_pair({"a": 3, "b": 20, "c": 20}),
        tmp_path,
        SETTINGS.model_copy(update={"minimum_cells": 3}),
    )
    assert capsys.readouterr().err.count("a resample contains copies of one cell only") == 2
    for group in ("a vs b", "a vs c", "b vs c", ""):
        for estimator in ("unbiased", "biased"):
            part = [row for row in rows if row.group == group and f"_{estimator}" in row.metric]
            has_interval = estimator == "biased" or group == "b vs c"
            for row in part:
                assert math.isnan(row.low) == math.isnan(row.high) == (not has_interval), row
            estimates = [row.value for row in part if "bootstrap" not in row.metric]
            assert np.isfinite(estimates).all()


def test_ratio_at_zero():
    ratios = ratio(np.array([1.0, 0.0, 0.0, 3.0]), np.array([2.0, 0.0, 1.0, 0.0]))
    assert ratios.tolist() == [0.5, 1.0, 0.0, np.inf]


def test_invalid_input(write_arm, tmp_path):
    values = np.random.default_rng(0).normal(size=(24, 3))

    def paths(labels, softmax=values):
        arms = {"sigmoid_4k": values, "softmax_4k": softmax}
        return {model: write_arm(model, points, labels) for model, points in arms.items()}

    with pytest.raises(UserError, match="MMD needs two types of at least 10"):
        run(paths(["a"] * 23 + ["b"]), tmp_path)
    with pytest.raises(UserError, match=r"softmax_4k.*a vs b have the same embedding"):
        run(paths(["a"] * 12 + ["b"] * 12, softmax=np.ones((24, 3))), tmp_path)
    assert not (tmp_path / "results" / "metrics" / "mmd" / "toy.csv").exists()
