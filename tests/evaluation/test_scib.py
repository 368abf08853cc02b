"""scIB metrics compared with scikit-learn, and Leiden clusters with igraph."""

import random

import igraph
import numpy as np
import pytest
from scib_metrics import silhouette_label
from scipy.spatial.distance import cdist
from sklearn.metrics import (
    adjusted_rand_score,
    normalized_mutual_info_score,
    silhouette_score,
)
from umap.umap_ import fuzzy_simplicial_set

from scsigmoid.errors import UserError
from scsigmoid.evaluation.neighbours import neighbours_of_dataset, read_neighbours
from scsigmoid.evaluation.scib import aggregate, by_donor, scib
from scsigmoid.measurements import Measurement, read_measurements
from scsigmoid.seeds import derive


@pytest.fixture
def counts(tmp_path):
    """Write a dataset file. The random control does not read its content."""
    path = tmp_path / "results/corpus/evaluation/toy.h5ad"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"counts")
    return path


@pytest.fixture
def folder(write_pair, counts, tmp_path):
    """Neighbours of both arms and a random embedding: 90 cells of three types."""
    output = tmp_path / "results" / "neighbours" / "toy"
    neighbours_of_dataset(
        write_pair({"a": 40, "b": 30, "c": 20}),
        counts,
        neighbours=15,
        variance=0.95,
        controls=["random"],
        seed=42,
        output=output,
    )
    return output


def scored(folder, output, *metrics):
    """The rows of each metric."""
    outputs = {metric: output / metric / "toy.csv" for metric in metrics}
    scib(folder, "toy", 42, outputs)
    return [read_measurements(path) for path in outputs.values()]


def change(folder, **columns):
    for path in folder.glob("*.npz"):
        with np.load(path) as arrays:
            values = dict(arrays)
        np.savez(path, **{**values, **{name: np.array(column) for name, column in columns.items()}})


def test_donors_are_scored_separately(folder, tmp_path):
    random = np.random.default_rng(3)
    donors = random.permutation(np.repeat(["A", "B", "C", "few", "unknown"], [25, 22, 16, 15, 12]))
    labels = read_neighbours(folder, "toy")[0].labels
    change(folder, donors=donors)
    (rows,) = scored(folder, tmp_path, "silhouette_label")
    scores = {(row.model, row.group): row for row in rows}
    assert {group for _, group in scores} == {"", "A", "B", "C"}
    for neighbours in read_neighbours(folder, "toy"):
        for donor, part in by_donor(neighbours):
            own = donors == donor
            points = neighbours.coordinates[own].astype(float)
            expected = (silhouette_score(points, labels[own]) + 1) / 2
            row = scores[neighbours.metadata["model"], donor]
            assert (row.value, row.n) == (pytest.approx(expected, abs=1e-12), own.sum())
            # neighbors within the donor, each cell first
            nearest = np.argsort(cdist(points, points), axis=1)[:, : neighbours.indices.shape[1]]
            np.testing.assert_array_equal(part.indices, nearest)
    a_type = np.where(labels == "c", "C", np.where(donors == "A", "A", "B"))
    for names in (
        np.where(donors == "C", "A", donors),
        np.where(donors == "B", "", donors),
        a_type,
    ):
        change(folder, donors=names)  # fewer than three donors with a score
        (rows,) = scored(folder, tmp_path, "silhouette_label")
        assert {row.group for row in rows} == {""}


@pytest.mark.parametrize("single", [False, True])
def test_silhouette_equals_scikit_learn(folder, tmp_path, monkeypatch, single):
    monkeypatch.setattr("scsigmoid.evaluation.distances.BLOCK", 32)  # of 90 cells
    if single:
        change(folder, labels=["a"] * 45 + ["b"] * 44 + ["the only one"])
    (rows,) = scored(folder, tmp_path, "silhouette_label")
    assert [row.model for row in rows] == ["sigmoid_4k", "softmax_4k", "random"]
    for row, neighbours in zip(rows, read_neighbours(folder, "toy"), strict=True):
        expected = (
            silhouette_score(neighbours.coordinates.astype(float), neighbours.labels) + 1
        ) / 2
        assert row.value == pytest.approx(expected, abs=1e-12)
        if not single:
            library = silhouette_label(neighbours.coordinates, neighbours.labels)
            assert row.value == pytest.approx(float(library), abs=1e-6)
        assert (row.metric, row.n, row.seed) == ("silhouette_label", 90, -1)
    assert single or rows[0].value > rows[1].value > rows[2].value
    assert (rows[0].attention, rows[0].context, rows[2].attention) == ("sigmoid", 256, "")
    assert all(row.simulated for row in rows)
    assert rows[0].source == "embeddings/toy/sigmoid_4k.h5ad"


def test_leiden_equals_igraph_and_scikit_learn(folder, tmp_path):
    scores = scored(folder, tmp_path, "leiden_nmi", "leiden_ari")
    for row_nmi, row_ari, neighbours in zip(*scores, read_neighbours(folder, "toy"), strict=True):
        weights = fuzzy_simplicial_set(
            np.zeros((90, 1)), n_neighbors=15, random_state=None, metric=None,
            knn_indices=neighbours.indices, knn_dists=neighbours.distances,
        )[0].tocoo()  # fmt: skip
        graph = igraph.Graph(zip(weights.row, weights.col, strict=True), n=90, directed=True)
        graph.es["weight"] = weights.data
        graph.to_undirected(mode="each")
        best = (-1.0, 0.0)
        for resolution in np.arange(1, 11) / 5:
            igraph.set_random_number_generator(random.Random(derive(42, "leiden", "toy")))
            clusters = graph.community_leiden(
                "modularity", weights="weight", resolution=resolution
            ).membership
            score = normalized_mutual_info_score(neighbours.labels, clusters)
            if score > best[0]:
                best = (score, adjusted_rand_score(neighbours.labels, clusters))
        assert row_nmi.value == pytest.approx(best[0], abs=1e-9)
        assert row_ari.value == pytest.approx(best[1], abs=1e-9)
        assert (row_nmi.metric, row_ari.metric) == ("leiden_nmi", "leiden_ari")
        assert row_nmi.seed == 42


def test_output_is_independent_of_other_metrics(folder, tmp_path):
    metrics = ("silhouette_label", "leiden_nmi", "leiden_ari")
    scored(folder, tmp_path / "first", *metrics)
    for name in metrics:
        scored(folder, tmp_path / "second", name)
        first, second = (tmp_path / run / name / "toy.csv" for run in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


def test_invalid_input(folder, tmp_path):
    with pytest.raises(UserError, match="contains no neighbors"):
        scored(tmp_path / "absent", tmp_path, "silhouette_label")
    change(folder, labels=["a"] * 90)
    with pytest.raises(UserError, match="all cells are of type 'a'"):
        scored(folder, tmp_path, "leiden_nmi")


def test_aggregate_is_the_mean_of_the_three():
    def score(metric, value, model="sigmoid_4k"):
        return Measurement(dataset="toy", model=model, metric=metric, value=value, n=90, seed=42)

    rows = [
        score("silhouette_label", 0.5),
        score("leiden_nmi", 0.6),
        score("leiden_ari", 0.1),
        score("leiden_nmi", 0.9, "random"),
    ]
    metrics = [row.metric for row in rows[:3]]
    (mean,) = aggregate(rows, metrics)
    assert mean.value == pytest.approx(0.4)
    assert (mean.model, mean.metric, mean.n) == ("sigmoid_4k", "bio_conservation", 90)
    (partial,) = aggregate(rows[3:], ["leiden_nmi"])
    assert partial.value == 0.9
