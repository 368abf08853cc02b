"""Score the model ``blood`` and representations without a model on the cells of PBMC 3k.

    python docs/measurements/scripts/blood_scores.py pbmc_3k.h5ad --output blood_scores.csv

Each split is a seed of the 5 folds of cross-validation, of the Leiden clusters, and of the random
embedding. Cells of the type ``unknown`` are left out. The CSV file has one row per representation,
metric and split:

- ``logistic``: balanced accuracy of logistic regression on the representation,
- ``knn``: balanced accuracy of 15 nearest neighbors in the principal components with 95 % of the
  variance,
- ``leiden_nmi``: NMI of the types with Leiden clusters in these components.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

import scsigmoid as ss
from scsigmoid.evaluation.neighbors import (
    VARIABLE_GENES,
    Neighbors,
    log_normalized,
    nearest_cells,
    principal_components,
)
from scsigmoid.evaluation.scib import cross_validated, leiden, probe

#: Numbers of principal components of log counts that are scored.
COMPONENTS = (50, 384)


def representations(
    cells: anndata.AnnData, model: str
) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """Yield the name and the values (cells x dimensions) of every representation but ``random``."""
    counts = (cells.raw or cells).X.tocsr()
    logs = log_normalized(counts)
    variance = logs.multiply(logs).mean(axis=0) - np.square(logs.mean(axis=0))
    genes = np.argsort(-np.asarray(variance).ravel(), kind="stable")[:VARIABLE_GENES]
    variable = logs[:, np.sort(genes)].toarray()
    for components in COMPONENTS:
        pca = PCA(components, svd_solver="covariance_eigh")
        yield f"pca_{components}", pca.fit_transform(variable)
    ss.embed(cells, ss.load(model))
    yield model, cells.obsm["X_scsigmoid"]


def scores(
    values: NDArray[np.floating], labels: NDArray[np.str_], seeds: range
) -> Iterator[tuple[int, str, float]]:
    """Yield seed, metric and score of a representation."""
    types = np.unique(labels, return_inverse=True)[1]
    coordinates = principal_components(values, 0.95, "")
    neighbors = Neighbors(
        values, coordinates, *nearest_cells(coordinates, 15), labels, np.array([]), {}, Path()
    )
    for seed in seeds:
        yield seed, "logistic", probe(values, types, seed)
        neighbors = KNeighborsClassifier(15)
        yield seed, "knn", cross_validated(neighbors, coordinates, types, seed)
        yield seed, "leiden_nmi", leiden(neighbors, seed)["leiden_nmi"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("cells", type=Path, help="h5ad file with counts and cell types")
    parser.add_argument("--label", default="cell_type")
    parser.add_argument("--model", default="blood")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--output", type=Path, required=True, help="CSV file")
    options = parser.parse_args(arguments)
    cells = anndata.read_h5ad(options.cells)
    cells = cells[cells.obs[options.label].astype(str) != "unknown"].copy()
    labels = cells.obs[options.label].to_numpy(str)
    rows: list[tuple[str, int, str, float]] = []

    def write(name: str, seeds: range, values: NDArray[np.floating]) -> None:
        rows.extend((name, *score) for score in scores(values, labels, seeds))
        table = pd.DataFrame(rows, columns=["representation", "split", "metric", "value"])
        table.round(4).to_csv(options.output, index=False)
        print(name, seeds, flush=True)

    for seed in range(options.splits):
        random = np.random.default_rng(seed).standard_normal((len(cells), 384))
        write("random", range(seed, seed + 1), random)
    for name, values in representations(cells, options.model):
        write(name, range(options.splits), values)


if __name__ == "__main__":
    main()
