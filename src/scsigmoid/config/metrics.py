"""The scIB metrics that can be listed in ``evaluation.scib.metrics``.

A new metric needs an entry here and a function in :mod:`scsigmoid.evaluation.scib`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ScibMetric:
    """A metric that measures how well an embedding separates cell types or mixes batches."""

    title: str  # name in tables and figures
    function: str  # key of :data:`scsigmoid.evaluation.scib.FUNCTIONS`
    caption: str = ""  # sentence for the caption of the table
    in_paper: bool = False  # whether the paper uses the metric. Only these metrics enter `MEAN`.
    seeded: bool = False  # whether the metric depends on the seed of the configuration
    repeats: int = 1  # seeds over which the scores of all cells of a dataset are averaged
    per_donor: bool = True  # whether own cells of each donor are scored, too
    minimum_cells: int = 0  # cells that each of two types must have, or else there is no score
    in_verdict: bool = False  # whether the verdict on own cells is about this metric, not `MEAN`
    needs_batch: bool = False  # whether only datasets with a batch have the metric


LEIDEN = (
    "NMI and ARI are means over 5 seeds of Leiden clustering, ± half the width of Student's 95 % "
    "interval over these seeds."
)
#: Metrics by name, in the order of the panels of the figure ``scib``.
METRICS = {
    "logistic": ScibMetric(
        "Logistic accuracy",
        "logistic",
        caption="Logistic accuracy is the balanced accuracy of logistic regression in 5-fold "
        "cross-validation, on the types with at least 10 cells.",
        seeded=True,
        per_donor=False,  # a donor has too few cells of each type
        minimum_cells=10,
        in_verdict=True,
    ),
    "leiden_nmi": ScibMetric("Leiden NMI", "leiden", LEIDEN, in_paper=True, seeded=True, repeats=5),
    "leiden_ari": ScibMetric("Leiden ARI", "leiden", in_paper=True, seeded=True, repeats=5),
    "silhouette_label": ScibMetric("Silhouette label", "silhouette", in_paper=True),
    "ilisi": ScibMetric(
        "iLISI (batches)",
        "ilisi",
        caption="iLISI is the scaled effective number of batches among the 90 nearest cells, 0 if "
        "they are separate and 1 if all batches are equally frequent. If batches differ in size, "
        "mixed batches are below 1, too: compare with the random embedding.",
        per_donor=False,  # a donor is often a batch
        needs_batch=True,
    ),
    "graph_connectivity": ScibMetric(
        "Graph connectivity",
        "connectivity",
        caption="Graph connectivity is the largest share of a type's cells that can be reached "
        "from each other through nearest neighbors of the same type, averaged over types.",
        per_donor=False,
        needs_batch=True,
    ),
}
#: Name and title of the mean of the paper's metrics.
MEAN, MEAN_TITLE = "bio_conservation", "Bio conservation"
