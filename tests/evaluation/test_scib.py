"""scIB metrics compared with scib-metrics and scikit-learn, and Leiden clusters with igraph."""

import random
from dataclasses import replace
from itertools import combinations

import igraph
import numpy as np
import pytest
from scib_metrics import silhouette_label
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.stats import entropy, sem
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    adjusted_rand_score,
    balanced_accuracy_score,
    normalized_mutual_info_score,
    silhouette_score,
)
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from umap.umap_ import fuzzy_simplicial_set

from scsigmoid.config.schema import Scib
from scsigmoid.errors import UserError
from scsigmoid.evaluation.neighbors import find_neighbors, nearest_cells
from scsigmoid.evaluation.scib import connectivity, ilisi, scib, silhouette, split_by_donor
from scsigmoid.records.measurements import read_measurements
from scsigmoid.seeds import derive

SETTINGS = Scib(metrics=["leiden_nmi"], neighbors=15, variance=0.95, controls=["random"])


@pytest.fixture
def counts(tmp_path):
    """Write a dataset file. The random control does not read its content."""
    path = tmp_path / "results/corpus/evaluation/toy.h5ad"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"counts")
    return path


@pytest.fixture
def pair(write_pair, counts):
    """Embeddings by both models: 90 cells of three types and three donors."""
    return write_pair({"a": 40, "b": 30, "c": 20})


@pytest.fixture
def representations(pair, counts):
    return list(find_neighbors(pair, counts, SETTINGS, 42))


def scored(pair, counts, folder, *metrics, **options):
    """Score the embeddings and return a list of rows for each metric."""
    outputs = {metric: folder / metric / "toy.csv" for metric in metrics}
    scib(pair, counts, SETTINGS, 42, outputs, **options)
    return [read_measurements(path) for path in outputs.values()]


def test_donors_are_scored_separately(pair, counts, representations, tmp_path):
    (rows,) = scored(pair, counts, tmp_path / "results/metrics", "silhouette_label", donors=True)
    scores = {(row.model, row.group): row for row in rows}
    assert {group for _, group in scores} == {"", "donor 0", "donor 1", "donor 2"}
    for neighbors in representations:
        for donor, part in split_by_donor(neighbors):
            own = neighbors.donors == donor
            points = neighbors.coordinates[own].astype(float)
            expected = (silhouette_score(points, neighbors.labels[own]) + 1) / 2
            row = scores[neighbors.metadata["model"], donor]
            assert (row.value, row.n) == (pytest.approx(expected, abs=1e-12), 30)
            # Neighbors are cells of the donor. Each cell is its own first neighbor.
            nearest = np.argsort(cdist(points, points), axis=1)[:, :15]
            np.testing.assert_array_equal(part.indices, nearest)


def test_differences_of_logistic_accuracy_over_splits(pair, counts, representations, tmp_path):
    """The scores of the folds, and the interval by the formula of Nadeau and Bengio."""
    (rows,) = scored(pair, counts, tmp_path / "results/metrics", "logistic")
    types = np.unique(representations[0].labels, return_inverse=True)[1]
    seed = derive(42, "logistic", "toy")
    folds = StratifiedKFold(5, shuffle=True, random_state=derive(seed, "probe") % 2**32)
    accuracies = {}
    for part in representations:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=0.1))
        accuracies[part.metadata["model"]] = np.array(
            [
                balanced_accuracy_score(
                    types[test],
                    classifier.fit(part.values[train], types[train]).predict(part.values[test]),
                )
                for train, test in folds.split(part.values, types)
            ]
        )
    differences = [row for row in rows if row.compared_with]
    assert [(row.model, row.compared_with) for row in differences] == [*combinations(accuracies, 2)]
    for row in differences:
        values = accuracies[row.model] - accuracies[row.compared_with]
        half = student.ppf(0.975, 4) * np.sqrt((1 / 5 + 1 / 4) * values.var(ddof=1))
        assert row.value == pytest.approx(values.mean())
        assert (row.low, row.high) == pytest.approx((values.mean() - half, values.mean() + half))


