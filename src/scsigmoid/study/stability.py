"""Find collapsed and diverged runs by learning rate, and summarize gradient norms and clipping."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from scsigmoid.study.comparisons import final_loss, median_of_last_three
from scsigmoid.study.runs import Study

#: A run has collapsed if its level is less than ``MINIMUM_GAIN`` nats below the gene-frequency
#: baseline, or more than ``MAXIMUM_RISE`` nats above the lowest loss of the run. The level is the
#: median of the last three validation losses, because the rule was written so. For comparison:
#: the loss of a model that uses only the rank of a gene is about 0.1 nats below the baseline.
MINIMUM_GAIN, MAXIMUM_RISE = 0.3, 0.3
#: Values of ``MINIMUM_GAIN`` that :func:`count_collapsed` compares.
LIMITS = (0.1, 0.3, 0.5, 0.7)
#: A run has diverged (docs/preregistration.md) if three conditions are met. It need not diverge for
#: good, as in the comparison with the paper (docs/comparison.md). "The loss" is the median of three
#: validation losses in a row, as registered.
#:
#: 1. The run learned: its loss fell at least ``LEARNED_GAIN`` nats below the gene-frequency
#:    baseline.
#: 2. The loss rose again: a later loss is at least ``DIVERGED_RISE`` nats above the lowest loss.
#: 3. The gradient exploded: between the lowest loss and the last loss of condition 2, a gradient
#:    norm is at least ``EXPLODED_FACTOR`` times the median norm up to the lowest loss.
LEARNED_GAIN, DIVERGED_RISE, EXPLODED_FACTOR = 0.5, 1.0, 100


def first_family_settings(study: Study) -> list[str]:
    """Return the settings of the first family with the purpose ``stability``."""
    runs = study.runs[study.runs["purpose"] == "stability"]
    return runs[runs["family"] == runs["family"].iloc[0]]["setting"].unique().tolist()


def short_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return short labels of distinct settings: the first part, and every part that differs."""
    parts = {setting: setting.split(", ") for setting in settings}
    return {
        setting: ", ".join(
            part
            for index, part in enumerate(own)
            if index == 0 or any(part not in others for others in parts.values())
        )
        for setting, own in parts.items()
    }


def stability_runs(study: Study) -> pd.DataFrame:
    """Summarize each run with the purpose ``stability``.

    Returns:
        One row per run: ``setting``, ``attention``, ``learning_rate``, ``seed``, ``loss`` (nats),
        ``level`` and ``rise`` (level minus lowest validation loss), ``baseline`` (of gene
        frequencies, at the context of the run), ``collapsed`` (see :data:`MINIMUM_GAIN`),
        ``diverged`` (see :data:`LEARNED_GAIN`), and the largest ``gradient_norm`` and attention
        ``score`` of the run. NaN counts as infinity.
    """
    rows = {}
    curves = study.curves[study.curves["purpose"] == "stability"]
    keys = ["setting", "attention", "learning_rate", "seed"]
    for key, curve in curves.groupby(keys):
        baseline = study.baseline("frequencies", curve["context"].iloc[0])
        level = final_loss(curve, median_of_last_three)
        rise = level - curve["validation_loss"].min()
        rows[key] = {
            "loss": final_loss(curve),
            "level": level,
            "rise": rise,
            "baseline": baseline,
            "collapsed": level > baseline - MINIMUM_GAIN or rise > MAXIMUM_RISE,
            "diverged": has_diverged(curve, baseline),
            "gradient_norm": curve["gradient_norm"].fillna(math.inf).max(),
            "score": curve["attention_score_max"].fillna(math.inf).max(),
        }
    return pd.DataFrame.from_dict(rows, orient="index").reset_index(names=keys)


def has_diverged(curve: pd.DataFrame, baseline: float) -> bool:
    """Return True if a run has diverged (see :data:`LEARNED_GAIN`), or if a loss is not finite.

    ``curve`` has the rows of the run's journal. ``baseline`` is the gene-frequency baseline.
    """
    losses = curve.set_index("step")["validation_loss"].dropna()
    if not (np.isfinite(curve["loss"]).all() and np.isfinite(losses).all()):
        return True
    smooth = losses.rolling(3).median().dropna()
    if smooth.empty or smooth.min() > baseline - LEARNED_GAIN:
        return False
    lowest = smooth.idxmin()  # the step of the lowest loss
    high_losses = smooth[smooth >= smooth.min() + DIVERGED_RISE].loc[lowest:]
    if high_losses.empty:
        return False
    norms = curve.set_index("step")["gradient_norm"].fillna(math.inf)
    limit = EXPLODED_FACTOR * norms.loc[:lowest].median()
    return bool((norms.loc[lowest : high_losses.index[-1]] >= limit).any())


def largest_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the largest learning rate up to which no run collapsed, by setting and arm.

    ``runs`` are rows of :func:`stability_runs`. The result has one row per setting and one column
    per arm: 0 if a run collapsed at the smallest rate, NaN if the arm has no runs.
    """

    def largest(runs_of_arm: pd.DataFrame) -> float:
        has_collapsed = runs_of_arm.groupby("learning_rate")["collapsed"].any()
        # The rates below the smallest rate at which a run collapsed.
        stable = has_collapsed[~has_collapsed.cummax()]
        return float(stable.index[-1]) if len(stable) else 0.0

    keys = ["setting", "attention"]
    return runs.groupby(keys)[["learning_rate", "collapsed"]].apply(largest).unstack()


def count_collapsed(study: Study) -> pd.DataFrame:
    """Count the collapsed runs for each limit in :data:`LIMITS`, and the diverged runs.

    Returns:
        One row per setting and arm: numbers of runs (``runs``, ``collapsed_<limit>`` for each
        limit, ``diverged``), and ``gradient_norm`` (the largest norm of these runs).
    """
    runs = stability_runs(study).assign(runs=1)  # the sum of this column is the number of runs
    for limit in LIMITS:
        has_collapsed = (runs["level"] > runs["baseline"] - limit) | (runs["rise"] > MAXIMUM_RISE)
        runs[f"collapsed_{limit:g}"] = has_collapsed
    counted = ["runs", *(f"collapsed_{limit:g}" for limit in LIMITS), "diverged"]
    groups = runs.groupby(["setting", "attention"])
    return groups[counted].sum().join(groups["gradient_norm"].max()).reset_index()


def gradient_norms(study: Study) -> pd.DataFrame:
    """Return how often gradients were clipped, and the quartiles of their norms before clipping.

    Returns:
        One row per family and arm with clipping: ``steps`` (number of logged steps of all its
        runs), ``clipped`` (share of these steps with a norm above the limit), and the quartiles of
        the norm, from ``minimum`` to ``maximum``. NaN counts as infinity.
    """
    steps = study.all_curves[study.all_curves["clipping"].notna()]
    norms = steps["gradient_norm"].fillna(math.inf)
    steps = steps.assign(gradient_norm=norms, clipped=norms > steps["clipping"])
    groups = steps.groupby(["family", "attention"], sort=False)
    table = groups["clipped"].agg(steps="size", clipped="mean")
    names = {0.0: "minimum", 0.25: "lower", 0.5: "median", 0.75: "upper", 1.0: "maximum"}
    # Not interpolated, because interpolation between infinite norms is NaN.
    quantiles = groups["gradient_norm"].quantile(pd.Index(names), interpolation="lower").unstack()
    return table.join(quantiles.rename(columns=names)).reset_index()
