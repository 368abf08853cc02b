"""PCA coordinates and nearest neighbors of every representation of a dataset, for scIB metrics.

Representations are the embeddings of the compared models, and controls: ``random`` (independent
normal values), ``variable_genes`` (log counts of the most variable genes) and ``pca_log_counts``
(principal components of these), without a model. The control ``initial`` has an embedding file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from scsigmoid.config.schema import Scib
from scsigmoid.corpus.cell_types import check_enough
from scsigmoid.corpus.counts import log_normalized
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import Embedding, read_embeddings
from scsigmoid.progress import log
from scsigmoid.records.identity import check_cells
from scsigmoid.seeds import derive

if TYPE_CHECKING:
    from scib_metrics.nearest_neighbors import NeighborsResults

# The control pca_log_counts has the settings that are common for log-normalization and PCA.
VARIABLE_GENES = 2_000  # number of genes with the largest variance, which limits the memory
COMPONENTS = 50
# Logistic regression standardizes components. With almost as many components as cells, all cells
# are then equally far apart.
CELLS_PER_COMPONENT = 5


@dataclass(frozen=True)
class Neighbors:
    """One representation of a dataset, with the nearest neighbors of each cell.

    Attributes:
        values: the representation, cells x dimensions, float32.
        coordinates: principal components, cells x components, float32.
        indices: cells x k, int32: the nearest cells by ascending distance, the cell itself first.
        distances: cells x k, float32, Euclidean distances to these cells.
        labels: cell type of each cell.
        donors: donor of each cell, ``""`` if it is unknown.
        metadata: ``model`` (or the control's name), ``attention``, ``context`` and ``vocabulary``.
        source: the file of the embedding, or of the dataset for a control.
        batches: batch of each cell, ``""`` if it is unknown or the dataset has no batches.
    """

    values: NDArray[np.float32]
    coordinates: NDArray[np.float32]
    indices: NDArray[np.int32]
    distances: NDArray[np.float32]
    labels: NDArray[np.str_]
    donors: NDArray[np.str_]
    metadata: dict[str, Any]
    source: Path
    batches: NDArray[np.str_] = field(default_factory=lambda: np.array([], dtype=str))

    @cached_property
    def graph(self) -> "NeighborsResults":
        """The neighbors for scib-metrics, which computes the weights of their graph once."""
        from scib_metrics.nearest_neighbors import NeighborsResults

        return NeighborsResults(indices=self.indices, distances=self.distances)


def find_neighbors(
    embeddings: Mapping[str, Path], cells: Path, settings: Scib, seed: int,
    batch: str = "",
) -> Iterator[Neighbors]:  # fmt: skip
    """Yield every representation of a dataset with the neighbors of its cells.

    Args:
        embeddings: embedding files by model name, with the same cells in the same order.
        cells: the dataset's h5ad file, named after the dataset.
        batch: column of ``obs`` with the batch, or "".

    Raises:
        UserError: if embeddings and cells do not match, or have too few cells or one cell type.
    """
    by_model = read_embeddings(embeddings, cells.stem, batch=batch)
    first = next(iter(by_model.values()))
    check_cells(cells, first.metadata["cells"])
    check_enough(first.path, first.labels, scib=settings.neighbors)
    for name, values in representations(by_model, cells, settings.controls, seed):
        if name in by_model:
            source, metadata = by_model[name].path, by_model[name].metadata
        else:  # a control
            source, metadata = cells, first.metadata | {"attention": "", "context": 0}
        coordinates = principal_components(values, settings.variance, str(source))
        log(f"{cells.stem} {name}: {len(coordinates)} cells, {coordinates.shape[1]} components")
        fields = ("attention", "context", "vocabulary")
        indices, distances = nearest_cells(coordinates, settings.neighbors)
        yield Neighbors(
            values=np.asarray(values, dtype=np.float32), coordinates=coordinates, indices=indices,
            distances=distances, labels=first.labels, donors=first.donors, source=source,
            metadata={"model": name} | {field: metadata[field] for field in fields},
            batches=first.batches,
        )  # fmt: skip


def representations(
    by_model: Mapping[str, Embedding], cells: Path, controls: Sequence[str], seed: int
) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """Yield the name and values (cells x dimensions) of each model, then of each control."""
    for name, embedding in by_model.items():
        yield name, embedding.values
    first = next(iter(by_model.values()))
    for name in controls:
        if name == "variable_genes":
            yield name, variable_log_counts(cells, first.cells)
        elif name == "random":
            generator = np.random.default_rng(derive(seed, "random embedding", cells.stem))
            yield name, generator.standard_normal(first.values.shape)
        elif name == "pca_log_counts":
            yield name, log_count_components(cells, first.cells)


def log_count_components(path: Path, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the control ``pca_log_counts``, cells x components, for ``rows`` of the file.

    The PCA uses :func:`variable_log_counts` and keeps up to 50 components, at most one for every
    five cells.
    """
    dense = variable_log_counts(path, rows)
    n_cells, n_genes = dense.shape
    n_components = min(COMPONENTS, n_genes, max(1, n_cells // CELLS_PER_COMPONENT))
    # This solver is exact, uses little memory and no random numbers.
    pca = PCA(n_components, svd_solver="covariance_eigh", copy=False)
    return pca.fit_transform(dense)


def variable_log_counts(path: Path, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the log counts of the 2,000 genes with the largest variance, for ``rows`` of the file.

    The shape is (cells, genes). The file is read twice, in chunks, so that only these genes are in
    memory for all cells.
    """
    dataset = open_cells(path)
    total, total_square = np.zeros((2, len(dataset.genes)))  # of each gene's log counts
    for chunk in dataset.chunks():
        values = log_normalized(chunk.counts)
        total += np.asarray(values.sum(axis=0)).ravel()
        total_square += np.asarray(values.multiply(values).sum(axis=0)).ravel()
    variance = total_square / dataset.n_cells - (total / dataset.n_cells) ** 2
    # The stable sort keeps genes of equal variance in the order of the file.
    genes = np.sort(np.argsort(-variance, kind="stable")[:VARIABLE_GENES])
    # For each row of the file: its row in the result, or -1 if the embeddings lack it.
    position = np.full(dataset.rows[-1] + 1, -1)
    position[rows] = np.arange(len(rows))
    dense = np.empty((len(rows), len(genes)))
    for chunk in dataset.chunks():
        is_embedded = position[chunk.rows] >= 0
        values = log_normalized(chunk.counts)[:, genes]
        dense[position[chunk.rows[is_embedded]]] = values[is_embedded].toarray()
    return dense


def principal_components(
    values: NDArray[np.floating], variance: float, name: str
) -> NDArray[np.float32]:
    """Return coordinates on the first principal components that together explain ``variance``.

    Coordinates are cells x components, float32. They are computed in float64, exactly and without
    random numbers.

    Args:
        values: cells x dimensions.
        variance: share of the variance, between 0 and 1 (the paper: 0.95).
        name: start of the error message if all cells have the same values.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2 or (values == values[0]).all():
        raise UserError(
            f"{name}: all {len(values)} cells have the same values and cannot be compared; check "
            "the model's training"
        )
    # Centered values keep the rounding errors of the covariance small.
    pca = PCA(variance, svd_solver="covariance_eigh", copy=False)
    return pca.fit_transform(values - values.mean(axis=0)).astype(np.float32)


def nearest_cells(
    coordinates: NDArray[np.float32], neighbors: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return indices and Euclidean distances of the nearest neighbors of each cell, exactly.

    Both results are cells x ``neighbors``, sorted by distance, then index. The first neighbor is
    the cell itself, as scib-metrics expects. ``coordinates`` are cells x components.
    """
    # Centered, in float64, which reduces the rounding errors of distances.
    points = coordinates - coordinates.mean(axis=0, dtype=np.float64)
    search = NearestNeighbors(n_neighbors=neighbors - 1, algorithm="brute").fit(points)
    # Without an argument, kneighbors leaves out the cell itself. Sort by index, because the stable
    # sort by distance keeps this order of neighbors at equal distance.
    indices = np.sort(search.kneighbors(return_distance=False), axis=1)
    # scikit-learn computes distances from products, which lose digits, so compute them again.
    distances = np.stack([np.linalg.norm(points - points[near], axis=1) for near in indices.T], 1)
    order = np.argsort(distances, axis=1, kind="stable")
    indices, distances = (np.take_along_axis(array, order, 1) for array in (indices, distances))
    return (
        np.column_stack([np.arange(len(points)), indices]).astype(np.int32),
        np.column_stack([np.zeros(len(points)), distances]).astype(np.float32),
    )
