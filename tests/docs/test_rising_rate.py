"""docs/measurements/scripts/rising_rate.py finds the rate at which a run breaks."""

import math
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

PATH = Path(__file__).parents[2] / "docs/measurements/scripts/rising_rate.py"
rising_rate = SimpleNamespace(**runpy.run_path(str(PATH)))

LEARNED, FREQUENCIES = 9000, 9.0


def curve(loss_from: dict[int, float], norm_at: int | None = None) -> pd.DataFrame:
    """Return a run with loss 5 and norm 1. From each step in ``loss_from`` it has another loss."""
    learning = range(50, LEARNED + 1, 50)
    steps = np.array([*learning, *range(LEARNED + 10, LEARNED + 2601, 10)])
    loss = np.full(len(steps), 5.0)
    for step, value in loss_from.items():
        loss[steps >= step] = value
    is_validation = (steps % 200 == 0) | ((steps > LEARNED) & (steps % 50 == 0))
    rates = [5e-4 if s <= LEARNED else rising_rate.ramp_rate(s, LEARNED) for s in steps]
    return pd.DataFrame(
        {
            "step": steps,
            "learning_rate": rates,
            "loss": loss,
            "validation_loss": np.where(is_validation, loss, np.nan),
            "gradient_norm": np.where(steps == norm_at, 200.0, 1.0),
        }
    )


def test_the_ramp_has_thirteen_rates_of_200_steps() -> None:
    rates = [rising_rate.ramp_rate(step, LEARNED) for step in range(9001, 11_601)]
    assert rates[:200] == [1e-3] * 200
    assert rates[-200:] == pytest.approx([6.4e-2] * 200)
    assert rates[200] == pytest.approx(math.sqrt(2) * 1e-3)
    assert len(set(rates)) == 13


def test_a_run_breaks_when_the_median_of_three_losses_has_risen_after_an_explosion() -> None:
    # Validations at 9,850, 9,900 and 9,950: the median of three is high from the second.
    broken = curve({9850: 6.5}, norm_at=9840)
    assert rising_rate.first_break(broken, FREQUENCIES) == 9900
    assert rising_rate.breaking_rate(broken, FREQUENCIES) == pytest.approx(1e-3 * 2**2)


def test_a_loss_that_rises_without_explosion_counts_only_without_the_norm() -> None:
    lost = curve({9850: 6.5})
    assert rising_rate.breaking_rate(lost, FREQUENCIES) == math.inf
    assert rising_rate.breaking_rate(lost, FREQUENCIES, norm_counts=False) == pytest.approx(4e-3)


def test_an_explosion_before_the_ramp_or_a_small_rise_is_not_a_break() -> None:
    assert rising_rate.breaking_rate(curve({9850: 5.9}, norm_at=9840), FREQUENCIES) == math.inf
    # One loss above the level before it returns.
    assert rising_rate.breaking_rate(curve({9850: 7, 9900: 5}, 9840), FREQUENCIES) == math.inf


def test_a_loss_that_is_not_finite_breaks_the_run_at_its_step() -> None:
    table = curve({})
    table.loc[table["step"] == 9210, "loss"] = np.nan
    assert rising_rate.first_break(table, FREQUENCIES) == 9210


def test_a_run_that_has_not_learned_is_left_out() -> None:
    assert math.isnan(rising_rate.breaking_rate(curve({0: 8.6}), FREQUENCIES))
    first = pd.Series([1e-3, 2e-3, math.nan, math.inf])
    second = pd.Series([2e-3, 2e-3, 1e-3, 4e-3])
    assert rising_rate.sign_test(first, second)[:3] == (1, 1, 1)
