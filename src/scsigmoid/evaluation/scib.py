"""scIB biological-conservation metrics (appendix, "SCIB Biological Conservation Metrics").

On the PCA coordinates and neighbours of :mod:`~.neighbours`.  Higher is better.  Silhouette depends
on the coordinates and Leiden on the neighbours alone, so they are jobs of their own; NMI and ARI
come from one clustering.  All but the silhouette are computed by scib-metrics, whose silhouette
takes differences of vectors instead of matrix products: docs/benchmarks.md has both times.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from scsigmoid.errors import UserError
from scsigmoid.evaluation.distances import silhouettes
from scsigmoid.evaluation.neighbours import Neighbours, read_neighbours
from scsigmoid.measurements import Measurement, write_measurements
from scsigmoid.progress import log
from scsigmoid.seeds import derive

if TYPE_CHECKING:
    from scib_metrics.nearest_neighbors import NeighborsResults

# The paper's; others may be asked for.
METRICS = ("silhouette_label", "leiden_nmi", "leiden_ari")
AGGREGATE = "bio_conservation"


def silhouette(
    neighbours: Path, dataset: str, output: Path, device: str | torch.device = "cpu"
) -> None:
    """Silhouette label: how tightly cells of a type lie together, (s + 1) / 2, from 0 to 1.

    s is the mean over cells of (b - a) / max(a, b), with a the mean distance to the cells of the
    same type and b that to the nearest other type, Euclidean in the PCA space.

    Args:
        neighbours: folder that :func:`~.neighbours.neighbours_of_dataset` made.
        dataset: the dataset's name.
        output: gets one measurement a representation.
        device: where distances are computed, in float64 everywhere.

    Raises:
        UserError: for a single cell type, or a type with one cell.
    """
    found = checked(neighbours)
    names, labels, counts = np.unique(found[0].labels, return_inverse=True, return_counts=True)
    if (counts == 1).any():
        raise UserError(
            f"{neighbours}: cell type '{names[counts == 1][0]}' has one cell, which has no "
            "silhouette; leave it out of the dataset or merge the type with another"
        )
    rows = []
    for one in found:
        points = torch.as_tensor(one.coordinates).to(device, torch.float64)
        kinds = torch.as_tensor(labels, device=points.device)
        score = (float(silhouettes(points, kinds).mean()) + 1) / 2
        rows.append(row(dataset, one, "silhouette_label", score))
        log(f"{dataset} {one.metadata['model']}: silhouette_label {score:.4f}")
    write_measurements(output, rows)


def leiden(neighbours: Path, dataset: str, seed: int, output_nmi: Path, output_ari: Path) -> None:
    """Leiden NMI and ARI: how well clusters of the neighbour graph agree with the cell types.

    Of ten resolutions from 0.2 to 2, that of the highest NMI counts, as in scIB.

    Args:
        neighbours: folder that :func:`~.neighbours.neighbours_of_dataset` made.
        dataset: the dataset's name.
        seed: the configuration's seed; all representations share the clustering's.
        output_nmi: gets one measurement a representation.
        output_ari: the same.

    Raises:
        UserError: for a single cell type.
    """
    found = checked(neighbours)
    from scib_metrics import nmi_ari_cluster_labels_leiden

    def scores(one: Neighbours) -> Mapping[str, float]:
        return nmi_ari_cluster_labels_leiden(
            results(one),
            one.labels,
            optimize_resolution=True,
            seed=derive(seed, "leiden", dataset),
        )

    write_agreement("leiden", scores, found, dataset, seed, {"nmi": output_nmi, "ari": output_ari})


def kmeans(neighbours: Path, dataset: str, output_nmi: Path, output_ari: Path) -> None:
    """K-means NMI and ARI, on the coordinates, with as many clusters as there are cell types.

    Not among the paper's metrics.  The seed is the library's own, which cannot be chosen.

    Args:
        neighbours: folder that :func:`~.neighbours.neighbours_of_dataset` made.
        dataset: the dataset's name.
        output_nmi: gets one measurement a representation.
        output_ari: the same.

    Raises:
        UserError: for a single cell type.
    """
    found = checked(neighbours)
    from scib_metrics import nmi_ari_cluster_labels_kmeans

    def scores(one: Neighbours) -> Mapping[str, float]:
        return nmi_ari_cluster_labels_kmeans(one.coordinates, one.labels)

    write_agreement("kmeans", scores, found, dataset, -1, {"nmi": output_nmi, "ari": output_ari})


def clisi(neighbours: Path, dataset: str, output: Path) -> None:
    """cLISI: how few cell types a cell's neighbours are of, from 0 to 1; on the shared neighbours.

    Not among the paper's metrics.

    Args:
        neighbours: folder that :func:`~.neighbours.neighbours_of_dataset` made.
        dataset: the dataset's name.
        output: gets one measurement a representation.

    Raises:
        UserError: for a single cell type.
    """
    found = checked(neighbours)
    from scib_metrics import clisi_knn

    rows = []
    for one in found:
        score = float(clisi_knn(results(one), one.labels))
        rows.append(row(dataset, one, "clisi", score))
        log(f"{dataset} {one.metadata['model']}: cLISI {score:.4f}")
    write_measurements(output, rows)


def results(one: Neighbours) -> "NeighborsResults":
    """The neighbours as scib-metrics takes them."""
    from scib_metrics.nearest_neighbors import NeighborsResults

    return NeighborsResults(indices=one.indices, distances=one.distances)


def write_agreement(
    clustering: str,
    scores: Callable[[Neighbours], Mapping[str, float]],
    found: Iterable[Neighbours],
    dataset: str,
    seed: int,
    outputs: Mapping[str, Path],
) -> None:
    """Write NMI and ARI of one clustering with the cell types, each into its own file."""
    rows: dict[str, list[Measurement]] = {name: [] for name in outputs}
    for one in found:
        values = scores(one)
        for name in outputs:
            metric = f"{clustering}_{name}"
            rows[name].append(row(dataset, one, metric, float(values[name]), seed))
        log(
            f"{dataset} {one.metadata['model']}: {clustering} NMI {values['nmi']:.4f}, "
            f"ARI {values['ari']:.4f}"
        )
    for name, output in outputs.items():
        write_measurements(output, rows[name])


def checked(neighbours: Path) -> list[Neighbours]:
    """Read all representations; refuse a single cell type."""
    found = read_neighbours(neighbours)
    if len(set(found[0].labels.tolist())) < 2:
        raise UserError(
            f"{neighbours}: all cells are of type '{found[0].labels[0]}', so there is nothing to "
            "tell apart; choose another label column or leave the dataset out"
        )
    return found


def row(dataset: str, one: Neighbours, metric: str, value: float, seed: int = -1) -> Measurement:
    """The measurement of one representation."""
    return Measurement(
        dataset=dataset,
        model=one.metadata["model"],
        attention=one.metadata["attention"],
        context=one.metadata["context"],
        metric=metric,
        value=value,
        n=len(one.labels),
        seed=seed,
        simulated=one.metadata["simulated"],
        source=one.metadata["source"],
    )


def aggregate(
    measurements: Iterable[Measurement], metrics: Sequence[str] = METRICS
) -> list[Measurement]:
    """Bio conservation: the mean of the paper's metrics, for each dataset and representation.

    Args:
        measurements: of any datasets, representations and metrics.
        metrics: those that were asked for.  Other metrics than the paper's enter the mean only
            where there are no others.  A representation that lacks one has no mean.
    """
    metrics = [metric for metric in metrics if metric in METRICS] or metrics
    groups: dict[tuple[str, str], dict[str, Measurement]] = {}
    for measurement in measurements:
        groups.setdefault((measurement.dataset, measurement.model), {})[measurement.metric] = (
            measurement
        )
    means = []
    for (dataset, model), found in groups.items():
        if not all(metric in found for metric in metrics):
            continue
        parts = [found[metric] for metric in metrics]
        means.append(
            Measurement(
                dataset=dataset,
                model=model,
                attention=parts[0].attention,
                context=parts[0].context,
                metric=AGGREGATE,
                value=float(np.mean([part.value for part in parts])),
                n=parts[0].n,
                seed=max(part.seed for part in parts),
                simulated=parts[0].simulated,
                source=parts[0].source,
            )
        )
    return means
