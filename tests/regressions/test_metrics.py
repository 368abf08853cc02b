"""Scores and their intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from scsigmoid.measurements import donor_mean


def test_interval_over_donors():
    """Compare with scipy's Student interval of the means of known donors."""
    names = np.repeat(["A", "B", "C", "unknown"], [40, 5, 3, 12])
    values = np.random.default_rng(1).normal(size=60)
    means = [values[names == name].mean() for name in "ABC"]
    expected = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
    result = donor_mean(values, names, 0.95)
    assert result.interval == pytest.approx((np.mean(means), *expected), rel=1e-12)
    assert result.donors == 3
    assert result.note == "12 of 60 cells have no known donor and are left out"


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        ({"A": 30, "B": 30}, "no interval from fewer than 3 donors (2)"),
        ({"": 60}, "no interval from fewer than 3 donors (0); 60 of 60 cells have no known donor"),
        ({"A": 9, "B": 9, "C": 9, "unknown": 33}, "33 of 60 cells have no known donor"),
    ],
)
def test_too_few_known_donors_give_no_interval(cells: dict[str, int], note: str):
    donors = np.repeat([*cells], [*cells.values()])
    result = donor_mean(np.arange(60.0), donors, 0.95)
    assert [math.isnan(end) for end in result.interval[1:]] == [True, True]
    assert result.note == note
