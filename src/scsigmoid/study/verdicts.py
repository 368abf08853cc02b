"""What the curves of a study say, by rules stated before the runs (workflow/studies/arms.yaml)."""

import math
from typing import cast

import numpy as np
import pandas as pd

from scsigmoid.paper.tables.seeds import student_interval
from scsigmoid.study.runs import Study

CONFIDENCE = 0.95
#: A collapsed run is not so many nats better than gene frequencies, or so many worse than it was.
#: A model that knows a gene's rank and nothing else is about 0.1 nats better.
BETTER, WORSE = 0.3, 0.3
#: A curve is flat when a tenth of the steps lowers its mean by less than this, in nats.
FLAT = 0.02


def ending(losses: pd.Series) -> float:
    """The median of the last three validation losses; infinite where one is not finite."""
    last = losses.to_numpy()[-3:]
    return float(np.median(last)) if np.isfinite(last).all() else math.inf


def frontier(study: Study, frequencies: float) -> pd.DataFrame:
    """One row a run of the family ``frontier``: where it ended and whether it collapsed.

    Args:
        study: the runs.
        frequencies: loss of gene frequencies on the validation cells, in nats.
    """
    rows = []
    chosen = study.curves[study.curves["family"] == "frontier"]
    keys = ["attention", "clipping", "learning_rate", "seed"]
    for key, curve in chosen.groupby(keys):
        losses = curve["validation_loss"].dropna()
        # A loss that is not a number is an empty cell of the table, and so is one not measured.
        lost = not np.isfinite(curve["loss"]).all()
        end = math.inf if lost else ending(losses)
        rows.append(
            {
                **dict(zip(keys, cast(tuple[object, ...], key), strict=True)),
                "loss": end,
                "collapsed": end > frequencies - BETTER or end > losses.min() + WORSE,
                "gradient_norm": curve["gradient_norm"].fillna(math.inf).max(),
                "score": curve["attention_score_max"].fillna(math.inf).max(),
            }
        )
    return pd.DataFrame(rows)


def survived(runs: pd.DataFrame) -> dict[tuple[str, bool], float]:
    """For each arm, with and without clipping, the largest rate at which no seed collapsed.

    All smaller rates are survived too; NaN where the smallest already is not.
    """
    found = {}
    for key, arm in runs.groupby(["attention", "clipping"]):
        rates = arm.groupby("learning_rate")["collapsed"].any()
        held = rates[~rates.cummax()]
        found[cast(tuple[str, bool], key)] = float(held.index[-1]) if len(held) else math.nan
    return found


def paired(study: Study, family: str, size: str | None = None) -> pd.DataFrame:
    """Both arms' validation losses over steps, seed by seed.

    Returns:
        One row a step: ``sigmoid`` and ``softmax``, means over the seeds, and ``difference``,
        sigmoid minus softmax, with Student's interval (``low``, ``high``) and ``seeds``.
    """
    chosen = study.curves[study.curves["family"] == family].dropna(subset=["validation_loss"])
    if size is not None:
        chosen = chosen[chosen["size"] == size]
    table = chosen.pivot_table("validation_loss", "step", ["attention", "seed"])
    # Seeds of which one arm is missing, then steps that are not everybody's.
    arms = {arm: pd.DataFrame(table[arm]) for arm in ("sigmoid", "softmax")}
    both = (arms["sigmoid"] - arms["softmax"]).dropna(axis=1, how="all").dropna()
    own = {arm: losses.loc[both.index, both.columns].mean(axis=1) for arm, losses in arms.items()}
    found = [student_interval(values, CONFIDENCE) for values in both.to_numpy(dtype=float)]
    columns = {
        "step": both.index,
        "sigmoid": own["sigmoid"].to_numpy(),
        "softmax": own["softmax"].to_numpy(),
        "difference": [one.value for one in found],
        "low": [one.low for one in found],
        "high": [one.high for one in found],
        "seeds": [one.n for one in found],
    }
    return pd.DataFrame(columns)


def last_change(differences: pd.DataFrame) -> int | None:
    """The first step from which the mean difference keeps its sign; None if it always had it."""
    signs = np.sign(differences["difference"].to_numpy())
    other = np.flatnonzero(signs != signs[-1])
    return None if not len(other) else int(differences["step"].iloc[other[-1] + 1])


def flattening(curve: pd.DataFrame) -> float:
    """By how much the last tenth of the steps lies below the tenth before it, in nats."""
    losses = curve.dropna(subset=["validation_loss"])
    last = losses["step"].max()
    recent = losses[losses["step"] > 0.9 * last]["validation_loss"].mean()
    before = losses[losses["step"].between(0.8 * last, 0.9 * last)]["validation_loss"].mean()
    return float(before - recent)
