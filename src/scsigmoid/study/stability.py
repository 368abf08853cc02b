"""Stability of training by learning rate: collapsed runs, gradient norms and clipping."""

import math
from typing import cast

import numpy as np
import pandas as pd

from scsigmoid.study.comparisons import final_loss
from scsigmoid.study.runs import Study

#: A run has collapsed if its final loss is less than ``BETTER`` nats below the gene-frequency
#: baseline, or more than ``WORSE`` nats above its own minimum. A model that knows only a gene's
#: rank is about 0.1 nats below the baseline.
BETTER, WORSE = 0.3, 0.3
#: Other values of ``BETTER``, to show how the counts depend on it.
LIMITS = (0.1, 0.3, 0.5, 0.7)
#: A run has diverged, as the paper uses the word, by the rule of docs/preregistration.md: it
#: learned (nats below the gene-frequency baseline), left that loss (nats above it) and its gradient
#: exploded (times the median norm before).
LEARNED, LEFT, EXPLODED = 0.5, 1.0, 100


def first_settings(study: Study) -> list[str]:
    """Return the settings of the first family with the purpose ``stability``."""
    runs = study.runs[study.runs["purpose"] == "stability"]
    return runs[runs["family"] == runs["family"].iloc[0]]["setting"].unique().tolist()


def frontier(study: Study) -> pd.DataFrame:
    """Return one row per run with the purpose ``stability``: its final loss and its collapse.

    Returns:
        Columns ``setting``, ``attention``, ``learning_rate``, ``seed``, ``loss`` (at the end,
        nats), ``rise`` (above the run's minimum), ``collapsed``, ``diverged``, ``gradient_norm``
        and ``score`` (the largest of the run).
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
    """Return True if a run learned, left the loss it had reached, and its gradient exploded.

    Args:
        curve: ``step``, ``loss``, ``validation_loss`` and ``gradient_norm`` of the run. A loss that
            is not finite is a divergence by itself.
        baseline: loss of gene frequencies on the validation cells, in nats.
    """
    losses = curve.set_index("step")["validation_loss"].dropna()
    if not (np.isfinite(curve["loss"]).all() and np.isfinite(losses).all()):
        return True
    levels = losses.rolling(3).median().dropna()
    if levels.empty or levels.min() > baseline - LEARNED:
        return False
    lowest = levels.idxmin()
    later = levels[levels >= levels.min() + LEFT].loc[lowest:]
    if later.empty:
        return False
    norms = curve.set_index("step")["gradient_norm"].fillna(math.inf)
    limit = EXPLODED * norms.loc[:lowest].median()
    return bool((norms.loc[lowest : later.index[-1]] >= limit).any())


def largest_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the largest learning rate up to which no seed collapsed, from :func:`frontier`.

    Returns:
        One row per setting and one column per arm: 0 if a seed collapsed at the smallest rate, NaN
        without runs.
    """

    def largest(arm: pd.DataFrame) -> float:
        has_collapsed = arm.groupby("learning_rate")["collapsed"].any()
        stable = has_collapsed[~has_collapsed.cummax()]
        return float(stable.index[-1]) if len(stable) else 0.0

    keys = ["setting", "attention"]
    return runs.groupby(keys)[["learning_rate", "collapsed"]].apply(largest).unstack()


def collapsed_by_limit(study: Study) -> pd.DataFrame:
    """Count collapsed runs for other limits than :data:`BETTER`, and runs that diverged.

    Returns:
        One row per setting and arm: ``runs``, ``collapsed_<limit>`` for each of :data:`LIMITS`,
        ``diverged`` and ``gradient_norm`` (the largest of all its runs).
    """
    runs = frontier(study)
    baseline = study.baseline("frequencies")
    columns = {
        f"collapsed_{limit:g}": (runs["loss"] > baseline - limit) | (runs["rise"] > WORSE)
        for limit in LIMITS
    }
    runs = runs.assign(runs=1, **columns)
    counts = dict.fromkeys(("runs", *columns, "diverged"), "sum")
    groups = runs.groupby(["setting", "attention"])
    return groups.agg({**counts, "gradient_norm": "max"}).reset_index()


def clipping(study: Study) -> pd.DataFrame:
    """Return how often clipping acted, and quartiles of the gradient norm.

    Returns:
        One row per family and arm with clipping: ``steps`` (logged by all of its runs),
        ``clipped`` (share of these steps with a norm above the limit), and ``minimum``, ``lower``,
        ``median``, ``upper`` and ``maximum`` of the norm before clipping. A NaN counts as infinite.
    """
    rows = study.started[study.started["clipping"].notna()]
    norms = rows["gradient_norm"].fillna(math.inf)
    rows = rows.assign(gradient_norm=norms, clipped=norms > rows["clipping"])
    groups = rows.groupby(["family", "attention"], sort=False)
    table = groups["clipped"].agg(steps="size", clipped="mean")
    names = ("minimum", "lower", "median", "upper", "maximum")
    for name, share in zip(names, np.linspace(0, 1, 5), strict=True):
        table[name] = groups["gradient_norm"].quantile(share, interpolation="lower")
    return table.reset_index()
