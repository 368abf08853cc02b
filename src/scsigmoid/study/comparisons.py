"""Compare the two arms of a study, sigmoid and softmax, seed by seed.

The purpose of a run is the setting ``study.<family>.purpose``. The loss of a run at a step is the
mean of its last :data:`AVERAGED` validation losses up to this step.
"""

import math
from collections.abc import Callable
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from scsigmoid.records.measurements import mean_interval
from scsigmoid.results.labels import ATTENTIONS
from scsigmoid.study.runs import Study

#: Confidence level of intervals, and power of the t-test in :func:`detectable_difference`.
CONFIDENCE, POWER = 0.95, 0.8
#: Number of validation losses whose mean is the loss of a run.
AVERAGED = 5
#: Attention and variant of the rival in :func:`rival_differences`.
RIVAL = ("softmax", "qk_norm")
#: Scores in which a variant of sigmoid must exceed the rival to win.
DECIDING_METRICS = ("linear_probe", "knn", "leiden_nmi")
#: A function that summarizes the validation losses of a run, in the order of the steps.
Summary = Callable[[pd.Series], float]


def mean_of_last(losses: pd.Series) -> float:
    """Return the mean of the last :data:`AVERAGED` validation losses: the loss of a run."""
    return float(losses[-AVERAGED:].mean())


def median_of_last_three(losses: pd.Series) -> float:
    """Return the median of the last three validation losses, as in the rule for collapsed runs.

    Return infinity if one of them is not finite.
    """
    return float(losses[-3:].median()) if np.isfinite(losses[-3:]).all() else math.inf


def final_loss(curve: pd.DataFrame, summary: Summary = mean_of_last) -> float:
    """Return the loss of a run (the rows of its journal).

    Return infinity if a training loss or the loss of the run is not finite.
    """
    loss = summary(curve["validation_loss"].dropna())
    return loss if np.isfinite(curve["loss"]).all() and math.isfinite(loss) else math.inf


def final_losses(
    curves: pd.DataFrame, keys: list[str], summary: Summary = mean_of_last
) -> pd.Series:
    """Return the :func:`final_loss` of each run, indexed by the columns ``keys``."""
    by_run = curves.groupby(keys)[["loss", "validation_loss"]]
    return by_run.apply(final_loss, summary=summary)