@pytest.mark.parametrize(
    ("sizes", "scored_donors"),
    [
        ({"A": 25, "B": 22, "C": 16, "few": 15, "unknown": 12}, ["A", "B", "C"]),
        ({"A": 41, "B": 22, "few": 15, "unknown": 12}, []),
        ({"A": 25, "": 22, "C": 16, "few": 15, "unknown": 12}, []),
    ],
)
def test_donors_with_enough_cells(representations, sizes, scored_donors):
    donors = np.random.default_rng(3).permutation(np.repeat(list(sizes), list(sizes.values())))
    changed = replace(representations[0], donors=donors)
    assert [donor for donor, _ in split_by_donor(changed)] == scored_donors


def test_donors_with_one_type(representations):
    """Fewer than three donors have more than one type."""
    labels = representations[0].labels
    donors = np.where(labels == "c", "C", np.arange(len(labels)) % 2)
    assert not list(split_by_donor(replace(representations[0], donors=donors)))


def test_silhouette_equals_scib_metrics(pair, counts, representations, tmp_path):
    (rows,) = scored(pair, counts, tmp_path / "results/metrics", "silhouette_label")
    assert {row.group for row in rows} == {""}
    assert [row.model for row in rows] == ["sigmoid_4k", "softmax_4k", "random"]
    for row, neighbors in zip(rows, representations, strict=True):
        library = silhouette_label(neighbors.coordinates, neighbors.labels)
        assert row.value == pytest.approx(float(library), abs=1e-6)
        assert (row.metric, row.n, row.seed) == ("silhouette_label", 90, -1)
        distinct = replace(neighbors, labels=np.arange(90).astype(str))
        assert silhouette(distinct, 0) == {"silhouette_label": 0.5}
    assert rows[0].value > rows[1].value > rows[2].value
    assert (rows[0].attention, rows[0].context, rows[2].attention) == ("sigmoid", 256, "")
    sources = ("embeddings/toy/sigmoid_4k.h5ad", "corpus/evaluation/toy.h5ad")
    assert (rows[0].source, rows[2].source) == sources


def test_leiden_equals_igraph_and_scikit_learn(pair, counts, representations, tmp_path):
    scores = scored(pair, counts, tmp_path, "leiden_nmi", "leiden_ari")
    for row_nmi, row_ari, neighbors in zip(*scores, representations, strict=True):
        weights = fuzzy_simplicial_set(
            np.zeros((90, 1)), n_neighbors=15, random_state=None, metric=None,
            knn_indices=neighbors.indices, knn_dists=neighbors.distances,
        )[0].tocoo()  # fmt: skip
        graph = igraph.Graph(zip(weights.row, weights.col, strict=True), n=90, directed=True)
        graph.es["weight"] = weights.data
        graph.to_undirected(mode="each")
        first_seed = derive(42, "leiden", "toy")
        best_scores = []  # of each seed: the NMI and ARI of the clusters with the highest NMI
        for seed in [first_seed, *(derive(first_seed, number) for number in range(1, 5))]:
            best = (-1.0, 0.0)
            for resolution in np.arange(1, 11) / 5:
                igraph.set_random_number_generator(random.Random(seed))
                clusters = graph.community_leiden(
                    "modularity", weights="weight", resolution=resolution
                ).membership
                score = normalized_mutual_info_score(neighbors.labels, clusters)
                if score > best[0]:
                    best = (score, adjusted_rand_score(neighbors.labels, clusters))
            best_scores.append(best)
        for row, scores_of_seeds in zip((row_nmi, row_ari), np.array(best_scores).T, strict=True):
            assert row.value == pytest.approx(scores_of_seeds.mean(), abs=1e-9)
            ends = student.interval(0.95, 4, loc=row.value, scale=sem(scores_of_seeds))
            assert np.ptp(scores_of_seeds) == 0 or (row.low, row.high) == pytest.approx(ends)
        assert (row_nmi.metric, row_ari.metric) == ("leiden_nmi", "leiden_ari")
        assert row_nmi.seed == 42


