"""Comparisons of the two arms, sigmoid and softmax, seed by seed."""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd
from scipy import special, stats

from scsigmoid.labels import ATTENTIONS
from scsigmoid.measurements import mean_interval
from scsigmoid.study.runs import Study

CONFIDENCE = 0.95


def final_loss(curve: pd.DataFrame) -> float:
    """Return the median of a run's last three validation losses, infinity if a loss is not finite.

    Args:
        curve: columns ``loss`` and ``validation_loss`` of a journal. A validation loss is NaN
            after steps without validation.
    """
    last = curve["validation_loss"].dropna()[-3:]
    is_finite = np.isfinite(curve["loss"]).all() and np.isfinite(last).all()
    return float(np.median(last)) if is_finite else math.inf


def final_losses(curves: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Return :func:`final_loss` of each run, by its settings ``keys``."""
    return curves.groupby(keys)[["loss", "validation_loss"]].apply(final_loss)


def best_rates(study: Study) -> tuple[pd.DataFrame, pd.Series, int]:
    """Compare learning rates, in runs with the purpose ``rates``.

    Returns:
        Validation losses (rates, (arm, seed)) at the last measurement that all of these runs have,
        each arm's rate with the lowest mean over seeds, and the step of that measurement.
    """
    curves = study.started[study.started["purpose"] == "rates"]
    curves = curves[curves["step"] <= curves.groupby("run")["step"].max().min()]
    ends = final_losses(curves, ["learning_rate", "attention", "seed"]).unstack("attention")
    ends = cast(pd.DataFrame, ends.unstack("seed"))  # NaN for a seed that an arm lacks
    last = int(curves.dropna(subset=["validation_loss"])["step"].max())
    return ends, ends.T.groupby(level=0).mean().T.idxmin(), last


def paired(study: Study, purpose: str, size: str | None = None) -> pd.DataFrame:
    """Return :func:`differences` of the validation losses of runs with one purpose (and size)."""
    curves = study.curves[study.curves["purpose"] == purpose].dropna(subset=["validation_loss"])
    if size is not None:
        curves = curves[curves["size"] == size]
    return differences(curves, "validation_loss")


def by_size(study: Study) -> pd.DataFrame:
    """Return :func:`paired` of each size, the smallest first, at shared steps.

    The shared steps are the last steps of each size that another size also has. A single size is
    shown at its own last step.

    Returns:
        :func:`differences` with ``size`` and ``parameters``, empty without the purpose ``sizes``.
    """
    if "sizes" not in set(study.runs["purpose"]):
        return pd.DataFrame()
    tables = {}
    for size, parameters in study.runs.groupby("size")["parameters"].first().sort_values().items():
        for purpose in ("seeds", "sizes"):
            if len(means := paired(study, purpose, str(size))):
                tables[size, parameters] = means  # `sizes` replaces `seeds`
    if not tables:
        return pd.DataFrame()
    facts = ["size", "parameters"]
    rows = pd.concat(tables, names=facts).reset_index(facts)
    is_last = rows["step"].isin(rows.groupby("size")["step"].max())
    is_shared = rows.groupby("step")["size"].transform("size") >= min(len(tables), 2)
    return rows[is_last & is_shared].sort_values("step", kind="stable")


def score_differences(study: Study) -> pd.DataFrame:
    """Return :func:`differences` of the scores of each ``metric``, empty without scores."""
    by_metric = study.scores.groupby("metric", sort=False)
    tables = {metric: differences(scores, "value") for metric, scores in by_metric}
    return pd.concat(tables, names=["metric"]).reset_index("metric") if tables else pd.DataFrame()


def differences(curves: pd.DataFrame, column: str) -> pd.DataFrame:
    """Compare both arms over the steps, seed by seed.

    Returns:
        One row per step that all seeds of both arms have: ``sigmoid`` and ``softmax`` (means over
        seeds), ``difference`` (sigmoid minus softmax) with Student's interval ``low`` to ``high``,
        ``deviation`` (standard deviation of the difference over seeds), ``seeds`` (their number),
        and the difference of each seed (``seed_1``, ...). Empty if an arm has no runs.
    """
    table = curves.pivot_table(column, ["step", "seed"], "attention")
    pairs = table.reindex(columns=ATTENTIONS).dropna()
    by_seed = (pairs["sigmoid"] - pairs["softmax"]).unstack("seed").dropna()
    means = {arm: pairs[arm].unstack("seed").loc[by_seed.index].mean(axis=1) for arm in ATTENTIONS}
    values = [mean_interval(row, CONFIDENCE) for row in by_seed.to_numpy(dtype=float)]
    intervals = pd.DataFrame(values, by_seed.index, ["difference", "low", "high"])
    rows = pd.DataFrame(means).join(intervals)
    rows = rows.assign(deviation=by_seed.std(axis=1), seeds=by_seed.shape[1])
    return rows.join(by_seed.add_prefix("seed_")).reset_index()


def last_change(differences: pd.DataFrame) -> int | None:
    """Return the step from which the mean difference keeps its sign, None if it never changes."""
    signs = np.sign(differences["difference"].to_numpy())
    other = np.flatnonzero(signs != signs[-1])
    return None if not len(other) else int(differences["step"].iloc[other[-1] + 1])


def last_tenth(curve: pd.DataFrame) -> float:
    """Return the mean validation loss of the ninth tenth of the steps minus that of the last."""
    losses = curve.dropna(subset=["validation_loss"])
    last = losses["step"].max()
    before = losses[losses["step"].between(0.8 * last, 0.9 * last, "right")]
    recent = losses[losses["step"] > 0.9 * last]
    return float(before["validation_loss"].mean() - recent["validation_loss"].mean())


def detectable_difference(deviation: float, seeds: int, power: float) -> float:
    """Return the true difference that a paired t-test finds with a probability of ``power``.

    Args:
        deviation: standard deviation of the paired difference over seeds.
        seeds: number of seeds, at least 2.
        power: probability that the two-sided interval at ``CONFIDENCE`` excludes zero.
    """
    limit = stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1)
    # Noncentrality of the t distribution. The other tail is below 1e-6.
    shift = special.nctdtrinc(seeds - 1, 1 - power, limit)
    return float(shift * deviation / math.sqrt(seeds))


def powers(study: Study, tenths: Sequence[int]) -> pd.DataFrame:
    """Return what the purpose ``seeds`` can resolve, at some tenths of the steps.

    Returns:
        Rows of :func:`differences` with ``half_width`` (of Student's interval) and ``detectable``
        (:func:`detectable_difference` at a power of 80 %).
    """
    means = paired(study, "seeds")
    rows = means[means["step"].isin([round(means["step"].max() * n / 10) for n in tenths])]
    return rows.assign(
        half_width=(rows["high"] - rows["low"]) / 2,
        detectable=[
            detectable_difference(float(deviation), int(seeds), 0.8)
            for deviation, seeds in zip(rows["deviation"], rows["seeds"], strict=True)
        ],
    )
