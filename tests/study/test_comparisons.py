"""Comparisons of the arms, on curves made by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from scsigmoid.report.figures.style import styled
from scsigmoid.study import comparisons
from scsigmoid.study.figures import scale_figure
from scsigmoid.study.runs import Study
from scsigmoid.study.tables import rivals_table


def test_the_best_rate_has_the_lowest_mean_over_the_seeds(study: Study):
    losses, best, step = comparisons.best_rates(study)
    assert best.to_dict() == {"sigmoid": 2e-3, "softmax": 1e-3}
    assert losses["sigmoid"].loc[2e-3].tolist() == pytest.approx([6.9, 7.9])
    assert step == 100
    curves = study.all_curves
    is_high = curves["family"].eq("rates") & (curves["validation_loss"] > 7.8)
    # Now these rates have the lowest loss for one seed, but not the lowest mean.
    curves.loc[is_high, "validation_loss"] = 8.2
    curves.loc[curves["step"] == 100, "validation_loss"] = math.nan
    _, best, step = comparisons.best_rates(study)
    assert best.to_dict() == {"sigmoid": 1e-3, "softmax": 2e-3}
    assert step == 90


def test_rates_are_compared_at_the_last_step_that_all_have_reached(study: Study):
    curves = study.all_curves
    is_short = curves["run"] == study.runs.query("family == 'rates'").index[0]
    study.all_curves = curves[~is_short | (curves["step"] <= 50)]
    assert comparisons.best_rates(study)[2] == 50


@pytest.mark.parametrize(
    ("losses", "validation_losses", "mean", "median"),
    [
        ([9] * 6, [9, 1, 5, 2, 4, 3], 3, 3),
        ([9] * 6, [9, 5, 1, math.nan, 3, math.nan], 4.5, 3),  # NaN: not measured at this step
        ([9] * 5 + [math.nan], [1, 2, 3, 4, 5, 6], math.inf, math.inf),
        ([9] * 6, [1, 2, 3, 4, 5, math.inf], math.inf, math.inf),
        ([9] * 6, [1, 2, math.inf, 4, 5, 6], math.inf, 5),
    ],
)
def test_the_loss_of_a_run_is_the_mean_of_five_losses(losses, validation_losses, mean, median):
    curve = pd.DataFrame({"loss": losses, "validation_loss": validation_losses})
    assert comparisons.final_loss(curve) == mean
    assert comparisons.final_loss(curve, comparisons.median_of_last_three) == median


def test_the_loss_at_a_step_is_the_loss_of_the_run_up_to_this_step(study: Study):
    curves = study.curves[study.curves["purpose"] == "seeds"]
    by_step = comparisons.losses_by_step(curves).set_index(["run", "step"])["validation_loss"]
    for step in (20, 70, 100):
        losses = comparisons.final_losses(curves[curves["step"] <= step], ["run"])
        assert by_step.xs(step, level="step").to_dict() == pytest.approx(losses.to_dict())


def test_the_difference_is_taken_seed_by_seed(study: Study):
    differences = comparisons.loss_differences(study, "seeds")
    first, last = differences.iloc[0], differences.iloc[-1]
    assert first["difference"] == pytest.approx(0.2)
    assert last["difference"] == pytest.approx(-0.2)
    interval = stats.t.interval(0.95, 2, -0.2, 0.1 / 3**0.5)
    assert (last["low"], last["high"]) == pytest.approx(interval)
    # Of the last five losses, three are after the change at step 50.
    assert comparisons.last_sign_change(differences) == 70
    assert comparisons.last_sign_change(differences[differences["step"] > 60]) is None
    curve = study.curves.query("family == 'seeds' and attention == 'sigmoid' and seed == 1")
    study.curves.loc[curve.index, "validation_loss"] += 3  # one seed of three
    changed = (
        comparisons.loss_differences(study, "seeds").iloc[-1][["sigmoid", "difference"]].tolist()
    )
    assert changed == pytest.approx([last["sigmoid"] + 1, last["difference"] + 1])


@pytest.mark.parametrize("every", [1, 2, 5, 10])
def test_the_loss_decrease_of_a_straight_curve(every: int):
    steps = np.arange(every, 101, every)
    curve = pd.DataFrame({"step": steps, "validation_loss": 9 - 0.02 * steps})
    assert comparisons.loss_decrease(curve) == pytest.approx(0.2)


def test_sizes_are_compared_at_steps_that_they_share(study: Study):
    dropped_steps = {"tiny_32": [50, 100], "tiny_96": [70, 80, 90, 100]}
    for size, steps in dropped_steps.items():
        is_dropped = (study.curves["size"] == size) & study.curves["step"].isin(steps)
        study.curves = study.curves[~is_dropped]
    table = comparisons.loss_differences_by_size(study)
    assert table.groupby("step")["size"].agg(list).to_dict() == {
        50: ["tiny", "tiny_96", "tiny_128"],
        60: ["tiny", "tiny_32", "tiny_96"],
        90: ["tiny", "tiny_32"],
        # Only tiny has step 100.
    }
    with styled():
        panels = scale_figure(study).axes
    titles = [panel.get_title("left") for panel in panels]
    assert titles == ["After 50 steps", "After 60 steps", "After 90 steps"]
    for row in table.to_dict("records"):
        family = "seeds" if row["size"] == "tiny" else "scale"
        curves = study.curves[study.curves["family"].str.startswith(family)]
        curves = curves[(curves["size"] == row["size"]) & (curves["step"] <= row["step"])]
        last = curves.sort_values("step").groupby(["attention", "run"]).tail(5)
        means = last.groupby("attention")["validation_loss"].mean()
        assert row["difference"] == pytest.approx(means["sigmoid"] - means["softmax"])


def test_runs_for_sizes_replace_those_for_seeds(study: Study):
    curves = study.curves
    study.curves = curves[curves["family"].isin(["scale_large", "variants"])]
    assert comparisons.loss_differences_by_size(study)[["size", "step"]].to_numpy().tolist() == [
        ["tiny_128", 50]
    ]
    # The size `tiny` also has runs with the purpose `seeds`.
    study.curves = curves.replace({"size": {"tiny_32": "tiny"}})
    study.runs = study.runs.replace({"size": {"tiny_32": "tiny"}})
    table = comparisons.loss_differences_by_size(study).set_index(["size", "step"])
    assert table.loc[("tiny", 100), "difference"] == pytest.approx(-0.075)
    study.runs = study.runs[study.runs["purpose"] != "sizes"]
    assert not len(comparisons.loss_differences_by_size(study))


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_detectable_difference_is_found_in_80_percent_of_simulated_studies(seeds: int):
    shift = comparisons.detectable_difference(0.2, seeds)
    generator = np.random.default_rng(0)
    samples = generator.normal(shift, 0.2, (40_000, seeds))
    p_values = stats.ttest_1samp(samples, 0, axis=1).pvalue
    assert (p_values < 0.05).mean() == pytest.approx(0.8, abs=0.01)


def test_detectable_differences_of_the_seeds(study: Study):
    rows = comparisons.detectable_loss_differences(study)
    assert rows["step"].tolist() == [20, 50, 100]
    # The differences of the seeds are 0.1, 0.2 and 0.3, with another sign up to step 40.
    deviations = [0.1, 0.1 * (4 - 1) / 5, 0.1]
    assert rows["deviation"].tolist() == pytest.approx(deviations)
    widths = [stats.t.ppf(0.975, 2) * deviation / 3**0.5 for deviation in deviations]
    assert rows["half_width"].tolist() == pytest.approx(widths)


def test_a_variant_wins_by_loss_and_by_scores(rivals: Study):
    curves = rivals.curves
    curves.loc[curves["variants"] == "centered_values", "validation_loss"] -= 5
    runs = rivals.runs.loc[:, ["purpose", "attention", "variants", "seed"]]
    is_sigmoid = runs["attention"] == "sigmoid"
    # The scores of sigmoid are lower at step 50 and higher at step 100.
    rivals.scores = pd.concat(
        runs.assign(metric=metric, step=step, value=is_sigmoid * lead)
        for metric in comparisons.DECIDING_METRICS
        for step, lead in ((50, -0.1), (100, 0.1))
    )
    rows, last_step = comparisons.rival_differences(rivals)
    rows = rows.set_index("variant")
    assert last_step == 100
    # The difference of seed n is the shift of the variant minus 0.15 n.
    shifts = {"centered_values": -5.0, "hybrid_norm": 0.0}
    p = [stats.ttest_1samp([shift - 0.15 * n for n in (1, 2, 3)], 0).pvalue
         for shift in shifts.values()]  # fmt: skip
    corrected = multipletests(p, method="holm")[1]
    assert rows["difference"].tolist() == pytest.approx([shift - 0.3 for shift in shifts.values()])
    assert rows["p"].tolist() == pytest.approx(corrected)
    assert rows["p"]["centered_values"] < 0.05 < rows["p"]["hybrid_norm"]
    assert rows["wins"].to_dict() == {"centered_values": True, "hybrid_norm": False}
    assert rivals_table(rivals).rows[0][0] == "centered_values"
    rivals.scores["value"] *= -1
    assert not comparisons.rival_differences(rivals)[0]["wins"].any()
    rivals.scores = rivals.scores[:0]
    assert not comparisons.rival_differences(rivals)[0]["wins"].any()


def test_holms_correction_equals_statsmodels():
    p = np.random.default_rng(1).uniform(size=7) ** 3
    np.testing.assert_allclose(comparisons.holm(p), multipletests(p, method="holm")[1])
