"""docs/measurements/scripts/deeper_runs.py judges a pilot."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

DOCS = Path(__file__).parents[2] / "docs/measurements"
deeper_runs = SimpleNamespace(**runpy.run_path(str(DOCS / "scripts/deeper_runs.py")))
converged = SimpleNamespace(**runpy.run_path(str(DOCS / "scripts/converged.py")))
PILOT = DOCS / "h100/converged/pilot.csv"


def test_rates_and_losses_are_those_of_another_program(capsys):
    """converged.py judges the same runs by means over the same validations."""
    pilot = converged.read_curves(PILOT)
    until = {
        run: {step: loss for step, loss in curve.items() if step <= 12_000}
        for run, curve in pilot.items()
    }
    groups = converged.losses_at(until, 12_000)
    lines = list(deeper_runs.judge(pd.read_csv(PILOT)))
    for (attention, rate), losses in groups.items():
        best = min((sum(groups[key]), key[1]) for key in groups if key[0] == attention)[1]
        mean = sum(losses) / len(losses)
        text = ", ".join(f"{loss:.4f}" for loss in losses)
        chosen = " chosen" if rate == best else ""
        assert f"{attention} at {rate:g}: {mean:.4f} nats ({text}){chosen}" in lines


def test_a_short_pilot_is_not_judged():
    pilot = pd.read_csv(PILOT)
    short = (pilot["seed"] == 61) & (pilot["learning_rate"] == 1e-3) & (pilot["step"] > 9900)
    with pytest.raises(SystemExit, match="step 9800"):
        list(deeper_runs.judge(pilot[~short]))


@pytest.mark.parametrize("loss", [9.0, float("nan")])
def test_a_rate_with_a_collapsed_run_is_not_chosen(loss):
    pilot = pd.read_csv(PILOT)
    is_run = (pilot["attention"] == "sigmoid") & (pilot["learning_rate"] == 5e-4)
    is_run &= pilot["seed"] == 62
    pilot.loc[is_run & pilot["validation_loss"].notna(), "validation_loss"] = loss
    lines = list(deeper_runs.judge(pilot[pilot["learning_rate"] <= 1e-3]))
    assert any(line.startswith("sigmoid at 0.001") and "chosen" in line for line in lines)
    assert "sigmoid: at an edge of its range" in lines
    assert "softmax: at an edge of its range" not in lines


def test_without_a_rate_there_are_no_pairs():
    pilot = pd.read_csv(PILOT)
    pilot.loc[pilot["attention"] == "softmax", "validation_loss"] += 5
    with pytest.raises(SystemExit, match="softmax: all rates"):
        list(deeper_runs.judge(pilot))


def test_a_pilot_without_a_run_is_not_judged():
    pilot = pd.read_csv(PILOT)
    is_run = (pilot["seed"] == 61) & (pilot["learning_rate"] == 1e-3)
    with pytest.raises(SystemExit, match="different numbers of runs"):
        list(deeper_runs.judge(pilot[~(is_run & (pilot["attention"] == "sigmoid"))]))
    with pytest.raises(SystemExit, match="without rival"):
        list(deeper_runs.judge(pilot[pilot["attention"] == "softmax"]))
