"""docs/measurements/scripts/stress_blocks.py counts runs by the registered rules (simulated)."""

import runpy
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

SCRIPT = Path(__file__).parents[2] / "docs/measurements/scripts/stress_blocks.py"
script = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
SEEDS = range(203, 209)


def journal(seed, attention):
    """A run whose loss falls from 10 to 5.5 nats, with norms of about 10."""
    steps = np.arange(0, 80_001, 10)
    steps[0] = 1
    random = np.random.default_rng([seed, attention == "softmax"])
    loss = 5.5 + 4.5 * np.exp(-steps / 20_000) + random.normal(0, 0.01, len(steps))
    is_validated = (steps == 1) | (steps % 500 == 0)
    return pd.DataFrame(
        {
            "step": steps,
            "loss": loss,
            "validation_loss": np.where(is_validated, loss, np.nan),
            "gradient_norm": 10 + random.random(len(steps)),
            "attention_score_max": 40.0,
            "attention": attention,
            "seed": seed,
        }
    )


@pytest.fixture
def runs():
    return {run: journal(*run) for run in product(SEEDS, ("sigmoid", "softmax"))}


def rise(curve, first=60_000):
    """The loss is 2 nats higher for 5,000 steps, and does not return to its minimum."""
    losses = ["loss", "validation_loss"]
    curve.loc[curve["step"].between(first, first + 5_000), losses] += 2
    curve.loc[curve["step"] > first + 5_000, losses] += 0.5


def explode(curve, step):
    curve.loc[curve["step"] == step, "gradient_norm"] = 5_000


def results(runs, **options):
    rows = pd.concat(runs.values())
    return [line.strip() for line in script.lines(rows, **options)]


def test_outcomes(runs):
    for seed, step in ((204, 60_000), (205, 61_050), (206, 62_010)):
        rise(runs[seed, "softmax"])
        explode(runs[seed, "softmax"], step)
    rise(runs[207, "sigmoid"])  # without an explosion
    rise(runs[208, "sigmoid"], 70_000)
    # Not compared: after the last step of softmax.
    runs[208, "softmax"] = runs[208, "softmax"].query("step <= 69_000")
    explode(runs[203, "softmax"], 60_000)  # without a rise
    # Not the rule's rise: the level falls below its minimum again.
    is_high = runs[203, "sigmoid"]["step"].between(30_000, 33_000)
    runs[203, "sigmoid"].loc[is_high, "validation_loss"] += 2
    lines = results(runs)
    new = lines.index("seeds 205, 206, 207, 208:")
    everything, new_only = lines[:new], lines[new:]

    def p(softmax, sigmoid, of):
        table = [[sigmoid, of - sigmoid], [softmax, of - softmax]]
        return f"{stats.fisher_exact(table).pvalue:.2g}"

    of_50, of_10, rises = everything[1:4]
    assert of_50.endswith(f"steps: sigmoid 0 of 6, softmax 2 of 6, p {p(2, 0, 6)}")
    assert of_10.endswith(f"norm: sigmoid 0 of 6, softmax 3 of 6, p {p(3, 0, 6)}")
    assert rises.endswith(f"nats: sigmoid 1 of 6, softmax 3 of 6, p {p(3, 1, 6)}")
    assert new_only[1].endswith(f"steps: sigmoid 0 of 4, softmax 1 of 4, p {p(1, 0, 4)}")
    assert "up to 46 % of such runs" in everything[5]
    assert "up to 60 % of such runs" in new_only[5]


def test_loss_up_to_the_step_of_the_paper(runs):
    """The last five validations up to step 55,600 are those from 53,500 to 55,500."""
    for (_, attention), curve in runs.items():
        if attention == "softmax":
            is_last = curve["step"].between(53_500, 55_500)
            curve.loc[is_last, "validation_loss"] -= 0.5
    lines = results(runs)
    differences = []
    for seed in SEEDS:
        last = [
            runs[seed, arm].set_index("step")["validation_loss"].loc[53_500:55_500:50]
            for arm in ("sigmoid", "softmax")
        ]
        assert len(last[0]) == 5
        differences.append(last[0].mean() - last[1].mean())
    ends = stats.t.interval(0.95, 5, np.mean(differences), stats.sem(differences))
    text = f"{np.mean(differences):.3f} [{ends[0]:.3f}, {ends[1]:.3f}] nats"
    assert lines[4] == f"loss up to step 55,600: {text}"
    assert 0.4 < np.mean(differences) < 0.6


def test_nothing_is_judged_before_all_seeds_are_complete(runs):
    runs[208, "sigmoid"] = runs[208, "sigmoid"].query("step <= 55_590")
    with pytest.raises(SystemExit, match=r"not judged yet; complete new seeds: \[205, 206, 207\]"):
        results(runs)
    lines = results(runs, no_more_runs=True)
    assert "seeds 205, 206, 207:" in lines
    del runs[206, "softmax"], runs[207, "softmax"]
    with pytest.raises(SystemExit, match="not judged yet"):
        results(runs, no_more_runs=True)


def test_a_loss_that_is_not_finite_is_named(runs):
    runs[205, "softmax"].loc[runs[205, "softmax"]["step"] > 50_000, "loss"] = np.nan
    lines = results(runs)
    assert lines.count("loss not compared, because not finite: seeds [205]") == 2
    for line in lines[1:4]:  # diverged, and risen
        assert line.endswith("softmax 1 of 6, p 1")
    runs[205, "sigmoid"] = pd.concat([runs[205, "sigmoid"]] * 2)
    with pytest.raises(SystemExit, match="a run has a step twice"):
        results(runs)
