"""The MMD between cell types, from the measurements of the estimators."""

from dataclasses import dataclass

from scsigmoid.files import parsing
from scsigmoid.measurements import Measurement
from scsigmoid.results.folder import Results

ESTIMATORS = ("unbiased", "biased")
#: Averages over pairs: the suffix of the metric's name, and the title in tables.
MEANS = {
    "ratio_of_means": ("mean_ratio_of_means", "ratio of the means"),
    "mean_of_ratios": ("mean_of_ratios", "mean of the pairs' ratios"),
    "over_resamples": ("bootstrap_mean_ratio_of_means", "ratio of the means over resamples"),
}


@dataclass(frozen=True)
class Pair:
    """The MMD between two cell types in both models.

    Attributes:
        name: the pair, e.g. ``"Cardiac vs Neural"``.
        sigmoid, softmax: the MMD in each model.
        ratio: MMD of sigmoid divided by the MMD of softmax, paired by resample.
        difference: MMD of sigmoid minus the MMD of softmax, paired by resample.
        sigmoid_mean, softmax_mean: the means over resamples.
    """

    name: str
    sigmoid: Measurement
    softmax: Measurement
    ratio: Measurement
    difference: Measurement
    sigmoid_mean: Measurement
    softmax_mean: Measurement


def estimators(results: Results) -> list[str]:
    """Return both estimators, the configured one first."""
    return sorted(ESTIMATORS, key=lambda name: name != results.config.evaluation.mmd.estimator)


def pair_rows(results: Results, dataset: str, estimator: str = "") -> list[Pair]:
    """Return every pair of cell types in the order of the file.

    Args:
        results: the results.
        dataset: name of an evaluation dataset.
        estimator: one of :data:`ESTIMATORS`, or empty for the configured estimator.

    Raises:
        UserError: if a pair lacks a measurement.
    """
    metric = f"mmd_{estimator or results.config.evaluation.mmd.estimator}"
    sigmoid, softmax = results.config.evaluation.pair
    rows = {(row.group, row.model, row.metric): row for row in results.measurements("mmd", dataset)}
    names = dict.fromkeys(group for group, *_ in rows if " vs " in group)
    parts = (
        *((sigmoid, metric), (softmax, metric)),
        (f"{sigmoid} / {softmax}", f"{metric}_ratio"),
        (f"{sigmoid} - {softmax}", f"{metric}_difference"),
        *((name, f"{metric}_bootstrap_mean") for name in (sigmoid, softmax)),
    )
    with parsing(results.path(f"metrics/mmd/{dataset}.csv"), "a result file of this version"):
        return [Pair(name, *(rows[name, *part] for part in parts)) for name in names]


def mean_ratio(results: Results, dataset: str, mean: str, estimator: str) -> Measurement:
    """Return sigmoid's MMD over softmax's, averaged over the pairs.

    Args:
        results: the results.
        dataset: name of an evaluation dataset.
        mean: a key of :data:`MEANS`. The paper's 25.0 % is probably ``ratio_of_means`` of means
            over resamples.
        estimator: one of :data:`ESTIMATORS`.

    Raises:
        UserError: if the measurement is missing.
    """
    rows = {row.metric: row for row in results.measurements("mmd", dataset)}
    with parsing(results.path(f"metrics/mmd/{dataset}.csv"), "a result file of this version"):
        return rows[f"mmd_{estimator}_{MEANS[mean][0]}"]
