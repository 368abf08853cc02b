"""The rule for diverged runs of the stress test."""

import math

import numpy as np
import pytest

from scsigmoid.paper.stress_test import divergence, has_learned, trailing_median
from scsigmoid.results.folder import Journal


def test_trailing_median_treats_nan_as_infinite() -> None:
    values = np.array([1.0, 2.0, 4.0, np.nan, np.nan, np.nan])
    assert trailing_median(values).tolist() == [1.0, 1.5, 2.0, 4.0, np.inf, np.inf]


def run(loss: list[float]) -> Journal:
    """Return the journal of a run with these losses."""
    values = np.array(loss, dtype=float)
    return Journal({}, {"step": np.arange(len(values)), "loss": values})


FALLING = [10 - 0.1 * step for step in range(60)]


def test_divergence() -> None:
    assert divergence(run(FALLING)) is None
    for lost in (10.0, math.nan, math.inf):
        assert divergence(run([*FALLING, *[lost] * 20])) == pytest.approx(60, abs=1)
    # The run recovers from a spike.
    assert divergence(run([*FALLING, *[10.0] * 10, *[4.0] * 20])) is None
    # A single high loss at the end does not count, unless it is not finite.
    assert divergence(run([*FALLING, 10.0])) is None
    assert divergence(run([*FALLING, math.nan])) == 60
    # The loss must rise by at least 1 nat.
    assert divergence(run([*FALLING, *[4.0] * 20, *[4.9] * 20])) is None
    assert divergence(run([*FALLING, *[4.0] * 20, *[5.2] * 20])) == 80
    # The last 6 of 800 rows are enough.
    assert divergence(run([*np.linspace(10, 3, 794), *[9.0] * 6])) == 794


def test_a_loss_that_fell_by_less_than_1_nat_does_not_diverge() -> None:
    journal = run([6 + 0.9 * loss / 6 for loss in [*FALLING, *[10.0] * 30]])
    assert not has_learned(journal)
    assert divergence(journal) is None


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_run_that_is_never_finite_did_not_learn(lost: float) -> None:
    for loss in ([lost] * 60, [lost], [*[lost] * 10, *[9.0] * 50]):
        assert not has_learned(run(loss))
        assert divergence(run(loss)) is None
    late_start = [*[lost] * 10, *FALLING]
    assert divergence(run([*late_start, *[lost] * 20])) == pytest.approx(70, abs=1)
    assert divergence(run(late_start)) is None
