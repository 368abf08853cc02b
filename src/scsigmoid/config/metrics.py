"""The scIB metrics that ``evaluation.scib.metrics`` may name.

A new metric needs an entry here and a function in :mod:`scsigmoid.evaluation.scib`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ScibMetric:
    """A metric of cell types on the PCA coordinates and neighbors of an embedding.

    Attributes:
        title: name in tables and figures.
        function: key of :data:`scsigmoid.evaluation.scib.FUNCTIONS`. A function may return several
            metrics.
        in_paper: whether the paper uses the metric. The mean is over the paper's metrics.
        seeded: whether the metric depends on the seed of the configuration.
    """

    title: str
    function: str
    in_paper: bool = False
    seeded: bool = False


#: Metrics by name, in the order of the panels of fig:scib.
METRICS = {
    "logistic": ScibMetric("Logistic accuracy", "logistic", seeded=True),
    "leiden_nmi": ScibMetric("Leiden NMI", "leiden", in_paper=True, seeded=True),
    "leiden_ari": ScibMetric("Leiden ARI", "leiden", in_paper=True, seeded=True),
    "silhouette_label": ScibMetric("Silhouette label", "silhouette", in_paper=True),
}
#: Name and title of the mean of the paper's metrics.
MEAN, MEAN_TITLE = "bio_conservation", "Bio conservation"
