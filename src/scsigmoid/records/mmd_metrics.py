"""Names of the metrics in the file of the MMD (:mod:`scsigmoid.evaluation.mmd`)."""

from enum import StrEnum

ESTIMATORS = ("unbiased", "biased")
LEFT_OUT = "mmd_left_out"  # number of cells of a type with too few cells


class MmdMetric(StrEnum):
    """Ends of the names, for example ``_ratio`` of ``mmd_unbiased_ratio``."""

    # Of a pair of cell types and a model
    VALUE = ""
    BOOTSTRAP_MEAN = "_bootstrap_mean"  # mean over resamples, which the paper prints
    # Of a pair and both models
    RATIO = "_ratio"  # sigmoid / softmax
    DIFFERENCE = "_difference"  # sigmoid - softmax
    # Of all pairs and both models
    MEAN_OF_RATIOS = "_mean_of_ratios"
    MEAN_RATIO_OF_MEANS = "_mean_ratio_of_means"  # ratio of the mean MMDs
    # Ratio of the mean MMDs over resamples
    BOOTSTRAP_MEAN_RATIO_OF_MEANS = "_bootstrap_mean_ratio_of_means"

    def of(self, estimator: str) -> str:
        """Return the whole name. ``estimator`` is one of :data:`ESTIMATORS`."""
        return f"mmd_{estimator}{self}"


#: All names.
NAMES = {LEFT_OUT, *(metric.of(estimator) for estimator in ESTIMATORS for metric in MmdMetric)}
