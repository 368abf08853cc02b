"""scIB biological-conservation metrics (appendix, "SCIB Biological Conservation Metrics").

The silhouette and Leiden scores are computed from the PCA coordinates and neighbors of
:mod:`~.neighbours`, the accuracy of logistic regression from the representation. Higher is better.
scib-metrics computes the Leiden scores. :mod:`~.distances` computes the silhouette, because it is
faster (docs/benchmarks.md).

To add a metric, write its function, add the function to :data:`FUNCTIONS`, and describe the metric
in ``scsigmoid.config.metrics``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.config.metrics import METRICS
from scsigmoid.config.schema import Scib
from scsigmoid.evaluation.neighbours import Neighbours, find_neighbours, nearest_cells
from scsigmoid.measurements import Measurement, known_donors, source_of, write_measurements
from scsigmoid.progress import log
from scsigmoid.seeds import derive

Scores = Mapping[str, float]
FOLDS = 5  # of the cross-validation of `probe`


def scib(
    embeddings: Mapping[str, Path],
    cells: Path,
    settings: Scib,
    seed: int,
    outputs: Mapping[str, Path],
    *,
    donors: bool = False,
    device: str = "cpu",
) -> None:
    """Score every representation of a dataset.

    Args:
        embeddings: model name to embedding file, with the same cells in the same order.
        cells: the dataset's h5ad file, named after the dataset.
        seed: the configuration's seed. All representations share the seeds derived from it.
        outputs: metric to CSV file of measurements. ``group`` is the donor, or empty for all cells.
        donors: whether to score the cells of each donor, too (:func:`split_by_donor`).
        device: device that computes the distances of the silhouette, in float64.

    Raises:
        UserError: as for :func:`~.neighbours.find_neighbours`.
    """
    dataset = cells.stem
    representations = list(find_neighbours(embeddings, cells, settings, seed))
    rows: dict[str, list[Measurement]] = {metric: [] for metric in outputs}
    parts = [("", representation) for representation in representations]
    if donors:
        for representation in representations:
            parts += split_by_donor(representation)
    for function in dict.fromkeys(METRICS[metric].function for metric in outputs):
        for donor, part in parts:
            if donor and function == "logistic":  # a donor has too few cells of each type
                continue
            scores = FUNCTIONS[function](part, derive(seed, function, dataset), device)
            text = ", ".join(f"{metric} {score:.4f}" for metric, score in scores.items())
            group = f" ({donor})" if donor else ""
            log(f"{dataset} {part.metadata['model']}{group}: {text}")
            for metric in scores.keys() & rows.keys():
                rows[metric].append(
                    Measurement(
                        dataset=dataset,
                        group=donor,
                        metric=metric,
                        value=scores[metric],
                        n=len(part.labels),
                        seed=seed if METRICS[metric].seeded else -1,
                        source=source_of(outputs[metric], part.source),
                        **part.metadata,
                    )
                )
    for metric, output in outputs.items():
        write_measurements(output, rows[metric])


def split_by_donor(cells: Neighbours) -> Iterator[tuple[str, Neighbours]]:
    """Yield each donor with the representation of its cells. Neighbors are of the same donor.

    Donors with one cell type, or with at most as many cells as a cell has neighbors, are left out.
    Yields nothing if fewer than three donors are left.
    """
    neighbours = cells.indices.shape[1]
    members = {donor: np.flatnonzero(cells.donors == donor) for donor in known_donors(cells.donors)}
    kept = {
        donor: rows
        for donor, rows in members.items()
        if len(rows) > neighbours and len({*cells.labels[rows].tolist()}) > 1
    }
    if len(kept) < 3:
        return
    for donor, rows in kept.items():
        indices, distances = nearest_cells(cells.coordinates[rows], neighbours)
        fields = ("values", "coordinates", "labels", "donors")
        selected = {field: getattr(cells, field)[rows] for field in fields}
        yield donor, replace(cells, indices=indices, distances=distances, **selected)


def silhouette(cells: Neighbours, seed: int, device: str) -> Scores:
    """Return the silhouette of the cell types, (s + 1) / 2, from 0 to 1.

    s is the mean of the cells' :func:`~.distances.silhouettes` in the PCA space.
    """
    import torch

    from scsigmoid.evaluation.distances import silhouettes

    points = torch.as_tensor(cells.coordinates).to(device, torch.float64)
    codes = np.unique(cells.labels, return_inverse=True)[1]
    kinds = torch.as_tensor(codes, device=points.device)
    return {"silhouette_label": (float(silhouettes(points, kinds).mean()) + 1) / 2}


def leiden(cells: Neighbours, seed: int, device: str) -> Scores:
    """Return NMI and ARI of the cell types with Leiden clusters of the neighbor graph.

    Of ten resolutions from 0.2 to 2, the clusters with the highest NMI are scored, as in scIB.
    """
    from scib_metrics import nmi_ari_cluster_labels_leiden
    from scib_metrics.nearest_neighbors import NeighborsResults

    nearest = NeighborsResults(indices=cells.indices, distances=cells.distances)
    scores = nmi_ari_cluster_labels_leiden(
        nearest, cells.labels, optimize_resolution=True, seed=seed
    )
    return {f"leiden_{name}": float(scores[name]) for name in ("nmi", "ari")}


def logistic(cells: Neighbours, seed: int, device: str) -> Scores:
    """Return the cross-validated balanced accuracy of logistic regression on the representation.

    Types with fewer than two cells per fold are left out. Without two types, the result is empty.
    """
    types, counts = np.unique(cells.labels, return_counts=True)
    types = types[counts >= 2 * FOLDS]
    if len(types) < 2:
        return {}
    is_kept = np.isin(cells.labels, types)
    kinds = np.unique(cells.labels[is_kept], return_inverse=True)[1]
    return {"logistic": probe(cells.values[is_kept], kinds, seed)}


def probe(values: NDArray[np.floating], kinds: NDArray[np.int64], seed: int) -> float:
    """Return the cross-validated balanced accuracy of logistic regression.

    ``values`` (cells x dimensions) are standardized. ``kinds`` has the code of each cell's type.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=0.1))
    return cross_validated(model, values, kinds, seed)


def cross_validated(
    model: Any, values: NDArray[np.floating], kinds: NDArray[np.int64], seed: int
) -> float:
    """Return the balanced accuracy of a scikit-learn classifier, cross-validated in 5 folds."""
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=derive(seed, "probe") % 2**32)
    return float(balanced_accuracy_score(kinds, cross_val_predict(model, values, kinds, cv=folds)))


#: Functions that compute the metrics of a representation, given a seed and a device, by name.
FUNCTIONS: Mapping[str, Callable[[Neighbours, int, str], Scores]] = {
    function.__name__: function for function in (silhouette, leiden, logistic)
}
