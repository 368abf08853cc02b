"""The interval of a median."""

import numpy as np
import pytest
from scipy import stats

from scsigmoid.benchmarks.rows import median_interval


@pytest.mark.parametrize(
    ("count", "confidence"), [(10, 0.99), (250, 0.99), (50, 0.95), (7, 0.5), (2000, 0.99)]
)
def test_median_interval_by_the_binomial_distribution(count: int, confidence: float):
    values = np.random.default_rng(1).exponential(size=count)
    interval = median_interval(values.tolist(), confidence)
    # Coverage of the k-th smallest to the k-th largest value, for every k.
    coverage = [1 - 2 * stats.binom.cdf(k - 1, count, 0.5) for k in range(1, count // 2 + 1)]
    k = max(index + 1 for index, share in enumerate(coverage) if share >= confidence)
    ordered = np.sort(values)
    assert interval == (np.median(values), ordered[k - 1], ordered[-k])
