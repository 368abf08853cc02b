"""Intervals, smoothing and divergence compared with scipy and brute force."""

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.results.folder import Journal, Results
from scsigmoid.results.statistics import (
    divergence,
    has_learned,
    moving_mean,
    paired_difference,
    trailing_median,
)


def test_paired_difference(results: Results) -> None:
    """The interval equals scipy's, and is far narrower than the interval of either loss."""
    ours, theirs = (
        results.cell_losses("heart_oft", name)[1] for name in ("sigmoid_4k", "softmax_4k")
    )
    donors = results.cell_losses("heart_oft", "sigmoid_4k")[2]
    interval = paired_difference(results, "heart_oft", "sigmoid_4k", "softmax_4k")
    difference = ours - theirs
    # donors of 40 cells each: Student's interval of their means
    means = [difference[donors == donor].mean() for donor in sorted(set(donors))]
    low, high = stats.t.interval(0.95, 3, np.mean(means), stats.sem(means))
    assert (interval.value, interval.low, interval.high) == pytest.approx(
        (np.mean(means), low, high)
    )
    assert interval.high - interval.low < 0.5 * 2 * 1.96 * stats.sem(ours)


def test_other_cells_cannot_be_paired(copied: Path, config: Config) -> None:
    path = copied / "metrics/validation_loss/heart_oft/softmax_4k.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    with pytest.raises(UserError, match="heart_oft: sigmoid_4k and softmax_4k were evaluated on"):
        paired_difference(Results(copied, config), "heart_oft", "sigmoid_4k", "softmax_4k")


def test_moving_mean_narrows_at_the_ends() -> None:
    values = np.array([1.0, 2.0, 6.0, 4.0, 5.0])
    assert moving_mean(values, share=0.4).tolist() == [1.0, 3.0, 4.0, 5.0, 5.0]


def test_trailing_median_treats_nan_as_infinite() -> None:
    values = np.array([1.0, 2.0, 4.0, np.nan, np.nan, np.nan])
    assert trailing_median(values).tolist() == [1.0, 1.5, 2.0, 4.0, np.inf, np.inf]


def run(loss: list[float]) -> Journal:
    values = np.array(loss, dtype=float)
    return Journal({}, {"step": np.arange(len(values)), "loss": values})


FALLING = [10 - 0.1 * step for step in range(60)]


def test_divergence() -> None:
    assert divergence(run(FALLING)) is None
    for lost in (10.0, math.nan, math.inf):
        assert divergence(run([*FALLING, *[lost] * 20])) == pytest.approx(60, abs=1)
    # A spike that is recovered from, or a last row alone, unless it is not finite.
    assert divergence(run([*FALLING, *[10.0] * 10, *[4.0] * 20])) is None
    assert divergence(run([*FALLING, 10.0])) is None
    assert divergence(run([*FALLING, math.nan])) == 60
    # The rise is measured in nats.
    assert divergence(run([*FALLING, *[4.0] * 20, *[4.9] * 20])) is None
    assert divergence(run([*FALLING, *[4.0] * 20, *[5.2] * 20])) == 80
    # Six of 800 rows at the very end count.
    assert divergence(run([*np.linspace(10, 3, 794), *[9.0] * 6])) == 794


@pytest.mark.parametrize("scale", [1e-3, 0.9])
def test_a_small_rise_is_not_a_divergence(scale: float) -> None:
    """A loss that falls by less than 1 nat and rises again has not learned first."""
    journal = run([6 + scale * value / 6 for value in [*FALLING, *[10.0] * 30]])
    assert not has_learned(journal)
    assert divergence(journal) is None


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_run_that_is_never_finite_did_not_learn(lost: float) -> None:
    for loss in ([lost] * 60, [lost], [*[lost] * 10, *[9.0] * 50]):
        assert not has_learned(run(loss))
        assert divergence(run(loss)) is None
    again = [*[lost] * 10, *FALLING, *[lost] * 20]
    assert divergence(run(again)) == pytest.approx(70, abs=1)
    assert divergence(run(again[:-20])) is None
