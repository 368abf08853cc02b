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
    """converged.py judged the same file by means over the same validations."""
    _, rates = converged.judge(converged.read_curves(PILOT), frequencies=9.018)
    other = capsys.readouterr().out.splitlines()
    lines = list(deeper_runs.judge(pd.read_csv(PILOT)))
    chosen = [line for line in lines if line.endswith("chosen")]
    assert [line.split(":")[0] for line in chosen] == [
        f"{attention} at {rate:g}" for attention, rate in sorted(rates.items())
    ]
    means = {line.split(" (")[0] for line in lines if " at " in line and "nats" in line}
    assert len(means) == 8
    assert means <= set(other)


def test_a_short_pilot_is_not_judged():
    pilot = pd.read_csv(PILOT)
    short = (pilot["seed"] == 61) & (pilot["learning_rate"] == 1e-3) & (pilot["step"] > 5900)
    with pytest.raises(SystemExit, match="step 5800"):
        list(deeper_runs.judge(pilot[~short]))


def test_a_rate_with_a_collapsed_run_is_not_chosen():
    pilot = pd.read_csv(PILOT)
    is_best = (pilot["attention"] == "sigmoid") & (pilot["learning_rate"] == 5e-4)
    pilot.loc[is_best & (pilot["seed"] == 62), "validation_loss"] += 5
    lines = list(deeper_runs.judge(pilot))
    assert any(line.startswith("sigmoid at 0.00025") and "chosen" in line for line in lines)
    assert "sigmoid: at an edge of the range" in lines
