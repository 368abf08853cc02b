"""The scIB metrics that ``evaluation.scib.metrics`` may name.

The configuration, the rule ``scib_of_dataset``, the command ``scib``, tables and figures
read this.  A further metric is an entry here and a function in :mod:`scsigmoid.evaluation.scib`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ScibMetric:
    """A metric of cell types on the PCA coordinates and neighbours of an embedding.

    Attributes:
        title: in tables and figures.
        function: of :data:`scsigmoid.evaluation.scib.FUNCTIONS`; one function may give several.
        in_paper: whether it is the paper's, and enters the mean.
        seeded: whether it depends on the configuration's seed.
    """

    title: str
    function: str
    in_paper: bool = False
    seeded: bool = False


#: In the order of fig:scib's panels.
METRICS = {
    "logistic": ScibMetric("Logistic accuracy", "logistic", seeded=True),
    "leiden_nmi": ScibMetric("Leiden NMI", "leiden", in_paper=True, seeded=True),
    "leiden_ari": ScibMetric("Leiden ARI", "leiden", in_paper=True, seeded=True),
    "silhouette_label": ScibMetric("Silhouette label", "silhouette", in_paper=True),
}
#: The mean of the paper's metrics.
MEAN, MEAN_TITLE = "bio_conservation", "Bio conservation"
