"""How held-out cells are written down and chosen."""

from pathlib import Path

import numpy as np
import pytest

from scsigmoid.corpus.held_out import as_text, choose

HERE = Path("cells.h5ad")


def no_column(name: str):
    raise AssertionError(name)


def test_as_text():
    assert as_text(True, 42) == "all"
    assert as_text(False, 42) == ""
    assert as_text(0.1, 42) == "fraction=0.1 seed=42"
    assert as_text("split=test", 42) == "split=test"


@pytest.mark.parametrize(("fraction", "count"), [(0.1, 10), (0.001, 1), (0.999, 99), (1e-05, 1)])
def test_fraction(fraction, count):
    held = choose(as_text(fraction, 3), 100, no_column, HERE)
    assert held.sum() == count
    np.testing.assert_array_equal(held, choose(as_text(fraction, 3), 100, no_column, HERE))


def test_fraction_is_spread_over_the_file():
    held = np.flatnonzero(choose(as_text(0.5, 3), 10_000, no_column, HERE))
    assert abs(held.mean() - 5000) < 150


def test_values_may_hold_equals_signs():
    values = np.array(["x=1", "y"], dtype=object)
    assert choose("batch=x=1", 2, lambda name: values, HERE).tolist() == [True, False]
