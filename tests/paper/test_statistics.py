"""Intervals and smoothing, against scipy and brute force."""

import math

import numpy as np
import pytest
from scipy import stats

from scsigmoid.paper.smoothing import moving_mean, moving_median
from scsigmoid.paper.statistics import mean_interval


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_mean_interval(confidence: float) -> None:
    values = np.random.default_rng(0).normal(3, 2, 200)
    found = mean_interval(values, confidence)
    low, high = stats.norm.interval(confidence, values.mean(), stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))
    assert found.n == 200


def test_one_value_has_no_interval() -> None:
    found = mean_interval(np.array([2.0]), 0.95)
    assert found.value == 2.0
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_moving_mean_narrows_at_the_ends() -> None:
    values = np.array([1.0, 2.0, 6.0, 4.0, 5.0])
    assert moving_mean(values, share=0.4).tolist() == [1.0, 3.0, 4.0, 5.0, 5.0]


def test_moving_median_treats_nan_as_infinite() -> None:
    values = np.array([1.0, 2.0, 3.0, np.nan, np.nan, np.nan])
    found = moving_median(values, share=0.4)
    assert found[1] == 2.0
    assert np.isinf(found[-1])
