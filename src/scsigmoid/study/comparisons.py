"""Comparisons of the two arms, sigmoid and softmax, seed by seed."""

import math
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from scsigmoid.labels import ATTENTIONS
from scsigmoid.measurements import mean_interval
from scsigmoid.study.runs import Study

#: Confidence of intervals, and the probability with which a detectable difference is detected.
CONFIDENCE, POWER = 0.95, 0.8
#: Attention and variant that the variants of sigmoid are compared with, and the scores in which a
#: variant that wins is better.
RIVAL, DECIDING = ("softmax", "qk_norm"), ("linear_probe", "knn", "leiden_nmi")


def final_loss(curve: pd.DataFrame) -> float:
    """Return the median of a run's last three validation losses, infinity if a loss is not finite.

    Args:
        curve: columns ``loss`` and ``validation_loss`` of a journal. The validation loss of a step
            without validation is NaN.
    """
    last = curve["validation_loss"].dropna()[-3:]
    is_finite = np.isfinite(curve["loss"]).all() and np.isfinite(last).all()
    return float(np.median(last)) if is_finite else math.inf


def final_losses(curves: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Return :func:`final_loss` of each run, indexed by the columns ``keys``."""
    return curves.groupby(keys)[["loss", "validation_loss"]].apply(final_loss)


def best_rates(study: Study) -> tuple[pd.DataFrame, pd.Series, int]:
    """Compare the learning rates of the runs with the purpose ``rates``.

    Returns:
        Final losses up to the last step that all runs have reached (rows: learning rates, columns:
        arm and seed), the best learning rate of each arm (lowest mean loss over seeds), and the
        step of the last validation.
    """
    curves = study.all_curves[study.all_curves["purpose"] == "rates"]
    curves = curves[curves["step"] <= curves.groupby("run")["step"].max().min()]
    losses = final_losses(curves, ["learning_rate", "attention", "seed"]).unstack("attention")
    losses = cast(pd.DataFrame, losses.unstack("seed"))  # NaN for a seed that an arm lacks
    last = int(curves.dropna(subset=["validation_loss"])["step"].max())
    return losses, losses.T.groupby(level=0).mean().T.idxmin(), last


def loss_differences(study: Study, purpose: str, size: str | None = None) -> pd.DataFrame:
    """Return :func:`arm_differences` of validation losses of the runs with a purpose (and size)."""
    curves = study.curves[study.curves["purpose"] == purpose].dropna(subset=["validation_loss"])
    if size is not None:
        curves = curves[curves["size"] == size]
    return arm_differences(curves, "validation_loss")


def loss_differences_by_size(study: Study) -> pd.DataFrame:
    """Compare validation losses of both arms by size, at each step that is the last step of a size.

    With several sizes, steps that only one size has are left out. If a size has runs with the
    purposes ``sizes`` and ``seeds``, the runs with the purpose ``sizes`` are used.

    Returns:
        :func:`arm_differences` with ``size`` and ``parameters``, ordered by step and then size.
        Empty if no run has the purpose ``sizes``.
    """
    sizes = study.runs.groupby("size")["parameters"].first().sort_values()
    tables = {
        (size, parameters): differences
        for size, parameters in sizes.items()
        for purpose in ("seeds", "sizes")  # "sizes" replaces "seeds"
        if len(differences := loss_differences(study, purpose, str(size)))
    }
    if not tables or "sizes" not in set(study.runs["purpose"]):
        return pd.DataFrame()
    keys = ["size", "parameters"]
    rows = pd.concat(tables, names=keys).reset_index(keys)
    is_last = rows["step"].isin(rows.groupby("size")["step"].max())
    is_shared = rows.groupby("step")["size"].transform("count") >= min(len(tables), 2)
    return rows[is_last & is_shared].sort_values("step", kind="stable")


def score_differences(study: Study) -> pd.DataFrame:
    """Return :func:`arm_differences` of the scores of each ``metric``, empty without scores.

    Only runs with the purpose ``seeds`` are compared.
    """
    scores = study.scores[study.scores["purpose"] == "seeds"]
    by_metric = scores.groupby("metric", sort=False)
    tables = {metric: arm_differences(scores, "value") for metric, scores in by_metric}
    if not tables:
        return pd.DataFrame(columns=["metric"])
    return pd.concat(tables, names=["metric"]).reset_index("metric")


def arm_differences(curves: pd.DataFrame, column: str) -> pd.DataFrame:
    """Compare a column of both arms at each step, seed by seed.

    Returns:
        One row per step that all seeds of both arms have reached: ``sigmoid`` and ``softmax``
        (means over seeds), the columns of :func:`student_intervals` for sigmoid minus softmax,
        ``deviation`` (standard deviation of the difference over seeds), ``seeds`` (number of
        seeds), and the difference of each seed (``seed_1``, ...). Empty if an arm has no runs.
    """
    table = curves.pivot_table(column, ["step", "seed"], "attention")
    pairs = table.reindex(columns=ATTENTIONS).dropna()
    by_seed = (pairs["sigmoid"] - pairs["softmax"]).unstack("seed").dropna()
    means = {arm: pairs[arm].unstack("seed").loc[by_seed.index].mean(axis=1) for arm in ATTENTIONS}
    rows = pd.DataFrame(means).join(student_intervals(by_seed))
    rows = rows.assign(deviation=by_seed.std(axis=1), seeds=by_seed.shape[1])
    return rows.join(by_seed.add_prefix("seed_")).reset_index()


def variant_differences(study: Study) -> tuple[pd.DataFrame, int]:
    """Compare each variant of attention with the same arm without it, seed by seed.

    Returns:
        One row per arm and variant: ``attention``, ``variant``, ``loss`` (mean final loss of the
        variant), the columns of :func:`student_intervals` for variant minus plain arm, ``seeds``
        (number of compared seeds) and ``lower`` (number of seeds in which the variant has the lower
        loss). Also the last step that is compared.
    """
    losses, last = losses_of_variants(study)
    is_plain = losses.index.get_level_values("variants") == ""
    plain = losses[is_plain].droplevel("variants")
    losses = losses[~is_plain & losses.index.isin(plain.index, level="attention")]
    by_seed = losses - plain.loc[losses.index.get_level_values("attention")].to_numpy()
    rows = losses.mean(axis=1).to_frame("loss").join(student_intervals(by_seed))
    rows = rows.assign(seeds=by_seed.count(axis=1), lower=(by_seed < 0).sum(axis=1))
    return rows.reset_index(names=["attention", "variant"]), last


def losses_of_variants(study: Study) -> tuple[pd.DataFrame, int]:
    """Return final losses (rows: attention and variants, columns: seeds) at a shared last step."""
    curves = study.curves[study.curves["purpose"].isin(["seeds", "variants"])]
    last = int(curves.groupby("purpose")["step"].max().min())
    keys = ["attention", "variants", "seed"]
    return final_losses(curves[curves["step"] <= last], keys).unstack("seed"), last


def rival_differences(study: Study) -> tuple[pd.DataFrame, int]:
    """Compare each variant of sigmoid with softmax with ``qk_norm``, seed by seed.

    The rule is that of docs/preregistration.md, section 2.

    Returns:
        One row per variant: ``variant``, ``loss`` (mean final loss), the columns of
        :func:`student_intervals` for variant minus rival, ``p`` (two-sided paired t-test, corrected
        for the number of variants by Holm's method), the mean difference of each score in
        :data:`DECIDING` at its last step (NaN without scores), ``seeds``, and ``wins``. Also the
        last step that is compared. No rows without runs of the rival.
    """
    losses, last = losses_of_variants(study)
    is_variant = losses.index.get_level_values("variants") != ""
    is_sigmoid = losses.index.get_level_values("attention") == "sigmoid"
    if RIVAL not in losses.index or not (is_variant & is_sigmoid).any():
        return pd.DataFrame(), last
    own = losses[is_variant & is_sigmoid].droplevel("attention")
    by_seed = own - losses.loc[RIVAL]
    p = [stats.ttest_1samp(row, 0, nan_policy="omit").pvalue for row in by_seed.to_numpy()]
    rows = own.mean(axis=1).to_frame("loss").join(student_intervals(by_seed))
    rows = rows.assign(p=holm(p), seeds=by_seed.count(axis=1))
    scores = study.scores[study.scores["step"] == study.scores["step"].max()]
    means = scores.pivot_table("value", ["attention", "variants"], "metric")
    for metric in DECIDING:
        rows[metric] = math.nan
        if metric in means and RIVAL in means.index:
            rows[metric] = means[metric].xs("sigmoid") - means[metric][RIVAL]
    is_lower = (rows["p"] < 1 - CONFIDENCE) & (rows["difference"] < 0)
    rows["wins"] = is_lower & (rows[[*DECIDING]] > 0).all(axis=1)
    return rows.reset_index(names="variant"), last


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Correct p-values for their number by Holm's method."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)
    scaled = values[order] * np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return corrected


def student_intervals(by_seed: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over seeds (columns) as ``difference``, and its interval (``low``, ``high``).

    Seeds with NaN are left out.
    """
    values = by_seed.to_numpy(dtype=float)
    intervals = [mean_interval(row[~np.isnan(row)], CONFIDENCE) for row in values]
    return pd.DataFrame(intervals, by_seed.index, ["difference", "low", "high"])


def last_sign_change(differences: pd.DataFrame) -> int | None:
    """Return the step from which the mean difference keeps its sign, None if it never changes."""
    signs = np.sign(differences["difference"].to_numpy())
    other = np.flatnonzero(signs != signs[-1])
    return None if not len(other) else int(differences["step"].iloc[other[-1] + 1])


def loss_decrease(curve: pd.DataFrame) -> float:
    """Return the mean validation loss in the ninth tenth of the steps minus the last tenth."""
    losses = curve.dropna(subset=["validation_loss"])
    last = losses["step"].max()
    before = losses[losses["step"].between(0.8 * last, 0.9 * last, "right")]
    recent = losses[losses["step"] > 0.9 * last]
    return float(before["validation_loss"].mean() - recent["validation_loss"].mean())


def detectable_difference(deviation: ArrayLike, seeds: ArrayLike) -> NDArray[np.float64]:
    """Return the true difference that a paired t-test detects with a probability of ``POWER``.

    Args:
        deviation: standard deviation of the paired difference over seeds.
        seeds: number of seeds, at least 2.
    """
    deviation, seeds = np.asarray(deviation), np.asarray(seeds)
    limit = stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1)
    # Noncentrality of the t distribution. Ignores intervals on the wrong side of zero (below 1e-6).
    shift = special.nctdtrinc(seeds - 1, 1 - POWER, limit)
    return np.asarray(shift * deviation / np.sqrt(seeds))


def detectable_differences(study: Study) -> pd.DataFrame:
    """Return the loss differences that the seeds can detect after 20, 50 and 100 % of the steps.

    Returns:
        Rows of :func:`arm_differences` for the runs with the purpose ``seeds``, with ``half_width``
        (half the width of Student's interval) and ``detectable`` (:func:`detectable_difference`).
    """
    means = loss_differences(study, "seeds")
    steps = [round(means["step"].max() * tenths / 10) for tenths in (2, 5, 10)]
    rows = means[means["step"].isin(steps)]
    return rows.assign(
        half_width=(rows["high"] - rows["low"]) / 2,
        detectable=detectable_difference(rows["deviation"], rows["seeds"]),
    )
