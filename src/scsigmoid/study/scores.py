"""Scores of how well embeddings separate cell types, for runs of a study and controls."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embeddings
from scsigmoid.evaluation.mmd import choose_types, median_squared_distance, mmd_squared
from scsigmoid.evaluation.neighbours import (
    Neighbours,
    nearest_cells,
    principal_components,
    representations,
)
from scsigmoid.evaluation.scib import FOLDS, cross_validated, leiden, probe, silhouette
from scsigmoid.files import write_text
from scsigmoid.progress import log
from scsigmoid.seeds import derive

CONTROLS = ("random", "pca_log_counts")


def score(embeddings: Sequence[Path], cells: Path, seed: int, output: Path) -> None:
    """Score the embeddings of one dataset, and the controls.

    The metrics are silhouette, Leiden NMI and ARI and the accuracy of 15 nearest neighbors, on the
    principal components with 95 % of the variance, the accuracy of a linear probe, and the mean MMD
    over all pairs of types. Accuracies are balanced and cross-validated in 5 folds.

    Args:
        embeddings: embedding files of several runs and steps.
        cells: h5ad file of the dataset.
        seed: seed of the configuration.
        output: CSV file with ``run`` (or the control), ``step`` of training (empty for a control),
            ``metric`` and ``value``.

    Raises:
        UserError: if embeddings are of different cells or have no step, or if fewer than two types
            have enough cells.
    """
    arms = read_embeddings({str(path): path for path in embeddings}, cells.stem)
    for arm in arms.values():
        if "step" not in arm.metadata:
            raise UserError(f"{arm.path}: the training step is missing; delete this old file")
    labels = next(iter(arms.values())).labels
    types, _ = choose_types(labels, 2 * FOLDS)
    kept = np.isin(labels, types)
    if len(types) < 2:
        raise UserError(
            f"{cells}: fewer than two cell types have {2 * FOLDS} cells; choose another dataset"
        )
    rows = []
    for name, values in representations(arms, cells, CONTROLS, seed):
        facts = arms[name].metadata if name in arms else {"model": name, "step": None}
        run = {"run": facts["model"], "step": facts["step"]}
        for metric, value in metrics(np.asarray(values)[kept], labels[kept], seed, name).items():
            rows.append({**run, "metric": metric, "value": value})
        log(f"{cells.stem} {name}: scored")
    table = pd.DataFrame(rows).astype({"step": "Int64"})
    write_text(output, table.to_csv(index=False, float_format="%.6g"))


def metrics(
    values: NDArray[np.floating], labels: NDArray[np.str_], seed: int, name: str
) -> dict[str, float]:
    """Return all scores of one embedding."""
    from sklearn.neighbors import KNeighborsClassifier

    _, kinds = np.unique(labels, return_inverse=True)
    coordinates = principal_components(values, 0.95, name)
    nearest = nearest_cells(coordinates, 15)
    near = Neighbours(values, coordinates, *nearest, labels, np.array([]), {}, Path())
    return {
        **silhouette(near, seed, "cpu"),
        **leiden(near, derive(seed, "leiden"), "cpu"),
        "linear_probe": probe(values, kinds, seed),
        "knn": cross_validated(KNeighborsClassifier(15), coordinates, kinds, seed),
        "mmd": mean_mmd(values, kinds),
    }


def mean_mmd(values: NDArray[np.floating], kinds: NDArray[np.int64]) -> float:
    """Return the mean unbiased MMD over all pairs of types.

    The squared bandwidth is the median squared distance between the cells of both types.
    """
    roots = []
    for a, b in combinations(range(kinds.max() + 1), 2):
        x, y = (np.asarray(values[kinds == kind], dtype=np.float64) for kind in (a, b))
        bandwidth = median_squared_distance(torch.as_tensor(np.concatenate([x, y])))
        ones = [np.ones((1, len(part)), dtype=np.int64) for part in (x, y)]
        squared = mmd_squared(x, y, *ones, bandwidth=bandwidth, block=1024).unbiased[0]
        roots.append(np.sqrt(max(float(squared), 0.0)))
    return float(np.mean(roots))
