"""Measures that are computed without any results."""

from collections.abc import Callable

from scsigmoid.paper.claims.estimate import Estimate, Measure
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results


def numeric(measure: Callable[[], tuple[float, str]]) -> Measure:
    """A measure of the theory: a value, and what it was computed on."""

    def measured(_: Results, __: Claim) -> Estimate:
        value, note = measure()
        return Estimate(value=value, note=note, evidence=("src/scsigmoid/paper/claims/theory.py",))

    measured.__name__ = measure.__name__
    return measured
