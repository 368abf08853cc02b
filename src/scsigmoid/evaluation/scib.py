"""scIB biological-conservation metrics (appendix, "SCIB Biological Conservation Metrics").

Computed by scib-metrics on the PCA coordinates and neighbours of :mod:`~.neighbours`.  Higher is
better.  Silhouette depends on the coordinates and Leiden on the neighbours alone, so they are jobs
of their own; NMI and ARI come from one clustering.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from scsigmoid.errors import UserError
from scsigmoid.evaluation.neighbours import Neighbours, read_neighbours
from scsigmoid.measurements import Measurement, write_measurements
from scsigmoid.progress import log
from scsigmoid.seeds import derive

METRICS = ("silhouette_label", "leiden_nmi", "leiden_ari")
AGGREGATE = "bio_conservation"


def silhouette(neighbours: Path, dataset: str, output: Path) -> None:
    """Silhouette label: how tightly cells of a type lie together, (s + 1) / 2, from 0 to 1.

    s is the mean over cells of (b - a) / max(a, b), with a the mean distance to the cells of the
    same type and b that to the nearest other type, Euclidean in the PCA space.

    Args:
        neighbours: folder that :func:`~.neighbours.neighbours_of_dataset` made.
        dataset: the dataset's name.
        output: gets one measurement a representation.

    Raises:
        UserError: for a single cell type, or a type with one cell.
    """
    found = checked(neighbours)
    names, counts = np.unique(found[0].labels, return_counts=True)
    if (counts == 1).any():
        raise UserError(
            f"{neighbours}: cell type '{names[counts == 1][0]}' has one cell, which has no "
            "silhouette; leave it out of the dataset or merge the type with another"
        )
    from scib_metrics import silhouette_label

    rows = []
    for one in found:
        score = float(silhouette_label(one.coordinates, one.labels, rescale=True))
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
    from scib_metrics.nearest_neighbors import NeighborsResults

    outputs = {"nmi": output_nmi, "ari": output_ari}
    rows: dict[str, list[Measurement]] = {name: [] for name in outputs}
    for one in found:
        scores = nmi_ari_cluster_labels_leiden(
            NeighborsResults(indices=one.indices, distances=one.distances),
            one.labels,
            optimize_resolution=True,
            seed=derive(seed, "leiden", dataset),
        )
        for name in outputs:
            metric = f"leiden_{name}"
            rows[name].append(row(dataset, one, metric, float(scores[name]), seed))
        log(f"{dataset} {one.metadata['model']}: NMI {scores['nmi']:.4f}, ARI {scores['ari']:.4f}")
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
    """Bio conservation: the mean of the three metrics, for each dataset and representation.

    A representation that lacks one of ``metrics`` has no mean and is left out.
    """
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
