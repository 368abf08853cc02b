"""Stability of training by learning rate: collapsed runs, gradient norms and clipping."""

import math
from typing import cast

import numpy as np
import pandas as pd

from scsigmoid.study.comparisons import final_loss
from scsigmoid.study.runs import Study

#: A run has collapsed if its final loss is less than ``BETTER`` nats below the gene-frequency
#: baseline, or more than ``WORSE`` nats above its own minimum. For comparison, a model that uses
#: only the rank of a gene is about 0.1 nats below the baseline.
BETTER, WORSE = 0.3, 0.3
#: Other values of ``BETTER``, to show how the counts depend on it.
LIMITS = (0.1, 0.3, 0.5, 0.7)
#: A run has diverged (docs/preregistration.md) if three conditions are met. It learned: its loss
#: fell at least ``LEARNED`` nats below the gene-frequency baseline. It left its lowest loss: the
#: loss was later at least ``LEFT`` nats higher. Its gradient exploded: a norm in between is at
#: least ``EXPLODED`` times the median norm before.
LEARNED, LEFT, EXPLODED = 0.5, 1.0, 100


def first_family_settings(study: Study) -> list[str]:
    """Return the settings of the first family with the purpose ``stability``, [] if none has it."""
    runs = study.runs[study.runs["purpose"] == "stability"]
    return runs[runs["family"].isin(runs["family"][:1])]["setting"].unique().tolist()


def stability_runs(study: Study) -> pd.DataFrame:
    """Return the final loss of each run with the purpose ``stability``, and whether it collapsed.

    Returns:
        One row per run: ``setting``, ``attention``, ``learning_rate``, ``seed``, ``loss`` (final
        validation loss in nats), ``rise`` (final minus lowest validation loss), ``collapsed``,
        ``diverged``, ``gradient_norm`` and ``score`` (largest values of the run).
    """
    baseline, rows = study.baseline("frequencies"), []
    curves = study.curves[study.curves["purpose"] == "stability"]
    keys = ["setting", "attention", "learning_rate", "seed"]
    for key, curve in curves.groupby(keys):
        loss = final_loss(curve)
        rise = loss - curve["validation_loss"].min()
        rows.append(
            {
                **dict(zip(keys, cast(tuple[object, ...], key), strict=True)),
                "loss": loss,
                "rise": rise,
                "collapsed": loss > baseline - BETTER or rise > WORSE,
                "diverged": has_diverged(curve, baseline),
                "gradient_norm": curve["gradient_norm"].fillna(math.inf).max(),
                "score": curve["attention_score_max"].fillna(math.inf).max(),
            }
        )
    return pd.DataFrame(rows)


def has_diverged(curve: pd.DataFrame, baseline: float) -> bool:
    """Return True if a run learned, left its lowest loss, and its gradient exploded.

    Args:
        curve: ``step``, ``loss``, ``validation_loss`` and ``gradient_norm`` of the run. A run with
            a loss that is not finite has diverged.
        baseline: gene-frequency baseline on the validation cells, in nats.
    """
    losses = curve.set_index("step")["validation_loss"].dropna()
    if not (np.isfinite(curve["loss"]).all() and np.isfinite(losses).all()):
        return True
    smooth = losses.rolling(3).median().dropna()
    if smooth.empty or smooth.min() > baseline - LEARNED:
        return False
    lowest = smooth.idxmin()
    later = smooth[smooth >= smooth.min() + LEFT].loc[lowest:]
    if later.empty:
        return False
    norms = curve.set_index("step")["gradient_norm"].fillna(math.inf)
    limit = EXPLODED * norms.loc[:lowest].median()
    return bool((norms.loc[lowest : later.index[-1]] >= limit).any())


def largest_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the largest learning rate up to which no seed collapsed.

    Args:
        runs: rows of :func:`stability_runs`.

    Returns:
        One row per setting and one column per arm. The value is 0 if a seed collapsed at the
        smallest rate, and NaN if the arm has no runs.
    """

    def largest(arm: pd.DataFrame) -> float:
        has_collapsed = arm.groupby("learning_rate")["collapsed"].any()
        stable = has_collapsed[~has_collapsed.cummax()]
        return float(stable.index[-1]) if len(stable) else 0.0

    keys = ["setting", "attention"]
    return runs.groupby(keys)[["learning_rate", "collapsed"]].apply(largest).unstack()


def count_collapsed(study: Study) -> pd.DataFrame:
    """Count the collapsed runs for several values of :data:`BETTER`, and the diverged runs.

    Returns:
        One row per setting and arm: ``runs``, ``collapsed_<limit>`` for each of :data:`LIMITS`,
        ``diverged`` and ``gradient_norm`` (largest norm of these runs).
    """
    runs = stability_runs(study)
    baseline = study.baseline("frequencies")
    columns = {
        f"collapsed_{limit:g}": (runs["loss"] > baseline - limit) | (runs["rise"] > WORSE)
        for limit in LIMITS
    }
    runs = runs.assign(runs=1, **columns)
    counts = dict.fromkeys(("runs", *columns, "diverged"), "sum")
    groups = runs.groupby(["setting", "attention"])
    return groups.agg({**counts, "gradient_norm": "max"}).reset_index()


def gradient_norms(study: Study) -> pd.DataFrame:
    """Return how often gradients were clipped, and the quartiles of their norms before clipping.

    Returns:
        One row per family and arm with clipping: ``steps`` (number of logged steps of its runs),
        ``clipped`` (share of these steps with a norm above the limit), and ``minimum``, ``lower``
        and ``upper`` quartile, ``median`` and ``maximum`` of the norm. NaN counts as infinite.
    """
    rows = study.all_curves[study.all_curves["clipping"].notna()]
    norms = rows["gradient_norm"].fillna(math.inf)
    rows = rows.assign(gradient_norm=norms, clipped=norms > rows["clipping"])
    groups = rows.groupby(["family", "attention"], sort=False)
    table = groups["clipped"].agg(steps="size", clipped="mean")
    shares = {0.0: "minimum", 0.25: "lower", 0.5: "median", 0.75: "upper", 1.0: "maximum"}
    quantiles = groups["gradient_norm"].quantile(pd.Index(shares), interpolation="lower").unstack()
    return table.join(quantiles.rename(columns=shares)).reset_index()
