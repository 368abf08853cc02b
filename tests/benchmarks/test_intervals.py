"""Intervals against scipy and against brute force."""

import math

import numpy as np
import pytest
from scipy import stats

from scsigmoid.benchmarks.intervals import mean_interval, median_interval, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 6, 11, 49, 50, 249])
@pytest.mark.parametrize("probability", [0.75, 0.975, 0.995])
def test_student_quantile(freedom: int, probability: float):
    assert student_quantile(probability, freedom) == pytest.approx(
        stats.t.ppf(probability, freedom), rel=1e-9
    )


def test_mean_interval_is_students():
    values = np.random.default_rng(0).normal(10, 2, 50)
    found = mean_interval(values.tolist(), 0.95)
    low, high = stats.t.interval(0.95, 49, loc=values.mean(), scale=stats.sem(values))
    assert found == pytest.approx((values.mean(), low, high))
    assert math.isnan(mean_interval([3.0], 0.95).low)
    assert mean_interval([3.0], 0.95).value == 3.0


@pytest.mark.parametrize(("count", "confidence"), [(10, 0.99), (250, 0.99), (50, 0.95), (7, 0.5)])
def test_median_interval_is_scipys(count: int, confidence: float):
    values = np.random.default_rng(1).exponential(size=count)
    found = median_interval(values.tolist(), confidence)
    # Coverage of the k-th smallest to the k-th largest value, for every k.
    coverage = [1 - 2 * stats.binom.cdf(k - 1, count, 0.5) for k in range(1, count // 2 + 1)]
    k = max(index + 1 for index, share in enumerate(coverage) if share >= confidence)
    ordered = np.sort(values)
    assert found == (np.median(values), ordered[k - 1], ordered[-k])


def test_median_interval_covers_as_often_as_it_says():
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        found = median_interval(generator.exponential(size=40).tolist(), 0.9)
        hits += found.low <= math.log(2) <= found.high
    # Binomial(400, >= 0.9): three standard errors below.
    assert hits >= 400 * 0.9 - 3 * math.sqrt(400 * 0.09)


def test_too_few_readings_have_no_interval():
    found = median_interval([1.0, 2.0, 9.0], 0.99)
    assert found.value == 2.0
    assert math.isnan(found.low)
    assert math.isnan(found.high)
