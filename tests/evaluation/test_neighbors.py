"""PCA and neighbors compared with numpy.linalg and full distance matrices."""

import numpy as np
import pytest
from evaluation.conftest import VOCABULARY
from scipy.spatial.distance import cdist, pdist

from scsigmoid.config.schema import Scib
from scsigmoid.corpus.h5ad_writer import CellTable, write_cells
from scsigmoid.errors import UserError
from scsigmoid.evaluation.neighbors import (
    find_neighbors,
    log_count_components,
    nearest_cells,
    principal_components,
    variable_log_counts,
)


def write_dataset(folder, cells=40, genes=30):
    """Write an evaluation dataset. Return its path and counts."""
    counts = np.random.default_rng(3).poisson(3, size=(cells, genes)) + 1
    path = folder / "results/corpus/evaluation/toy.h5ad"
    names = [f"ENSG{number:011d}" for number in range(genes)]
    obs = {"cell_type": ["a", "b"] * (cells // 2)}
    write_cells(path, CellTable(counts, names, names, obs, "toy"))
    return path, counts


@pytest.fixture
def dataset(tmp_path):
    return write_dataset(tmp_path)


def run(paths, cells, **changes):
    settings = {"neighbors": 5, "variance": 0.95, "controls": ["random", "pca_log_counts"]}
    scib = Scib(metrics=["leiden_nmi"], **{**settings, **changes})
    return list(find_neighbors(paths, cells, scib, 42))


def test_pca_has_the_fewest_components_for_the_variance():
    random = np.random.default_rng(0)
    values = (random.normal(size=(200, 12)) * np.linspace(5, 0.1, 12)).astype(np.float32)
    components = principal_components(values, 0.95, "x")
    centered = values.astype(float) - values.mean(0, dtype=float)
    eigenvalues = np.linalg.eigvalsh(centered.T @ centered)[::-1]
    shares = np.cumsum(eigenvalues) / eigenvalues.sum()
    count = int(np.argmax(shares >= 0.95)) + 1
    assert components.shape == (200, count)
    explained = components.var(0).sum() / values.var(0).sum()
    assert explained == pytest.approx(shares[count - 1], abs=1e-5)
    # With all components, PCA is a rotation: distances do not change.
    full = principal_components(values, 1 - 1e-12, "x")
    np.testing.assert_allclose(pdist(full), pdist(values), atol=1e-4)


def test_nearest_equals_a_sort_of_all_distances():
    values = np.random.default_rng(1).normal(size=(60, 8)).astype(np.float32)
    indices, distances = nearest_cells(values, 7)
    full = cdist(values, values)
    np.testing.assert_array_equal(indices, np.argsort(full, axis=1)[:, :7])
    np.testing.assert_allclose(distances, np.sort(full, axis=1)[:, :7], atol=1e-6)


def test_cell_is_its_own_first_neighbor_among_duplicates():
    values = np.zeros((6, 2), dtype=np.float32)
    values[4:] = [[1, 0], [0, 2]]
    indices, distances = nearest_cells(values, 3)
    assert indices[:, 0].tolist() == list(range(6))
    assert (distances[:4] == 0).all()
    assert all(len(set(row)) == 3 for row in indices.tolist())


@pytest.mark.parametrize("kept", [30, 6])
def test_log_counts_control_uses_the_most_variable_genes(tmp_path, monkeypatch, kept):
    path, counts = write_dataset(tmp_path, cells=180)
    monkeypatch.setattr("scsigmoid.evaluation.neighbors.VARIABLE_GENES", kept)
    rows = np.arange(180)[::-1][:175]
    components = log_count_components(path, rows)
    values = np.log1p(counts / counts.sum(1, keepdims=True) * 10_000)
    expected = values[rows][:, np.argsort(values.var(0))[-kept:]]
    # All components are kept, so distances do not change.
    assert components.shape == (175, kept)
    np.testing.assert_allclose(pdist(components), pdist(expected), atol=1e-8)


def test_variable_genes_control_has_the_log_counts(dataset, monkeypatch):
    path, counts = dataset
    monkeypatch.setattr("scsigmoid.evaluation.neighbors.VARIABLE_GENES", 6)
    values = np.log1p(counts / counts.sum(1, keepdims=True) * 10_000)
    expected = values[[7, 2, 30]][:, np.sort(np.argsort(values.var(0))[-6:])]
    np.testing.assert_allclose(variable_log_counts(path, np.array([7, 2, 30])), expected)


def test_log_counts_control_has_the_first_fifty_components(tmp_path):
    path, counts = write_dataset(tmp_path, 250, 70)
    values = np.log1p(counts / counts.sum(1, keepdims=True) * 10_000)
    left, scale, _ = np.linalg.svd(values - values.mean(0), full_matrices=False)
    components = log_count_components(path, np.arange(250))
    np.testing.assert_allclose(pdist(components), pdist((left * scale)[:, :50]), atol=1e-8)


def test_all_representations_in_order(write_pair, dataset):
    paths = write_pair({"a": 20, "b": 20})
    path, _ = dataset
    representations = run(paths, path)
    names = [*paths, "random", "pca_log_counts"]
    assert [part.source for part in representations] == [*paths.values(), path, path]
    common = {"vocabulary": VOCABULARY}
    models = [{"attention": name, "context": 256} for name in ("sigmoid", "softmax")]
    controls = [{"attention": "", "context": 0}] * 2
    for neighbors, name, expected in zip(representations, names, models + controls, strict=True):
        assert neighbors.metadata == {"model": name, **expected, **common}
        assert neighbors.indices.shape == neighbors.distances.shape == (40, 5)
        assert (neighbors.indices.dtype, neighbors.distances.dtype) == (np.int32, np.float32)
        assert sorted(neighbors.labels) == ["a"] * 20 + ["b"] * 20
        assert neighbors.donors.tolist() == [f"donor {row % 3}" for row in range(40)]


def test_invalid_input(write_pair, dataset, tmp_path):
    path, _ = dataset
    with pytest.raises(UserError, match="x: all 5 cells have the same values"):
        principal_components(np.ones((5, 3)), 0.95, "x")
    paths = write_pair({"a": 20, "b": 20})
    with pytest.raises(UserError, match=r"40 of 40 .* too few: .* more than 40 cells"):
        run(paths, path, neighbors=40)
    with pytest.raises(UserError, match="no such file"):
        run(paths, tmp_path / "toy.h5ad")
    with pytest.raises(UserError, match=r"1 types; .* scIB needs two types"):
        run(write_pair({"a": 40}), path)
