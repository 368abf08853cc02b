"""MMD: estimates compared with explicit kernels of every resample, and the table of a dataset."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist

from scsigmoid.config.schema import Mmd
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_arms
from scsigmoid.evaluation.mmd import (
    choose_types,
    median_squared_distance,
    mmd_dataset,
    mmd_squared,
    ratio,
    resample_counts,
)
from scsigmoid.measurements import read_measurements
from scsigmoid.seeds import derive

SETTINGS = Mmd(
    datasets=None,
    resamples=200,
    confidence=0.95,
    estimator="unbiased",
    minimum_cells=10,
    block_cells=16,
)
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
        # of the same cell: itself and its copies
        other_x, other_y = rows[:, None] != rows, columns[:, None] != columns
        biased.append(kxx.mean() + kyy.mean() - 2 * kxy.mean())
        unbiased.append(kxx[other_x].mean() + kyy[other_y].mean() - 2 * kxy.mean())
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
    # variance 1 - 1/n; its standard error here is below 0.01
    assert drawn.var() == pytest.approx(1 - 1 / 40, abs=0.03)
    np.testing.assert_array_equal(counts, resample_counts(40, 3000, seed=5))


@pytest.mark.parametrize("count", [7, 8, 9])
def test_median_heuristic(count):
    values = np.random.default_rng(count).normal(size=(count, 4))
    expected = np.median(pdist(values, "sqeuclidean"))
    median = median_squared_distance(torch.from_numpy(values))
    assert median == pytest.approx(expected, rel=1e-12)


def run(paths, tmp_path, settings=SETTINGS, seed=42, name="toy"):
    output = tmp_path / "results" / "metrics" / "mmd" / f"{name}.csv"
    mmd_dataset(paths, "toy", settings, seed, output, order=ORDER)
    return read_measurements(output)


def select(rows, metric, model=None, group=None):
    return [
        row
        for row in rows
        if row.metric == metric and model in (None, row.model) and group in (None, row.group)
    ]


def test_rows(write_pair, tmp_path):
    rows = run(write_pair(COUNTS), tmp_path)
    pairs = [row.group for row in select(rows, "mmd_unbiased", "sigmoid_4k")]
    assert pairs == [
        "Mesenchymal vs Cardiac",
        "Mesenchymal vs Immune",
        "Mesenchymal vs B cell",
        "Cardiac vs Immune",
        "Cardiac vs B cell",
        "Immune vs B cell",
    ]
    both = "sigmoid_4k / softmax_4k"
    metrics = {(row.metric, row.model) for row in rows if row.group == pairs[0]}
    assert metrics == {
        (metric, model)
        for e in ("unbiased", "biased")
        for metric, model in (
            (f"mmd_{e}", "sigmoid_4k"),
            (f"mmd_{e}", "softmax_4k"),
            (f"mmd_{e}_bootstrap_mean", "sigmoid_4k"),
            (f"mmd_{e}_bootstrap_mean", "softmax_4k"),
            (f"mmd_{e}_ratio", both),
            (f"mmd_{e}_difference", "sigmoid_4k - softmax_4k"),
        )
    }
    (small,) = select(rows, "mmd_left_out")
    assert (small.group, small.value) == ("Rare", 9)
    assert all(row.seed == 42 and row.context == 256 for row in rows if row is not small)
    assert {row.source for row in rows} == {
        "embeddings/toy/sigmoid_4k.h5ad embeddings/toy/softmax_4k.h5ad"
    }
    assert all(row.low <= row.value <= row.high for row in select(rows, "mmd_unbiased"))


def test_points_of_a_pair(write_pair, tmp_path):
    paths = write_pair(COUNTS)
    rows = run(paths, tmp_path)
    for model, arm in read_arms(paths, "toy").items():
        x, y = (arm.values[arm.labels == kind].astype(float) for kind in ("Immune", "B cell"))
        s2 = np.median(pdist(np.concatenate([x, y]), "sqeuclidean"))
        ones = (np.ones((1, len(cells)), dtype=int) for cells in (x, y))
        for name, (expected,) in zip(
            ("unbiased", "biased"), bootstrap(x, y, *ones, s2), strict=True
        ):
            (root,) = select(rows, f"mmd_{name}", model, "Immune vs B cell")
            assert root.value == pytest.approx(np.sqrt(max(expected, 0)), abs=1e-12)
            assert (root.n, root.attention, root.simulated) == (56, model.split("_")[0], True)


def roots(x, y, w, v):
    """MMD of the sample and of every resample."""
    s2 = np.median(pdist(np.concatenate([x, y]), "sqeuclidean"))
    return np.sqrt(np.maximum(bootstrap(x, y, w, v, s2)[0], 0))


def test_intervals_use_resamples_shared_by_the_arms(write_pair, tmp_path):
    paths = write_pair({"a": 20, "b": 25, "c": 15})
    rows = run(paths, tmp_path)
    w, v, u = (
        resample_counts(count, 200, derive(42, "mmd", "toy", kind))
        for kind, count in (("a", 20), ("b", 25), ("c", 15))
    )
    drawn = {}
    for model, arm in read_arms(paths, "toy").items():
        cells = [arm.values[arm.labels == kind].astype(float) for kind in "abc"]
        of = dict(zip("abc", zip(cells, (w, v, u), strict=True), strict=True))
        drawn[model] = {
            f"{x} vs {y}": roots(of[x][0], of[y][0], of[x][1], of[y][1])
            for x, y in (("a", "b"), ("a", "c"), ("b", "c"))
        }
    sigmoid, softmax = (drawn[model]["a vs b"] for model in ("sigmoid_4k", "softmax_4k"))
    ours, theirs = (np.stack(list(drawn[model].values())) for model in drawn)
    for metric, group, expected in (
        ("mmd_unbiased_ratio", "a vs b", sigmoid / softmax),
        ("mmd_unbiased_difference", "a vs b", sigmoid - softmax),
        ("mmd_unbiased_mean_ratio_of_means", "", ours.mean(0) / theirs.mean(0)),
        ("mmd_unbiased_mean_of_ratios", "", (ours / theirs).mean(0)),
    ):
        (row,) = select(rows, metric, group=group)
        assert row.value == pytest.approx(expected[0], abs=1e-10)
        # Of 200 the 2.5th percentile lies between the 5th and the 6th.
        ordered = np.sort(expected[1:])
        assert row.low == pytest.approx(ordered[4], abs=1e-10)
        assert row.high == pytest.approx(ordered[195], abs=1e-10)
    for model, expected in (("sigmoid_4k", sigmoid), ("softmax_4k", softmax)):
        (row,) = select(rows, "mmd_unbiased_bootstrap_mean", model, "a vs b")
        (point,) = select(rows, "mmd_unbiased", model, "a vs b")
        assert row.value == pytest.approx(expected[1:].mean(), abs=1e-10)
        assert (row.low, row.high) == (point.low, point.high)
    (row,) = select(rows, "mmd_unbiased_bootstrap_mean_ratio_of_means")
    assert row.value == pytest.approx(ours[:, 1:].mean() / theirs[:, 1:].mean(), abs=1e-10)


def test_equal_arms_have_ratio_1_and_difference_0_without_spread(write_arm, tmp_path):
    random = np.random.default_rng(0)
    labels = ["a"] * 12 + ["b"] * 15
    values = random.normal(size=(27, 3)) + (np.array(labels) == "b")[:, None]
    paths = {model: write_arm(model, values, labels) for model in ("sigmoid_4k", "softmax_4k")}
    rows = run(paths, tmp_path)
    for metric, expected in (("ratio", 1.0), ("difference", 0.0), ("mean_of_ratios", 1.0)):
        (row,) = select(rows, f"mmd_unbiased_{metric}")
        assert (row.value, row.low, row.high) == (expected, expected, expected)


def test_a_pair_does_not_depend_on_the_other_pairs(write_pair, write_arm, tmp_path):
    paths = write_pair(COUNTS)
    chosen = {}
    for model, arm in read_arms(paths, "toy").items():
        kept = np.isin(arm.labels, ["Immune", "Cardiac"])
        parts = (part[kept] for part in (arm.values, arm.labels, arm.cells))
        chosen[model] = write_arm(model, *parts, folder="few")
    everything, alone = (
        [replace(row, source="") for row in run(of, tmp_path) if row.group == "Cardiac vs Immune"]
        for of in (paths, chosen)
    )
    assert len(alone) == 12
    assert everything == alone


def test_bandwidth_of_a_large_pair_uses_a_sample(write_arm, tmp_path, monkeypatch):
    """Types are far apart: a sample of a single type would give a tenth of the bandwidth."""
    labels = np.repeat(["a", "b"], 300)
    values = np.random.default_rng(0).normal(size=(600, 3)) + 5 * (labels == "b")[:, None]
    paths = {model: write_arm(model, values, labels) for model in ("sigmoid_4k", "softmax_4k")}

    def point():
        rows = run(paths, tmp_path, replace(SETTINGS, resamples=2))
        (ratio,) = select(rows, "mmd_unbiased_ratio")
        assert ratio.value == 1  # both arms take the same cells
        return select(rows, "mmd_unbiased")[0].value

    whole = point()
    monkeypatch.setattr("scsigmoid.evaluation.mmd.BANDWIDTH_CELLS", 200)
    some = point()
    assert some == pytest.approx(whole, rel=0.02)
    assert some != whole


def test_resamples_depend_only_on_the_seed(write_pair, tmp_path):
    paths = write_pair(COUNTS)
    first, second, other = (run(paths, tmp_path, seed=seed) for seed in (42, 42, 43))
    assert list(map(repr, first)) == list(map(repr, second))
    points = [
        [row.value for row in rows if "bootstrap" not in row.metric] for rows in (first, other)
    ]
    assert points[0] == points[1]
    assert [row.low for row in first] != [row.low for row in other]


def test_few_cells_have_no_unbiased_interval(write_pair, tmp_path, capsys):
    """About 22 of 200 resamples of 3 cells repeat a single cell, and have no pair."""
    rows = run(write_pair({"a": 3, "b": 20, "c": 20}), tmp_path, replace(SETTINGS, minimum_cells=3))
    assert capsys.readouterr().err.count("a resample has only one cell") == 2
    for group, whole in (("a vs b", False), ("a vs c", False), ("b vs c", True), ("", False)):
        for estimator in ("unbiased", "biased"):
            of = [row for row in rows if row.group == group and f"_{estimator}" in row.metric]
            lacking = [math.isnan(row.low) and math.isnan(row.high) for row in of]
            assert lacking == [estimator == "unbiased" and not whole] * len(of), (group, estimator)
            points = [row.value for row in of if "bootstrap" not in row.metric]
            assert np.isfinite(points).all()


def test_ratio_at_zero():
    ratios = ratio(np.array([1.0, 0.0, 0.0, 3.0]), np.array([2.0, 0.0, 1.0, 0.0]))
    assert ratios.tolist() == [0.5, 1.0, 0.0, np.inf]


def test_order_of_types():
    labels = np.repeat(["zebra", "Adult immune", "Immune", "alpha"], [3, 3, 3, 1])
    assert choose_types(labels, 3, ["Immune"]) == (
        ["Immune", "Adult immune", "zebra"],
        {"alpha": 1},
    )


def test_invalid_input(write_arm, tmp_path):
    random = np.random.default_rng(0)
    values = random.normal(size=(24, 3))

    def paths(labels, softmax=values):
        arms = {"sigmoid_4k": values, "softmax_4k": softmax}
        return {model: write_arm(model, points, labels) for model, points in arms.items()}

    with pytest.raises(UserError, match="MMD needs two types of at least 10"):
        run(paths(["a"] * 23 + ["b"]), tmp_path)
    with pytest.raises(UserError, match=r"softmax_4k.*a vs b have the same embedding"):
        run(paths(["a"] * 12 + ["b"] * 12, softmax=np.ones((24, 3))), tmp_path)
    assert not (tmp_path / "results" / "metrics" / "mmd" / "toy.csv").exists()