def losses_by_step(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a validation loss, with the loss of the run up to the step instead.

    It is infinite from the first training loss on that is not finite.
    """
    is_finite = curves["loss"].map(np.isfinite).groupby(curves["run"]).cummin()
    by_run = curves["validation_loss"].where(is_finite).dropna().groupby(curves["run"])
    # Rolling windows of pandas would leave out infinite losses.
    last_losses = pd.concat([by_run.shift(lag) for lag in range(AVERAGED)], axis=1)
    means = last_losses.mean(axis=1).reindex(curves.index).mask(~is_finite, math.inf)
    return curves.assign(validation_loss=means).dropna(subset=["validation_loss"])


def best_rates(study: Study) -> tuple[pd.DataFrame, pd.Series, int]:
    """Compare the runs with the purpose ``rates`` at the last step that all have reached.

    Returns:
        Final losses (rows: learning rates, columns: arm and seed), the learning rate of each arm
        with the lowest mean loss over seeds, and the step of the last validation loss used (without
        a validation loss, the last step).
    """
    curves = study.all_curves[study.all_curves["purpose"] == "rates"]
    last_shared_step = curves.groupby("run")["step"].max().min()
    curves = curves[curves["step"] <= last_shared_step]
    losses = final_losses(curves, ["learning_rate", "attention", "seed"])
    means = losses.groupby(["learning_rate", "attention"]).mean().unstack("attention")
    steps = curves.dropna(subset=["validation_loss"])["step"]
    last_step = int(steps.max() if len(steps) else last_shared_step)
    # Learning rates x (arm, seed), NaN for a seed that an arm lacks.
    table = cast(pd.DataFrame, losses.unstack("attention").unstack("seed"))
    return table, means.idxmin(), last_step


def loss_differences(study: Study, purpose: str, size: str | None = None) -> pd.DataFrame:
    """Return :func:`arm_differences` of the losses by step, for runs with a purpose (and size)."""
    curves = study.curves[study.curves["purpose"] == purpose]
    if size is not None:
        curves = curves[curves["size"] == size]
    return arm_differences(losses_by_step(curves), "validation_loss")


def loss_differences_by_size(study: Study) -> pd.DataFrame:
    """Compare the losses of both arms by size.

    Returns:
        Rows of :func:`arm_differences` with ``size`` and ``parameters``, ordered by step and then
        by number of parameters. The steps are the last steps of the sizes, each with all sizes that
        reached it. If the study has several sizes, a step with only one size is left out. A size
        without runs for the purpose ``sizes`` has the runs for ``seeds``. Empty if no run has the
        purpose ``sizes``.
    """
    sizes = study.runs.groupby("size")["parameters"].first().sort_values()
    tables = {}
    for size, parameters in sizes.items():
        differences = loss_differences(study, "sizes", str(size))
        if differences.empty:
            differences = loss_differences(study, "seeds", str(size))
        if not differences.empty:
            tables[size, parameters] = differences
    if not tables or "sizes" not in set(study.runs["purpose"]):
        return pd.DataFrame()
    keys = ["size", "parameters"]
    rows = pd.concat(tables, names=keys).reset_index(keys)
    is_last_step = rows["step"].isin(rows.groupby("size")["step"].max())  # of any size
    sizes_at_step = rows.groupby("step")["size"].transform("count")
    is_compared = is_last_step & (sizes_at_step >= min(len(tables), 2))
    return rows[is_compared].sort_values("step", kind="stable")


def score_differences(study: Study) -> pd.DataFrame:
    """Return :func:`arm_differences` of each ``metric`` of the runs with the purpose ``seeds``."""
    scores = study.scores[study.scores["purpose"] == "seeds"]
    by_metric = scores.groupby("metric", sort=False)
    tables = {metric: arm_differences(rows, "value") for metric, rows in by_metric}
    if not tables:
        return pd.DataFrame(columns=["metric"])
    return pd.concat(tables, names=["metric"]).reset_index("metric")


def arm_differences(values: pd.DataFrame, column: str) -> pd.DataFrame:
    """Compare a column of both arms at each step, seed by seed.

    ``values`` also has the columns ``step``, ``seed`` and ``attention`` (the arm).

    Returns:
        One row per step that all seeds of both arms have reached: ``step``, ``sigmoid`` and
        ``softmax`` (means over seeds), the columns of :func:`student_intervals` for sigmoid minus
        softmax (NaN if both arms of a seed are infinite), ``deviation`` (standard deviation of the
        difference over seeds), ``seeds`` (number of seeds), and the difference of each seed
        (``seed_1``, ...). Empty if an arm has no runs.
    """
    by_arm = values.pivot_table(column, ["step", "seed"], "attention")
    pairs = by_arm.reindex(columns=ATTENTIONS).dropna()
    sigmoid, softmax = (pairs[arm].unstack("seed").dropna() for arm in ATTENTIONS)  # steps x seeds
    differences = sigmoid - softmax  # NaN if both are infinite
    rows = pd.DataFrame({"sigmoid": sigmoid.mean(axis=1), "softmax": softmax.mean(axis=1)})
    with np.errstate(invalid="ignore"):  # an infinite mean has no interval
        rows = rows.join(student_intervals(differences.dropna().reindex(differences.index)))
        rows = rows.assign(deviation=differences.std(axis=1, skipna=False))
    rows = rows.assign(seeds=differences.shape[1])
    return rows.join(differences.add_prefix("seed_")).reset_index()


def variant_differences(study: Study, summary: Summary = mean_of_last) -> tuple[pd.DataFrame, int]:
    """Compare each variant of attention with the plain attention of the same arm, seed by seed.

    Returns:
        One row per arm and variant: ``attention``, ``variant``, ``loss`` (mean final loss of the
        variant), the columns of :func:`student_intervals` for variant minus plain attention,
        ``seeds`` (number of compared seeds) and ``lower`` (number of seeds in which the variant has
        the lower loss). The second value is the last step of :func:`losses_of_variants`.
    """
    losses, last_step = losses_of_variants(study, summary)
    is_plain = losses.index.get_level_values("variants") == ""
    plain = losses[is_plain].droplevel("variants")
    has_plain = losses.index.isin(plain.index, level="attention")
    variants = losses[~is_plain & has_plain]
    arms = variants.index.get_level_values("attention")
    differences = variants - plain.loc[arms].to_numpy()
    rows = variants.mean(axis=1).to_frame("loss").join(student_intervals(differences))
    rows = rows.assign(seeds=differences.count(axis=1), lower=(differences < 0).sum(axis=1))
    return rows.reset_index(names=["attention", "variant"]), last_step


def losses_of_variants(study: Study, summary: Summary = mean_of_last) -> tuple[pd.DataFrame, int]:
    """Return the final losses of the runs with the purpose ``seeds`` or ``variants``.

    Rows are pairs (attention, variants), columns are seeds. The second value is the last step that
    runs of both purposes have reached. Later steps are ignored.
    """
    curves = study.curves[study.curves["purpose"].isin(["seeds", "variants"])]
    last_step = int(curves.groupby("purpose")["step"].max().min())
    keys = ["attention", "variants", "seed"]
    losses = final_losses(curves[curves["step"] <= last_step], keys, summary)
    return losses.unstack("seed"), last_step


def rival_differences(study: Study, summary: Summary = mean_of_last) -> tuple[pd.DataFrame, int]:
    """Compare each variant of sigmoid with :data:`RIVAL`, seed by seed.

    A variant wins if its loss is significantly lower and its scores are all higher
    (docs/preregistration.md, section 2).

    Returns:
        One row per variant: ``variant``, ``loss`` (mean final loss), the columns of
        :func:`student_intervals` for variant minus rival, ``p`` (two-sided paired t-test, corrected
        for the number of variants by Holm's method), the difference of the mean scores in
        :data:`DECIDING_METRICS` at the last step with scores (NaN without scores), ``seeds``
        (number of compared seeds), and ``wins``. Empty if the study has no variants of sigmoid or
        no runs of the rival. The second value is the last step of :func:`losses_of_variants`.
    """
    losses, last_step = losses_of_variants(study, summary)
    variants = losses.query("attention == 'sigmoid' and variants != ''").droplevel("attention")
    if RIVAL not in losses.index or variants.empty:
        return pd.DataFrame(), last_step
    differences = variants - losses.loc[RIVAL]
    tests = [stats.ttest_1samp(row, 0, nan_policy="omit") for row in differences.to_numpy()]
    rows = variants.mean(axis=1).to_frame("loss").join(student_intervals(differences))
    rows = rows.assign(p=holm([test.pvalue for test in tests]), seeds=differences.count(axis=1))
    scores = study.scores[study.scores["step"] == study.scores["step"].max()]
    means = scores.pivot_table("value", ["attention", "variants"], "metric")
    for metric in DECIDING_METRICS:
        rows[metric] = math.nan
        if metric in means and RIVAL in means.index:
            rows[metric] = means[metric].xs("sigmoid") - means[metric][RIVAL]
    has_lower_loss = (rows["p"] < 1 - CONFIDENCE) & (rows["difference"] < 0)
    rows["wins"] = has_lower_loss & (rows[[*DECIDING_METRICS]] > 0).all(axis=1)
    return rows.reset_index(names="variant"), last_step


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Correct p-values for multiple comparisons by Holm's method.

    NaN stands for a test that was not possible. It stays NaN and does not count as a test.
    """
    corrected = np.array(p_values, dtype=float)
    is_test = ~np.isnan(corrected)
    values = corrected[is_test]
    order = np.argsort(values)
    scaled = values[order] * np.arange(len(values), 0, -1)
    corrected[is_test] = np.minimum(np.maximum.accumulate(scaled), 1)[np.argsort(order)]
    return corrected


def student_intervals(differences: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over seeds (``difference``) and Student's interval (``low``, ``high``).

    ``differences`` has one column per seed. NaN means that a seed is missing.
    """
    rows = differences.to_numpy(dtype=float)
    intervals = [mean_interval(row[~np.isnan(row)], CONFIDENCE) for row in rows]
    return pd.DataFrame(intervals, differences.index, ["difference", "low", "high"])


def last_sign_change(differences: pd.DataFrame) -> int | None:
    """Return the step from which the mean difference keeps its sign, None without a change.

    Also None if the last difference is NaN.
    """
    signs = np.sign(differences["difference"].to_numpy())
    if np.isnan(signs[-1]):
        return None
    positions = np.flatnonzero(signs != signs[-1])  # rows with another sign than the last row
    return int(differences["step"].iloc[positions[-1] + 1]) if len(positions) else None


def loss_decrease(curve: pd.DataFrame) -> float:
    """Return the decrease of the mean validation loss from the ninth to the last tenth of a run.

    The result is NaN if a tenth has no validation loss.
    """
    losses = curve.set_index("step")["validation_loss"].dropna()
    share = losses.index / curve["step"].max()  # share of the steps
    ninth, last = losses[(share > 0.8) & (share <= 0.9)], losses[share > 0.9]
    return float(ninth.mean() - last.mean())


def detectable_difference(deviation: pd.Series, seeds: pd.Series) -> pd.Series:
    """Return the true difference that a paired t-test detects with a probability of ``POWER``.

    ``deviation`` is the standard deviation of the difference over seeds, and ``seeds`` the number
    of seeds (at least 2).
    """
    critical = stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1)
    # The noncentrality at which t exceeds the critical value with this power. The probability that
    # t is below -critical, which would also be significant, is less than 1e-6 and is ignored.
    noncentrality = special.nctdtrinc(seeds - 1, 1 - POWER, critical)
    return noncentrality * deviation / np.sqrt(seeds)


def detectable_loss_differences(study: Study) -> pd.DataFrame:
    """Return the loss differences that the seeds can detect after 20, 50 and 100 % of the steps.

    The result has the rows of :func:`arm_differences` at these steps, with ``half_width`` (half the
    width of the interval) and ``detectable`` (:func:`detectable_difference`).
    """
    differences = loss_differences(study, "seeds")
    steps = [round(differences["step"].max() * tenths / 10) for tenths in (2, 5, 10)]
    rows = differences[differences["step"].isin(steps)]
    return rows.assign(
        half_width=(rows["high"] - rows["low"]) / 2,
        detectable=detectable_difference(rows["deviation"], rows["seeds"]),
    )
