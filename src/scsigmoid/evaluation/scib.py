"""scIB biological-conservation metrics (appendix, "SCIB Biological Conservation Metrics").

On the PCA coordinates and neighbours of :mod:`~.neighbours`.  Higher is better.  All but the
silhouette are computed by scib-metrics, whose silhouette takes differences of vectors instead of
matrix products: docs/benchmarks.md has both times.  scib-metrics and PyTorch are imported where
they are used: tables need :func:`aggregate` alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scsigmoid.config.metrics import MEAN, METRICS
from scsigmoid.errors import UserError
from scsigmoid.evaluation.neighbours import Neighbours, read_neighbours, with_itself
from scsigmoid.measurements import Measurement, known_donors, write_measurements
from scsigmoid.progress import log
from scsigmoid.seeds import derive

if TYPE_CHECKING:
    from scib_metrics.nearest_neighbors import NeighborsResults

Scores = Mapping[str, float]


def scib(
    neighbours: Path, dataset: str, seed: int, outputs: Mapping[str, Path], device: str = "cpu"
) -> None:
    """Score every representation of a dataset, and of each donor (:func:`by_donor`).

    Args:
        neighbours: folder that :func:`~.neighbours.neighbours_of_dataset` made.
        seed: the configuration's seed; all representations share what is derived from it.
        outputs: metric to CSV file, which gets one measurement a representation; those of a donor
            have it as ``group``.
        device: where the silhouette's distances are computed, in float64 everywhere.

    Raises:
        UserError: for a single cell type.
    """
    found = read_neighbours(neighbours, dataset)
    names = np.unique(found[0].labels)
    if len(names) < 2:
        raise UserError(
            f"{neighbours}: all cells are of type '{names[0]}', so there is nothing to tell "
            "apart; choose another label column or leave the dataset out"
        )
    rows: dict[str, list[Measurement]] = {metric: [] for metric in outputs}
    parts = [("", one) for one in found]
    parts += [part for one in found for part in by_donor(one, device)]
    for function in dict.fromkeys(METRICS[metric].function for metric in outputs):
        for donor, one in parts:
            scores = FUNCTIONS[function](one, derive(seed, function, dataset), device)
            text = ", ".join(f"{metric} {score:.4f}" for metric, score in scores.items())
            log(f"{dataset} {one.metadata['model']}{donor and f' ({donor})'}: {text}")
            for metric in scores.keys() & rows.keys():
                rows[metric].append(
                    Measurement(
                        dataset=dataset,
                        group=donor,
                        model=one.metadata["model"],
                        attention=one.metadata["attention"],
                        context=one.metadata["context"],
                        vocabulary=one.metadata["vocabulary"],
                        metric=metric,
                        value=scores[metric],
                        n=len(one.labels),
                        seed=seed if METRICS[metric].seeded else -1,
                        simulated=one.metadata["simulated"],
                        source=one.metadata["source"],
                    )
                )
    for metric, output in outputs.items():
        write_measurements(output, rows[metric])


def by_donor(one: Neighbours, device: str = "cpu") -> Iterator[tuple[str, Neighbours]]:
    """Each donor with its cells alone: the same coordinates, neighbours among themselves.

    A donor counts if it has two types and more cells than a cell has neighbours; of fewer than
    three such donors there is none.
    """
    count = one.indices.shape[1]
    members = {donor: np.flatnonzero(one.donors == donor) for donor in known_donors(one.donors)}
    enough = {
        donor: rows
        for donor, rows in members.items()
        if len(rows) > count and len({*one.labels[rows].tolist()}) > 1
    }
    for donor, rows in enough.items() if len(enough) > 2 else ():
        coordinates = one.coordinates[rows]
        found = with_itself(coordinates, count, device)
        labels, donors = one.labels[rows], one.donors[rows]
        yield donor, Neighbours(coordinates, *found, labels, donors, one.metadata)


def silhouette(one: Neighbours, seed: int, device: str) -> Scores:
    """Silhouette label: how tightly cells of a type lie together, (s + 1) / 2, from 0 to 1.

    s is the mean over cells of (b - a) / max(a, b), with a the mean distance to the cells of the
    same type and b that to the nearest other type, Euclidean in the PCA space; 0 for the only cell
    of a type.
    """
    import torch

    from scsigmoid.evaluation.distances import silhouettes

    points = torch.as_tensor(one.coordinates).to(device, torch.float64)
    labels = np.unique(one.labels, return_inverse=True)[1]
    kinds = torch.as_tensor(labels, device=points.device)
    return {"silhouette_label": (float(silhouettes(points, kinds).mean()) + 1) / 2}


def leiden(one: Neighbours, seed: int, device: str) -> Scores:
    """NMI and ARI of the cell types with clusters of the neighbour graph.

    Of ten resolutions from 0.2 to 2, that of the highest NMI counts, as in scIB.
    """
    from scib_metrics import nmi_ari_cluster_labels_leiden

    found = nmi_ari_cluster_labels_leiden(
        results(one), one.labels, optimize_resolution=True, seed=seed
    )
    return {f"leiden_{name}": float(found[name]) for name in ("nmi", "ari")}


def kmeans(one: Neighbours, seed: int, device: str) -> Scores:
    """NMI and ARI with k-means on the coordinates, with as many clusters as cell types.

    The clustering's seed is the library's own, which cannot be chosen.
    """
    from scib_metrics import nmi_ari_cluster_labels_kmeans

    found = nmi_ari_cluster_labels_kmeans(one.coordinates, one.labels)
    return {f"kmeans_{name}": float(found[name]) for name in ("nmi", "ari")}


def clisi(one: Neighbours, seed: int, device: str) -> Scores:
    """cLISI: how few cell types a cell's neighbours are of, from 0 to 1; the shared neighbours."""
    from scib_metrics import clisi_knn

    return {"clisi": float(clisi_knn(results(one), one.labels))}


#: What computes the metrics of a representation, given a seed of its own and a device.
FUNCTIONS: Mapping[str, Callable[[Neighbours, int, str], Scores]] = {
    function.__name__: function for function in (silhouette, leiden, kmeans, clisi)
}


def results(one: Neighbours) -> "NeighborsResults":
    """The neighbours as scib-metrics takes them."""
    from scib_metrics.nearest_neighbors import NeighborsResults

    return NeighborsResults(indices=one.indices, distances=one.distances)


def aggregate(measurements: Iterable[Measurement], metrics: Sequence[str]) -> list[Measurement]:
    """Bio conservation: the mean of the paper's metrics, for each dataset and representation.

    Args:
        measurements: of any datasets, representations and metrics.
        metrics: those that were asked for.  Others than the paper's enter the mean only where
            there are none of the paper's.  A representation that lacks one has no mean.
    """
    metrics = [metric for metric in metrics if METRICS[metric].in_paper] or metrics
    groups: dict[tuple[str, str], dict[str, Measurement]] = {}
    for one in measurements:
        groups.setdefault((one.dataset, one.model), {})[one.metric] = one
    means = []
    for found in groups.values():
        if set(metrics) <= set(found):
            parts = [found[metric] for metric in metrics]
            value = float(np.mean([part.value for part in parts]))
            seed = max(part.seed for part in parts)
            means.append(replace(parts[0], metric=MEAN, value=value, seed=seed))
    return means
