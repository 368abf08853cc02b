"""The scIB metrics that can be listed in ``evaluation.scib.metrics``.

A new metric needs an entry here and a function in :mod:`scsigmoid.evaluation.scib`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ScibMetric:
    """A metric that measures how well an embedding separates cell types or mixes batches."""

    title: str  # name in tables and figures
    function: str  # key of :data:`scsigmoid.evaluation.scib.FUNCTIONS`
    in_paper: bool = False  # whether the paper uses the metric. Only these metrics enter `MEAN`.
    seeded: bool = False  # whether the metric depends on the seed of the configuration
    needs_batch: bool = False  # whether only datasets with a batch have the metric
    by_donor: bool = True  # whether the cells of each donor are scored, too


#: Metrics by name, in the order of the panels of the figure ``scib``.
METRICS = {
    "logistic": ScibMetric("Logistic accuracy", "logistic", seeded=True, by_donor=False),
    "leiden_nmi": ScibMetric("Leiden NMI", "leiden", in_paper=True, seeded=True),
    "leiden_ari": ScibMetric("Leiden ARI", "leiden", in_paper=True, seeded=True),
    "silhouette_label": ScibMetric("Silhouette label", "silhouette", in_paper=True),
    "ilisi": ScibMetric("iLISI (batches)", "ilisi", needs_batch=True, by_donor=False),
    "graph_connectivity": ScibMetric(
        "Graph connectivity", "connectivity", needs_batch=True, by_donor=False
    ),
}
#: Name and title of the mean of the paper's metrics.
MEAN, MEAN_TITLE = "bio_conservation", "Bio conservation"
