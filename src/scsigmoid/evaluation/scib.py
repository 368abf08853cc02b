"""scIB metrics (appendix, "SCIB Biological Conservation Metrics"), and metrics of batches.

Higher scores are better. Representations are embeddings and controls (:mod:`~.neighbors`). The
silhouette uses their PCA coordinates, the Leiden scores use the neighbors in the PCA space, and
logistic regression uses the representation itself. The package scib-metrics computes the Leiden
scores, iLISI and graph connectivity, scikit-learn the other scores.

To add a metric, write its function, add the function to :data:`FUNCTIONS`, and describe the metric
in ``scsigmoid.config.metrics``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, silhouette_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scsigmoid.config.metrics import METRICS
from scsigmoid.config.schema import Scib
from scsigmoid.evaluation.neighbors import Neighbors, find_neighbors, nearest_cells
from scsigmoid.progress import log
from scsigmoid.records.measurements import (
    Interval,
    Measurement,
    known_donors,
    mean_interval,
    source_of,
    split_interval,
    write_measurements,
)
from scsigmoid.seeds import derive

Scores = Mapping[str, float]  # scores by name of the metric


class Score(float):
    """A score of ``cells`` cells, without cells that are left out."""

    cells: int


class CrossValidated(Score):
    """A score of the predictions of all folds. ``splits`` are the scores of the single folds."""

    splits: NDArray[np.float64]


FOLDS = 5  # number of folds of cross-validation
CONFIDENCE = 0.95  # of intervals over folds, and over seeds of a metric
LISI_NEIGHBORS = 90  # number of neighbors for iLISI in the Benchmarker of scib-metrics
# The perplexity of scib-metrics is a third of this number, rounded down. It must be above 1.
FEWEST_LISI_NEIGHBORS = 6


def scib(
    embeddings: Mapping[str, Path], cells: Path, settings: Scib, seed: int,
    outputs: Mapping[str, Path], *, donors: bool = False, batch: str = "",
) -> None:  # fmt: skip
    """Score every representation of a dataset.

    Args:
        embeddings: embedding files by model name, with the same cells in the same order.
        cells: the dataset's h5ad file, named after the dataset.
        seed: the configuration's seed. All representations share the seeds derived from it.
        outputs: CSV file of measurements by metric. ``group`` is the donor, or empty for all cells.
            Rows with ``compared_with`` are differences between two representations, over splits.
        batch: column of ``obs`` with the batch, or "".
        donors: whether to score the cells of each donor, too (:func:`split_by_donor`).

    A metric with ``repeats`` is averaged over seeds, with Student's interval. The value of a metric
    without a score of all cells is NaN: without batches, or with too few cells of a type.

    Raises:
        UserError: as for :func:`~.neighbors.find_neighbors`.
    """
    dataset = cells.stem
    representations = list(find_neighbors(embeddings, cells, settings, seed, batch))
    # Pairs (donor, representation of its cells). The donor "" stands for all cells.
    parts = [("", item) for item in representations]
    if donors:
        parts += [part for item in representations for part in split_by_donor(item)]
    rows: dict[str, list[Measurement]] = {metric: [] for metric in outputs}
    splits: dict[tuple[str, str], NDArray[np.float64]] = {}  # by metric and representation
    # A function may compute several metrics: call it once, and keep the requested metrics.
    for function in dict.fromkeys(METRICS[metric].function for metric in outputs):
        requested = [metric for metric in outputs if METRICS[metric].function == function]
        first_metric = METRICS[requested[0]]  # the others have the same `per_donor` and `repeats`
        for donor, part in parts:
            if donor and not first_metric.per_donor:
                continue
            repeats = 1 if donor else first_metric.repeats  # scores of donors are averaged anyway
            first = derive(seed, function, dataset)
            seeds = [first, *(derive(first, number) for number in range(1, repeats))]
            runs = [FUNCTIONS[function](part, of_run) for of_run in seeds]
            scores = {
                metric: mean_interval(np.array([run[metric] for run in runs]), CONFIDENCE)
                for metric in runs[0]
            }
            text = ", ".join(f"{metric} {score.value:.4f}" for metric, score in scores.items())
            suffix = f" ({donor})" if donor else ""
            log(f"{dataset} {part.metadata['model']}{suffix}: {text or 'no score'}")
            for metric in requested:
                if donor and metric not in scores:
                    continue
                score = scores.get(metric, Interval(np.nan))
                single = runs[0].get(metric)
                n = single.cells if isinstance(single, Score) else len(part.labels)
                if not donor and isinstance(single, CrossValidated):
                    splits[metric, part.metadata["model"]] = single.splits
                row = Measurement(
                    dataset=dataset, group=donor, metric=metric, **score._asdict(),
                    n=n, seed=seed if METRICS[metric].seeded else -1,
                    source=source_of(outputs[metric], part.source), **part.metadata,
                )  # fmt: skip
                rows[metric].append(row)
    for metric, output in outputs.items():
        write_measurements(output, [*rows[metric], *split_differences(rows[metric], splits)])


def split_differences(
    rows: Sequence[Measurement], splits: Mapping[tuple[str, str], NDArray[np.float64]]
) -> Iterator[Measurement]:
    """Yield the difference of each pair of representations, with its interval over splits.

    ``rows`` are scores, and ``splits`` the scores of each split by metric and representation.
    """
    scored = [row for row in rows if not row.group and (row.metric, row.model) in splits]
    for first, second in combinations(scored, 2):
        values = splits[first.metric, first.model] - splits[second.metric, second.model]
        _, low, high = split_interval(values, 1 / FOLDS, CONFIDENCE)
        yield replace(
            first, compared_with=second.model, attention="", context=0, low=low, high=high,
            value=float(values.mean()), source=f"{first.source} {second.source}",
        )  # fmt: skip


def split_by_donor(cells: Neighbors) -> Iterator[tuple[str, Neighbors]]:
    """Yield each donor with the representation of its cells. Neighbors are of the same donor.

    Donors are left out if they have one cell type, or too few cells for the neighbors of a cell.
    Yield nothing if fewer than three donors are left.
    """
    neighbors = cells.indices.shape[1]  # per cell, including the cell itself
    rows_of = {}
    for donor in known_donors(cells.donors):
        rows = np.flatnonzero(cells.donors == donor)
        if len(rows) > neighbors and len(np.unique(cells.labels[rows])) > 1:
            rows_of[donor] = rows
    if len(rows_of) < 3:
        return
    for donor, rows in rows_of.items():
        indices, distances = nearest_cells(cells.coordinates[rows], neighbors)
        fields = ("values", "coordinates", "labels", "donors", "batches")
        selected = {field: getattr(cells, field)[rows] for field in fields}
        yield donor, replace(cells, indices=indices, distances=distances, **selected)


def silhouette(cells: Neighbors, seed: int) -> Scores:
    """Return the silhouette of the cell types, (s + 1) / 2, from 0 to 1.

    s is the mean silhouette of the cells, with Euclidean distances in the PCA space. The only
    cell of a type has s = 0.
    """
    n_types = len(np.unique(cells.labels))
    if n_types == len(cells.labels):  # s = 0, but scikit-learn would raise an error
        return {"silhouette_label": 0.5}
    score = silhouette_score(cells.coordinates.astype(np.float64), cells.labels)
    return {"silhouette_label": (float(score) + 1) / 2}


def leiden(cells: Neighbors, seed: int) -> Scores:
    """Return NMI and ARI of the cell types with Leiden clusters of the neighbor graph.

    Clusters are computed at ten resolutions from 0.2 to 2. As in scIB, both scores are of the
    clusters with the highest NMI.
    """
    from scib_metrics import nmi_ari_cluster_labels_leiden

    scores = nmi_ari_cluster_labels_leiden(
        cells.graph, cells.labels, optimize_resolution=True, seed=seed
    )
    return {f"leiden_{name}": float(scores[name]) for name in ("nmi", "ari")}


def logistic(cells: Neighbors, seed: int) -> Scores:
    """Return the cross-validated balanced accuracy of logistic regression on the representation.

    Types with fewer cells than the metric's minimum, two per fold, are left out. The result is
    empty if fewer than two types are left.
    """
    names, counts = np.unique(cells.labels, return_counts=True)
    names = names[counts >= METRICS["logistic"].minimum_cells]
    if len(names) < 2:
        return {}
    is_kept = np.isin(cells.labels, names)
    _, types = np.unique(cells.labels[is_kept], return_inverse=True)
    return {"logistic": probe(cells.values[is_kept], types, seed)}


def probe(values: NDArray[np.floating], types: NDArray[np.int64], seed: int) -> CrossValidated:
    """Return the cross-validated balanced accuracy of logistic regression on standardized values.

    ``values`` are cells x dimensions. ``types`` is the index of each cell's type. Also called by
    :mod:`scsigmoid.study.scores`.
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=0.1))
    return cross_validated(model, values, types, seed)


