"""Types and limits of settings, and messages about wrong ones."""

import math
from typing import Any

import pytest
from configurations import numbers

from scsigmoid.config.check import check, load
from scsigmoid.errors import UserError


@pytest.mark.parametrize(
    ("section", "changed", "setting", "value"),
    [
        ("corpus", {"organisms": ["a\nb"]}, "organisms.0", r"'a\\nb'"),
        ("corpus", {"organisms": []}, "organisms", r"\[\]"),
        (
            "datasets",
            {"simulated_lung": {"label": ["a", ""]}},
            "simulated_lung.label",
            r"\['a', ''\]",
        ),
        ("datasets", {"simulated_lung": 3}, "simulated_lung", "3"),
        ("sizes", {"a": {"layers": 0.5}}, "a.layers", "0.5"),
    ],
)
def test_a_wrong_value_is_named(section: str, changed: Any, setting: str, value: str) -> None:
    with pytest.raises(UserError, match=f"^{section}.{setting}: .* should .*; found {value}$"):
        load(overrides={section: changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"corpus": {"local": [{"file": "a"}]}}, r"corpus\.local\.0\.file: .* mean 'files'"),
        ({"models": {"one": {"context": 128}}}, r"models\.one\.attention: missing; add it"),
        ({"tokens": {"a\nb": 2}}, "tokens.a b: unknown setting"),
        ({"benchmarks": {1: 2}}, "benchmarks.1: unknown setting; expected one of kernel, training"),
    ],
)
def test_a_wrong_name_is_named(changed: dict[Any, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        load(overrides=changed)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1])
def test_every_number_has_limits(wrong: float) -> None:
    values = load(overrides={"preset": "paper"}).model_dump()
    for section, key, name in numbers(values):
        if name == "seed" and wrong == -1:
            continue  # a seed may be negative
        valid, section[key] = section[key], wrong
        with pytest.raises(UserError, match=f"^{name}: "):
            check(values)
        section[key] = valid
