"""MMD of a dataset: the table that comes out, pairing, independence of pairs, refusals."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from scsigmoid.config.schema import Mmd
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_arms
from scsigmoid.evaluation.mmd import choose_types, mmd_dataset, ratio, resample_counts
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
    found = {(row.metric, row.model) for row in rows if row.group == pairs[0]}
    assert found == {
        (metric, model)
        for e in ("unbiased", "biased")
        for metric, model in (
            (f"mmd_{e}", "sigmoid_4k"),
            (f"mmd_{e}", "softmax_4k"),
            (f"mmd_{e}_bootstrap_mean", "sigmoid_4k"),
            (f"mmd_{e}_bootstrap_mean", "softmax_4k"),
            (f"mmd2_{e}", "sigmoid_4k"),
            (f"mmd2_{e}", "softmax_4k"),
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


def test_points_against_scipy(write_pair, tmp_path):
    paths = write_pair(COUNTS)
    rows = run(paths, tmp_path)
    for model, arm in read_arms(paths).items():
        x, y = (arm.values[arm.labels == kind].astype(float) for kind in ("Immune", "B cell"))
        s2 = np.median(pdist(np.concatenate([x, y]), "sqeuclidean"))
        kxx, kyy, kxy = (
            np.exp(-cdist(a, b, "sqeuclidean") / (2 * s2)) for a, b in ((x, x), (y, y), (x, y))
        )
        n, m = len(x), len(y)
        biased = kxx.mean() + kyy.mean() - 2 * kxy.mean()
        unbiased = (
            (kxx.sum() - n) / (n * (n - 1)) + (kyy.sum() - m) / (m * (m - 1)) - 2 * kxy.mean()
        )
        for name, expected in (("unbiased", unbiased), ("biased", biased)):
            (squared,) = select(rows, f"mmd2_{name}", model, "Immune vs B cell")
            (root,) = select(rows, f"mmd_{name}", model, "Immune vs B cell")
            assert squared.value == pytest.approx(expected, abs=1e-12)
            assert root.value == pytest.approx(np.sqrt(max(expected, 0)), abs=1e-12)
            assert root.low == np.sqrt(max(squared.low, 0))
            assert root.high == np.sqrt(max(squared.high, 0))
            assert (root.n, root.attention, root.simulated) == (56, model.split("_")[0], True)


def test_means_over_pairs(write_pair, tmp_path):
    rows = run(write_pair(COUNTS), tmp_path)
    for e in ("unbiased", "biased"):
        sigmoid, softmax = (
            np.array([row.value for row in select(rows, f"mmd_{e}", model)])
            for model in ("sigmoid_4k", "softmax_4k")
        )
        (of_means,) = select(rows, f"mmd_{e}_mean_ratio_of_means", group="")
        (of_ratios,) = select(rows, f"mmd_{e}_mean_of_ratios", group="")
        assert of_means.value == pytest.approx(sigmoid.mean() / softmax.mean())
        assert of_ratios.value == pytest.approx((sigmoid / softmax).mean())
        assert of_means.low < of_means.value < of_means.high
        assert of_means.n == 6
        (mean,) = select(rows, f"mmd_{e}_mean", "softmax_4k")
        assert mean.value == pytest.approx(softmax.mean())


def bootstrap(x, y, w, v):
    """MMD (U statistic, copies left out) of the sample and of every resample, cell by cell."""
    s2 = np.median(pdist(np.concatenate([x, y]), "sqeuclidean"))
    found = []
    for counts_x, counts_y in zip(w, v, strict=True):
        rows, columns = (np.repeat(np.arange(len(c)), c) for c in (counts_x, counts_y))
        kxx, kyy, kxy = (
            np.exp(-cdist(a, b, "sqeuclidean") / (2 * s2))
            for a, b in ((x[rows], x[rows]), (y[columns], y[columns]), (x[rows], y[columns]))
        )
        within = (kernel[of[:, None] != of].mean() for kernel, of in ((kxx, rows), (kyy, columns)))
        found.append(np.sqrt(max(sum(within) - 2 * kxy.mean(), 0)))
    return np.array(found)


def test_intervals_are_of_resamples_that_the_arms_share(write_pair, tmp_path):
    paths = write_pair({"a": 20, "b": 25, "c": 15})
    rows = run(paths, tmp_path)
    w, v, u = (
        resample_counts(count, 200, derive(42, "mmd", "toy", kind))
        for kind, count in (("a", 20), ("b", 25), ("c", 15))
    )
    drawn = {}
    for model, arm in read_arms(paths).items():
        cells = [arm.values[arm.labels == kind].astype(float) for kind in "abc"]
        of = dict(zip("abc", zip(cells, (w, v, u), strict=True), strict=True))
        drawn[model] = {
            f"{one} vs {two}": bootstrap(of[one][0], of[two][0], of[one][1], of[two][1])
            for one, two in (("a", "b"), ("a", "c"), ("b", "c"))
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
    everything = run(paths, tmp_path)
    chosen = {}
    for model, arm in read_arms(paths).items():
        kept = np.isin(arm.labels, ["Immune", "Cardiac"])
        chosen[model] = write_arm(
            model, arm.values[kept], arm.labels[kept], arm.cells[kept], dataset="few"
        )
    alone = run(chosen, tmp_path, name="few")
    group = "Cardiac vs Immune"
    numbers = [
        [
            (row.metric, row.model, row.value, row.low, row.high)
            for row in rows
            if row.group == group
        ]
        for rows in (everything, alone)
    ]
    assert len(numbers[0]) == 16
    assert numbers[0] == numbers[1]


def test_the_same_bytes_again_and_other_resamples_with_another_seed(write_pair, tmp_path):
    paths = write_pair(COUNTS)
    first = run(paths, tmp_path, name="first")
    second = run(paths, tmp_path, name="second")
    other = run(paths, tmp_path, seed=43, name="other")
    folder = tmp_path / "results" / "metrics" / "mmd"
    assert (folder / "first.csv").read_bytes() == (folder / "second.csv").read_bytes()
    points = [
        [row.value for row in rows if "bootstrap" not in row.metric] for rows in (first, other)
    ]
    assert points[0] == points[1]
    assert [row.low for row in second] != [row.low for row in other]


def test_ratio_at_zero():
    found = ratio(np.array([1.0, 0.0, 0.0, 3.0]), np.array([2.0, 0.0, 1.0, 0.0]))
    assert found.tolist() == [0.5, 1.0, 0.0, np.inf]


def test_order_of_types():
    labels = np.repeat(["zebra", "Adult immune", "Immune", "alpha"], [3, 3, 3, 1])
    assert choose_types(labels, 2, ["Immune"]) == (
        ["Immune", "Adult immune", "zebra"],
        {"alpha": 1},
    )


def test_refusals(write_arm, tmp_path):
    random = np.random.default_rng(0)
    values = random.normal(size=(24, 3))

    def paths(labels, sigmoid=values, softmax=values):
        return {
            "sigmoid_4k": write_arm("sigmoid_4k", sigmoid, labels),
            "softmax_4k": write_arm("softmax_4k", softmax, labels),
        }

    with pytest.raises(UserError, match="1 cell types have at least 10 cells"):
        run(paths(["a"] * 24), tmp_path)
    with pytest.raises(UserError, match="1 cell types have at least 10 cells"):
        run(paths(["a"] * 23 + ["b"]), tmp_path)
    with pytest.raises(UserError, match=r"softmax_4k.*a vs b have the same embedding"):
        run(paths(["a"] * 12 + ["b"] * 12, softmax=np.ones((24, 3))), tmp_path)
    broken = values.copy()
    broken[3, 1] = np.nan
    with pytest.raises(UserError, match="NaN"):
        run(paths(["a"] * 12 + ["b"] * 12, softmax=broken), tmp_path)
    present = paths(["a"] * 12 + ["b"] * 12)
    with pytest.raises(UserError, match="no such embedding"):
        run({**present, "softmax_4k": tmp_path / "absent.h5ad"}, tmp_path)
    assert not (tmp_path / "results" / "metrics" / "mmd" / "toy.csv").exists()