def cross_validated(
    model: Any, values: NDArray[np.floating], types: NDArray[np.int64], seed: int
) -> CrossValidated:
    """Return the balanced accuracy of a scikit-learn classifier, cross-validated in 5 folds."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=derive(seed, "probe") % 2**32)
    predicted = cross_val_predict(model, values, types, cv=folds)
    score = CrossValidated(balanced_accuracy_score(types, predicted))
    score.cells = len(types)
    tested = (test for _, test in folds.split(values, types))
    score.splits = np.array([balanced_accuracy_score(types[t], predicted[t]) for t in tested])
    return score


def ilisi(cells: Neighbors, seed: int) -> Scores:
    """Return the iLISI of the batches, from 0 (separate) to 1 (equally frequent near each cell).

    It is the median over cells of the effective number of batches among the 90 nearest cells (or
    all, if there are fewer), minus 1, divided by the number of batches minus 1. Cells without a
    batch are left out. The result is empty if there are fewer than two batches, or fewer than six
    cells with a batch.
    """
    is_known = cells.batches != ""
    batches = cells.batches[is_known]
    if len(np.unique(batches)) < 2 or len(batches) < FEWEST_LISI_NEIGHBORS:
        return {}
    if len(batches) < len(is_known):
        log(f"iLISI: {len(is_known) - len(batches)} cells without a batch are left out")
    from scib_metrics import ilisi_knn
    from scib_metrics.nearest_neighbors import NeighborsResults

    neighbors = min(LISI_NEIGHBORS, len(batches))
    indices, distances = nearest_cells(cells.coordinates[is_known], neighbors)
    score = Score(ilisi_knn(NeighborsResults(indices, distances), batches))
    score.cells = len(batches)
    return {"ilisi": score}


def connectivity(cells: Neighbors, seed: int) -> Scores:
    """Return the graph connectivity of the cell types, from 0 to 1.

    It is the share of a type's cells in the largest strongly connected component of the directed
    neighbor graph of these cells, averaged over types. It is low if batches of a type are separate.
    The result is empty if there are fewer than two batches.
    """
    if len(np.unique(cells.batches[cells.batches != ""])) < 2:
        return {}
    from scib_metrics import graph_connectivity

    return {"graph_connectivity": float(graph_connectivity(cells.graph, cells.labels))}


#: Functions that compute metrics, by name. Arguments: representation and seed.
FUNCTIONS: Mapping[str, Callable[[Neighbors, int], Scores]] = {
    function.__name__: function for function in (silhouette, leiden, logistic, ilisi, connectivity)
}
