"""The rules for collapsed and diverged runs, and gradient norms, on curves made by hand."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from study.conftest import STUDY, load_study, make_study

from scsigmoid.study.runs import Study
from scsigmoid.study.stability import (
    count_collapsed,
    gradient_norms,
    has_diverged,
    largest_rates,
    stability_runs,
)

MEASURED = Path(__file__).parents[2] / "docs/measurements/h200/arms"


def test_collapsed_runs_and_the_largest_rates(study: Study):
    runs = stability_runs(study)
    collapsed = runs[runs["collapsed"]]
    keys = ["attention", "setting", "learning_rate", "seed"]
    others = "20 steps of warm-up, 128 tokens"  # settings that all runs share
    assert {tuple(row) for row in collapsed[keys].itertuples(index=False)} == {
        ("softmax", f"no clipping, {others}", rate, seed)
        for rate, seed in ((4e-3, 1), (4e-3, 2), (2e-3, 2))
    }
    assert largest_rates(runs).T.to_dict() == {
        f"clipping at 1, {others}": {"sigmoid": 4e-3, "softmax": 4e-3},
        f"no clipping, {others}": {"sigmoid": 4e-3, "softmax": 1e-3},
        f"no clipping, {others}, qk_norm": {"sigmoid": 4e-3, "softmax": 4e-3},
    }
    assert math.isinf(runs["loss"].max())


@pytest.mark.parametrize(
    ("values", "collapsed"),
    [
        ([8.71] * 10, True),  # 0.29 below the baseline
        ([8.69] * 10, False),
        ([6.0] * 7 + [6.29] * 3, False),  # 0.29 above the lowest loss
        ([6.0] * 7 + [6.31] * 3, True),
    ],
)
def test_a_run_collapses_beyond_the_limits(study: Study, values: list[float], collapsed: bool):
    number = study.runs.query("family == 'frontier'").index[0]
    is_changed = study.curves["run"] == number
    for name in ("gradient_norm", "attention_score_max"):
        study.curves[name] = study.curves[name].astype(float)
    study.curves.loc[is_changed, "validation_loss"] = values
    study.curves.loc[is_changed, "gradient_norm"] = [1.0, 7.0, *[2.0] * 8]
    study.curves.loc[is_changed, "attention_score_max"] = [*[3.0] * 9, math.nan]
    runs = stability_runs(study).set_index(["setting", "attention", "learning_rate", "seed"])
    row = runs.loc[tuple(study.runs.loc[number, runs.index.names])]
    assert row["collapsed"] == collapsed
    assert (row["gradient_norm"], row["score"]) == (7, math.inf)


def test_an_arm_without_runs_of_a_setting_has_no_largest_rate(study: Study):
    has_qk_norm = study.curves["family"] == "frontier_qk_norm"
    study.curves = study.curves[~(has_qk_norm & (study.curves["attention"] == "sigmoid"))]
    has_clipping = study.curves["setting"].str.startswith("clipping")
    study.curves.loc[has_clipping & (study.curves["attention"] == "softmax"), "loss"] = math.nan
    rates = largest_rates(stability_runs(study))
    assert rates["sigmoid"].tolist()[:2] == [4e-3, 4e-3]
    assert math.isnan(rates["sigmoid"].iloc[2])
    assert rates["softmax"].tolist() == [0, 1e-3, 4e-3]


def test_settings_of_several_sizes_name_the_size(tmp_path: Path):
    family = {**STUDY["frontier"], "size": ["tiny", "tiny_32"]}
    family["training"] = {**family["training"], "clipping": None}
    study = make_study(load_study({"frontier": family}), tmp_path)
    is_large = study.curves["size"] == "tiny_32"
    study.curves.loc[is_large & (study.curves["learning_rate"] == 1e-3), "loss"] = math.nan
    setting = "no clipping, 20 steps of warm-up, 128 tokens"
    rates = largest_rates(stability_runs(study))
    assert rates.loc[f"{setting}, tiny"].to_dict() == {"sigmoid": 4e-3, "softmax": 1e-3}
    assert rates.loc[f"{setting}, tiny_32"].to_dict() == {"sigmoid": 0, "softmax": 0}


def test_collapsed_runs_by_limit_equal_counts_by_hand():
    """Count the runs without clipping in docs/measurements, one by one from the rows."""
    runs = pd.read_csv(MEASURED / "runs.csv").query("family == 'frontier' and clipping.isna()")
    curves = pd.read_csv(MEASURED / "curves.csv").dropna(subset=["validation_loss"])
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs.itertuples():
        losses = curves[curves["run"] == run.run]["validation_loss"].tolist()
        loss = sorted(losses[-3:])[1]  # the median
        for limit in (0.1, 0.3, 0.5, 0.7):
            has_collapsed = loss > 8.97516 - limit or loss > min(losses) + 0.3
            counts[run.attention, f"collapsed_{limit:g}"] += has_collapsed
    table = count_collapsed(Study(MEASURED)).set_index(["setting", "attention"])
    assert table["diverged"].sum() == 0
    rows = table.loc["no clipping, 200 steps of warm-up, 2,048 tokens"]
    assert rows.filter(like="collapsed").stack().to_dict() == dict(counts)
    assert [counts["softmax", f"collapsed_{x:g}"] for x in (0.1, 0.3, 0.5, 0.7)] == [8, 15, 15, 15]


LEARNED = [9, 8.5, 8, 7.5, 7, 7, 7]


@pytest.mark.parametrize(
    ("losses", "norms", "diverged"),
    [
        ([*LEARNED, 7.9, 8.1, 8.2, 8.1], [10] * 9 + [1000] * 2, True),
        ([*LEARNED, 7.9, 8.1, 8.2, 8.1], [10] * 9 + [999] * 2, False),  # the norm did not explode
        ([*LEARNED, 7.9, 7.9, 7.9, 7.9], [10] * 9 + [1000] * 2, False),  # the loss rose by 0.9 only
        ([*LEARNED, 8.1, 7, 7, 8.1], [10] * 9 + [1000] * 2, False),  # two single high losses
        # The run did not learn: its loss fell by 0.4.
        ([9, 8.8, 8.7, 8.6, 8.6, 8.6, 9, 9.7, 9.7, 9.7, 9.7], [10] * 6 + [1000] * 5, False),
        ([*LEARNED, 8.1, 8.2, 8.1, 7], [10] * 9 + [1000] * 2, True),  # recovery does not count
        ([*LEARNED, 7, 7, 7, math.inf], [10] * 11, True),
    ],
)
def test_a_run_diverges_if_its_loss_rises_and_its_gradient_explodes(
    losses: list[float], norms: list[float], diverged: bool
):
    curve = pd.DataFrame({"step": range(0, 110, 10), "loss": 9.0, "gradient_norm": norms})
    curve["validation_loss"] = losses
    # Rows without a validation loss.
    others = pd.DataFrame({"step": range(5, 110, 10), "loss": 9.0, "gradient_norm": 10})
    assert has_diverged(pd.concat([curve, others]).sort_values("step"), 9.0) == diverged


def test_gradients_with_a_norm_above_the_limit_are_clipped(study: Study):
    curves = study.all_curves
    is_sigmoid = (curves["family"] == "seeds") & (curves["attention"] == "sigmoid")
    norms = np.array([0.5, 1.0, 1.5, *range(3, 29), math.nan])
    curves["gradient_norm"] = curves["gradient_norm"].astype(float)
    curves.loc[is_sigmoid, "gradient_norm"] = norms
    table = gradient_norms(study).set_index(["family", "attention"])
    row = table.loc["seeds", "sigmoid"]
    assert row["steps"] == 30
    assert row["clipped"] == pytest.approx(28 / 30)  # all norms except 0.5 and 1
    ordered = [*norms[:-1], math.inf]
    assert row[["minimum", "lower", "median", "upper", "maximum"]].tolist() == [
        ordered[math.floor(share * 29)] for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    assert ("frontier_qk_norm", "sigmoid") not in table.index  # without clipping
