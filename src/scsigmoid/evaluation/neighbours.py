"""PCA coordinates and nearest neighbors of every representation of a dataset, for scIB metrics.

Representations are the embeddings of the compared models, and controls: ``random`` (independent
normal values, without any structure) and ``pca_log_counts`` (the usual analysis without a model).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.labels import check_enough
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import Embedding, read_arms
from scsigmoid.files import atomic_folder, parsing
from scsigmoid.identity import check_cells, check_identity
from scsigmoid.measurements import source_of
from scsigmoid.progress import log
from scsigmoid.seeds import derive

TARGET_SUM = 10_000
# Of pca_log_counts: as in the usual single-cell analysis, which also bounds the memory.
VARIABLE_GENES = 2_000
COMPONENTS = 50
# metadata that the controls share with the embeddings
SHARED = ("dataset", "vocabulary", "simulated")


@dataclass(frozen=True)
class Neighbours:
    """One representation of a dataset.

    Attributes:
        values: the representation itself, cells x dimensions, float32.
        coordinates: cells x components, float32.
        indices: cells x k, int32: the nearest cells by ascending distance, the cell itself first.
        distances: cells x k, float32, Euclidean. The first is 0.
        labels: cell type of each cell.
        donors: donor of each cell, ``""`` if it is unknown or not stored.
        metadata: ``model`` (or the control's name), ``attention``, ``context``, ``dataset``,
            ``vocabulary``, ``simulated``, ``source`` (the embedding's file, or the dataset's) and
            ``position`` (order among the representations).
    """

    values: NDArray[np.float32]
    coordinates: NDArray[np.float32]
    indices: NDArray[np.int32]
    distances: NDArray[np.float32]
    labels: NDArray[np.str_]
    donors: NDArray[np.str_]
    metadata: dict[str, Any]


def neighbours_of_dataset(
    embeddings: Mapping[str, Path],
    cells: Path,
    *,
    neighbours: int,
    variance: float,
    controls: Sequence[str],
    seed: int,
    output: Path,
    donors: bool = False,
) -> None:
    """Find the neighbors of every representation of a dataset.

    Args:
        embeddings: model name to embedding file, with the same cells in the same order.
        cells: the dataset's h5ad file, named after the dataset.
        neighbours: neighbors of a cell, itself included (the paper: 15).
        variance: share of the variance that the PCA keeps (the paper: 0.95).
        controls: ``random`` and ``pca_log_counts``.
        seed: the configuration's seed.
        output: folder for one ``<representation>.npz`` each.
        donors: whether donors are stored, so that each is also scored alone.

    Raises:
        UserError: if the embeddings do not match each other or the cells, or have too few cells.
    """
    arms = read_arms(embeddings, cells.stem)
    first = next(iter(arms.values()))
    check_cells(cells, first.metadata["cells"])
    check_enough(first.path, first.labels, scib=neighbours)
    with atomic_folder(output) as folder:
        for name, values, metadata in representations(arms, cells, controls, seed):
            source = str(arms[name].path if name in arms else cells)
            coordinates = principal_components(values, variance, source)
            log(f"{cells.stem} {name}: {len(coordinates)} cells, {coordinates.shape[1]} components")
            indices, distances = with_itself(coordinates, neighbours)
            metadata["source"] = source_of(output, Path(source))
            np.savez(
                folder / f"{name}.npz",
                values=np.asarray(values, dtype=np.float32),
                coordinates=coordinates,
                indices=indices,
                distances=distances,
                labels=first.labels,
                donors=first.donors if donors else np.full(len(first.cells), ""),
                metadata=np.array(json.dumps(metadata, sort_keys=True)),
            )


def representations(
    arms: Mapping[str, Embedding], cells: Path, controls: Sequence[str], seed: int
) -> Iterator[tuple[str, NDArray[np.floating], dict[str, Any]]]:
    """Yield name, values (cells x dimensions) and metadata of the models, then of the controls."""
    first = next(iter(arms.values()))
    for position, (name, arm) in enumerate(arms.items()):
        metadata = {key: arm.metadata[key] for key in (*SHARED, "attention", "context")}
        yield name, arm.values, {**metadata, "model": name, "position": position}
    for position, name in enumerate(controls, start=len(arms)):
        if name == "random":
            generator = np.random.default_rng(derive(seed, "random embedding", cells.stem))
            values = generator.standard_normal(first.values.shape)
        else:
            values = log_count_components(cells, first.cells)
        metadata = {key: first.metadata[key] for key in SHARED}
        facts = {"attention": "", "context": 0, "model": name, "position": position}
        yield name, values, {**metadata, **facts}


def log_count_components(path: Path, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the control ``pca_log_counts``: principal components of log(1 + counts per 10,000).

    Up to 50 components of the 2,000 genes with the largest variance.  Counts are read twice, in
    chunks, so that only these genes are in memory.

    Args:
        path: the dataset's h5ad file.
        rows: rows of the cells, in the order of the result.
    """
    from sklearn.decomposition import PCA

    source = open_cells(path)
    absent = rows[~np.isin(rows, source.rows)]
    if len(absent):
        raise UserError(
            f"{path}: has no row {absent[0]}, but the embeddings have; embed the dataset again"
        )
    sums = np.zeros((2, len(source.genes)))
    for chunk in source.chunks():
        values = log_normalized(chunk.counts)
        sums += [np.asarray(part.sum(axis=0)).ravel() for part in (values, values.multiply(values))]
    mean, square = sums / source.n_cells
    # a stable sort keeps genes of equal variance in the order of the file
    order = np.argsort(mean**2 - square, kind="stable")
    genes = np.sort(order[:VARIABLE_GENES])
    place = np.full(source.rows[-1] + 1, -1)
    place[rows] = np.arange(len(rows))
    dense = np.empty((len(rows), len(genes)))
    for chunk in source.chunks():
        is_embedded = place[chunk.cells] >= 0
        values = log_normalized(chunk.counts)[:, genes]
        dense[place[chunk.cells[is_embedded]]] = values[is_embedded].toarray()
    # eigenvectors of the genes' covariance: exact, without random numbers, little memory
    pca = PCA(min(COMPONENTS, *dense.shape), svd_solver="covariance_eigh", copy=False)
    return pca.fit_transform(dense)


def log_normalized(counts: Any) -> Any:
    """Return log(1 + counts per 10,000), a float64 CSR matrix."""
    values = counts.astype(np.float64)
    totals = np.asarray(values.sum(axis=1)).ravel()
    values.data *= np.repeat(TARGET_SUM / totals, np.diff(values.indptr))
    return values.log1p()


def principal_components(
    values: NDArray[np.floating], variance: float, name: str
) -> NDArray[np.float32]:
    """Return coordinates on the first principal components that together keep ``variance``.

    Args:
        values: cells x dimensions.
        variance: share of the variance, between 0 and 1 (the paper: 0.95).
        name: name of the values, for messages.

    Returns:
        cells x components, float32, computed in float64 from the eigenvectors of the covariance,
        exactly and without random numbers.

    Raises:
        UserError: if all cells have the same values.
    """
    from sklearn.decomposition import PCA

    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2 or not (values != values[0]).any():
        raise UserError(
            f"{name}: all {len(values)} cells have the same values and cannot be compared; check "
            "the model's training"
        )
    # centered first, because the covariance is computed from sums of products
    pca = PCA(variance, svd_solver="covariance_eigh", copy=False)
    return pca.fit_transform(values - values.mean(axis=0)).astype(np.float32)


def with_itself(
    coordinates: NDArray[np.float32], neighbours: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return exact nearest neighbors with the cell itself first, as scib-metrics expects them.

    Args:
        coordinates: cells x components.
        neighbours: neighbors of a cell, itself included, at most the number of cells.

    Returns:
        Indices and Euclidean distances, cells x ``neighbours``, in ascending order of distance,
        then of index.
    """
    from sklearn.neighbors import NearestNeighbors

    points = coordinates - coordinates.mean(axis=0, dtype=np.float64)
    search = NearestNeighbors(n_neighbors=neighbours - 1, algorithm="brute").fit(points)
    indices = np.sort(search.kneighbors(return_distance=False), axis=1)
    # scikit-learn computes distances from products, which lose digits.
    columns = [np.linalg.norm(points - points[near], axis=1) for near in indices.T]
    distances = np.column_stack(columns)
    order = np.argsort(distances, axis=1, kind="stable")
    indices, distances = (np.take_along_axis(part, order, 1) for part in (indices, distances))
    return (
        np.column_stack([np.arange(len(points)), indices]).astype(np.int32),
        np.column_stack([np.zeros(len(points)), distances]).astype(np.float32),
    )


def read_neighbours(folder: Path, dataset: str) -> list[Neighbours]:
    """Read every representation of a dataset: the models, then the controls.

    Raises:
        UserError: if the folder is missing, or if a file is damaged or of another dataset or model.
    """
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise UserError(f"{folder}: contains no neighbors; run the target that makes them")
    representations = []
    for path in paths:
        with parsing(path, "a file of neighbours"), np.load(path) as arrays:
            metadata = json.loads(str(arrays["metadata"]))
            representation = Neighbours(**{**arrays, "metadata": metadata})
        check_identity(path, metadata, dataset=dataset, model=path.stem)
        representations.append(representation)
    return sorted(representations, key=lambda item: item.metadata["position"])
