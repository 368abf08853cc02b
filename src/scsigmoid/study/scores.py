"""Score how well the embeddings of a study's runs, and of controls, separate cell types."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embeddings
from scsigmoid.evaluation.mmd import choose_types, measure_mmd
from scsigmoid.evaluation.neighbors import (
    Neighbors,
    nearest_cells,
    principal_components,
    representations,
)
from scsigmoid.evaluation.scib import FOLDS, cross_validated, leiden, probe, silhouette
from scsigmoid.progress import log
from scsigmoid.records.csv_rows import write_frame
from scsigmoid.records.identity import check_cells
from scsigmoid.seeds import derive

CONTROLS = ("random", "pca_log_counts")


def score(embeddings: Sequence[Path], cells: Path, seed: int, output: Path) -> None:
    """Score the embeddings of one dataset, and the controls.

    Silhouette, Leiden NMI and ARI, and the accuracy of 15 nearest neighbors are computed from the
    principal components with 95 % of the variance. The accuracy of a linear probe and the mean MMD
    over all pairs of types are computed from the embeddings. Accuracies are balanced and
    cross-validated in 5 folds.

    Args:
        cells: the dataset's h5ad file.
        output: CSV file with ``run`` (name of the run or control), ``step`` of training (empty for
            a control), ``metric`` and ``value``.

    Raises:
        UserError: if embeddings and cells do not match, or if types have too few cells.
    """
    # The keys are paths, because a run has several embeddings (one per step).
    by_path = read_embeddings({str(path): path for path in embeddings}, cells.stem)
    for path, embedding in by_path.items():
        if "step" not in embedding.metadata:
            raise UserError(
                f"{path}: the training step is missing; delete this old file and make it again"
            )
    first = next(iter(by_path.values()))
    check_cells(cells, first.metadata["cells"])
    labels = first.labels
    types, _ = choose_types(labels, 2 * FOLDS)  # two cells per fold
    if len(types) < 2:
        raise UserError(
            f"{cells}: fewer than two cell types have {2 * FOLDS} cells; choose another dataset"
        )
    is_scored = np.isin(labels, types)
    rows = []
    for name, values in representations(by_path, cells, [*CONTROLS], seed):
        is_control = name not in by_path
        metadata = {"model": name, "step": None} if is_control else by_path[name].metadata
        scores = metrics(values[is_scored], labels[is_scored], seed, name)
        run, step = metadata["model"], metadata["step"]
        rows += [(run, step, metric, value) for metric, value in scores.items()]
        log(f"{cells.stem} {name}: scored")
    table = pd.DataFrame(rows, columns=["run", "step", "metric", "value"]).astype({"step": "Int64"})
    write_frame(output, table)


def metrics(
    values: NDArray[np.floating], labels: NDArray[np.str_], seed: int, name: str
) -> dict[str, float]:
    """Return all scores of one embedding (cells x dimensions). Error messages contain ``name``."""
    from sklearn.neighbors import KNeighborsClassifier

    _, types = np.unique(labels, return_inverse=True)
    coordinates = principal_components(values, 0.95, name)
    nearest = nearest_cells(coordinates, 15)
    # Donors, metadata and source are empty, because these metrics do not use them.
    neighbors = Neighbors(values, coordinates, *nearest, labels, np.array([]), {}, Path())
    return {
        **silhouette(neighbors, seed),
        **leiden(neighbors, derive(seed, "leiden")),
        "linear_probe": probe(values, types, seed),
        "knn": cross_validated(KNeighborsClassifier(15), coordinates, types, seed),
        "mmd": mean_mmd(values, types),
    }


def mean_mmd(values: NDArray[np.floating], types: NDArray[np.int64]) -> float:
    """Return the mean of :func:`measure_mmd` over all pairs of types.

    ``values`` are cells x dimensions. ``types`` are the cells' types as indices from 0.
    """
    pairs = combinations(range(types.max() + 1), 2)
    return float(np.mean([measure_mmd(values[types == a], values[types == b]) for a, b in pairs]))