def test_output_is_reproducible_and_independent_of_other_metrics(pair, counts, tmp_path):
    metrics = ("silhouette_label", "leiden_nmi", "leiden_ari")
    scored(pair, counts, tmp_path / "first", *metrics)
    for name in metrics:
        scored(pair, counts, tmp_path / "second", name)
        first, second = (tmp_path / run / name / "toy.csv" for run in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


def effective_numbers(points, batches, neighbors):
    """Return Simpson's effective number of batches near each cell, in float64.

    Weights are exp(-beta * distance) with the perplexity ``neighbors // 3``, as in LISI.
    """
    distances = cdist(points, points)
    numbers = []
    for cell, order in enumerate(np.argsort(distances, axis=1, kind="stable")[:, :neighbors]):
        near = order[order != cell]

        def weights(beta, cell=cell, near=near):
            values = np.exp(-beta * (distances[cell, near] - distances[cell, near].min()))
            return values / values.sum()

        def excess(beta, weights=weights):
            return entropy(weights(beta)) - np.log(neighbors // 3)

        shares = weights(brentq(excess, 1e-6, 1e3))
        numbers.append(1 / sum(shares[batches[near] == name].sum() ** 2 for name in set(batches)))
    return np.array(numbers)


def test_ilisi_equals_its_formula(write_pair, counts, tmp_path):
    pair = write_pair({"a": 50, "b": 40, "c": 30})
    options = {"donors": True, "batch": "donor_id"}
    (rows,) = scored(pair, counts, tmp_path / "results/metrics", "ilisi", **options)
    representations = list(find_neighbors(pair, counts, SETTINGS, 42, "donor_id"))
    assert [row.model for row in rows] == [item.metadata["model"] for item in representations]
    assert {row.group for row in rows} == {""}  # not by donor
    for row, cells in zip(rows, representations, strict=True):
        numbers = effective_numbers(cells.coordinates.astype(float), cells.donors, 90)
        assert row.value == pytest.approx((np.median(numbers) - 1) / 2, abs=0.02)


def clumps(representation, batches):
    """Return a type in two distant clumps, one for each batch, and a type in one clump."""
    points = np.random.default_rng(0).normal(size=(90, 2)).astype(np.float32)
    points[:30] += 100
    points[60:] -= 100
    indices, distances = nearest_cells(points, 15)
    labels = np.repeat(["a", "b"], [60, 30])
    return replace(
        representation, coordinates=points, indices=indices, distances=distances, labels=labels,
        batches=batches,
    )  # fmt: skip


def test_separate_and_mixed_batches(representations):
    order = np.repeat(["x", "y", "x"], 30)
    separate = clumps(representations[0], order)
    # Half of the cells of type a are connected, and all cells of type b.
    assert connectivity(separate, 0) == {"graph_connectivity": pytest.approx((0.5 + 1) / 2)}
    assert ilisi(clumps(representations[0], np.tile(["x", "y"], 45)), 0)["ilisi"] > 0.9
    # The 30 nearest of 31 cells of a clump with a batch of its own.
    near = replace(separate, coordinates=separate.coordinates * 100)
    assert ilisi(near, 0)["ilisi"] < 0.1


def test_cells_without_a_batch_are_left_out(representations, capfd):
    batches = np.tile(["x", "y", ""], 30)
    cells = clumps(representations[0], batches)
    is_known = batches != ""
    fields = ("coordinates", "labels", "batches")
    known = replace(cells, **{field: getattr(cells, field)[is_known] for field in fields})
    assert ilisi(cells, 0) == ilisi(known, 0)
    assert "30 cells without a batch are left out" in capfd.readouterr().err


@pytest.mark.parametrize("batches", [np.array([]), np.array([""] * 90), np.array(["x"] * 90)])
def test_fewer_than_two_batches_have_no_score(representations, batches):
    cells = replace(representations[0], batches=batches.astype(str))
    assert ilisi(cells, 0) == connectivity(cells, 0) == {}


def test_a_metric_without_a_score_has_a_file(write_pair, counts, tmp_path):
    """The file had no rows, so that the table of scores stopped: it was "damaged"."""
    pair = write_pair({"a": 9, "b": 9, "c": 9})
    for rows in scored(pair, counts, tmp_path / "results/metrics", "logistic", "ilisi"):
        assert [row.model for row in rows] == ["sigmoid_4k", "softmax_4k", "random"]
        assert np.isnan([row.value for row in rows]).all()


def test_a_missing_column_of_batches(pair, counts):
    with pytest.raises(UserError, match="no column 'plate'"):
        list(find_neighbors(pair, counts, SETTINGS, 42, "plate"))


def test_cells_of_types_that_are_left_out_are_not_counted(write_pair, counts, tmp_path):
    """The number of cells of logistic regression was the number of all cells."""
    pair = write_pair({"a": 30, "b": 30, "c": 9})
    folder = tmp_path / "results/metrics"
    for metric, cells in (("logistic", 60), ("silhouette_label", 69)):
        (rows,) = scored(pair, counts, folder, metric)
        assert {row.n for row in rows} == {cells}
