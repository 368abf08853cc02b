"""The numbers of the paper next to the numbers of a run, by group (docs/comparison.md)."""

from scsigmoid.paper import cost, hours, kernel_speed, model_quality, stress_test
from scsigmoid.paper.number import Number
from scsigmoid.results.folder import Results

#: Titles of the groups of numbers (see :mod:`scsigmoid.paper.differences`).
GROUPS = {
    "quality": "Quality of the models",
    "stability": "Training stability",
    "kernel": "Attention kernel",
    "cost": "Training cost, projected from the speed of one GPU",
    "hours": "Training cost of the completed runs",
}


def numbers(results: Results) -> list[Number]:
    """Return the numbers of all groups. In each group, the headlines are first."""
    return [
        number
        for module in (model_quality, stress_test, kernel_speed, cost, hours)
        for number in sorted(module.numbers(results), key=lambda number: not number.headline)
    ]
