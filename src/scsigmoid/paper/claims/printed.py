"""Measures of the paper's own numbers (``reported.yaml``)."""

from collections.abc import Callable
from typing import Any

from scsigmoid.paper.claims.estimate import Estimate, Measure
from scsigmoid.paper.reported import Claim, Reported, reported
from scsigmoid.paper.results import Results

EVIDENCE = ("src/scsigmoid/paper/reported.yaml",)
Numbers = tuple[float, str]


def printed(measure: Callable[[Reported, dict[str, Any]], Numbers]) -> Measure:
    """A measure of the paper's own numbers: what was printed, and what the claim asks of it."""

    def measured(_: Results, claim: Claim) -> Estimate:
        of = {**claim.of, "decimals": claim.decimals, "value": claim.value}
        value, note = measure(reported(), of)
        return Estimate(value=value, note=note, evidence=EVIDENCE)

    measured.__name__ = measure.__name__
    return measured
