"""Types and limits of settings, and messages about wrong ones."""

import copy
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from scsigmoid.config import schema
from scsigmoid.config.check import check, load
from scsigmoid.config.validate import validate
from scsigmoid.errors import UserError


@dataclass(frozen=True)
class Inner(schema.Settings):
    share: schema.Share


@dataclass(frozen=True)
class Some(schema.Settings):
    count: schema.Count = 1
    cap: schema.Positive | None = None
    name: schema.Text = "a b"
    several: schema.Several[schema.Count] = field(default_factory=lambda: [1, 2])
    label: schema.Label = "x"
    inner: dict[schema.Text, Inner] = field(default_factory=dict)


def test_numbers_may_be_text() -> None:
    """Snakemake's ``--config`` passes them as text."""
    settings = validate({"count": "12", "cap": "1e-3", "several": ["3"]}, Some)
    assert settings == Some(count=12, cap=1e-3, several=[3])


@pytest.mark.parametrize(
    ("changed", "setting", "value"),
    [
        ({"count": 0}, "count", "0"),
        ({"count": True}, "count", "True"),
        ({"name": "a\nb"}, "name", r"'a\\nb'"),
        ({"several": []}, "several", r"\[\]"),
        ({"several": [2, 2]}, "several", r"\[2, 2\]"),
        ({"label": ["a", ""]}, "label", r"\['a', ''\]"),
        ({"label": 3}, "label", "3"),
        ({"inner": {"one": {"share": 1.0}}}, "inner.one.share", "1.0"),
        ({"inner": {" ": {"share": 0.5}}}, "inner", "' '"),
        ({"inner": {"one": 3}}, "inner.one", "3"),
    ],
)
def test_a_wrong_value_is_named(changed: dict[str, Any], setting: str, value: str) -> None:
    with pytest.raises(UserError, match=f"^{setting}: .* should .*; found {value}$"):
        validate(changed, Some)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inner": {"one": {"shar": 1.0}}}, r"inner\.one\.shar: unknown setting; did you mean"),
        ({"inner": {"one": {}}}, r"inner\.one\.share: missing; add it"),
        ({"a\nb": 2}, "a b: unknown setting"),
        ({1: 2}, "1: unknown setting; expected one of count, cap, name, several, label, inner"),
    ],
)
def test_a_wrong_name_is_named(changed: dict[Any, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        validate(changed, Some)


def test_the_message_starts_with_the_section() -> None:
    with pytest.raises(UserError, match=r"^models\.one\.training\.count: "):
        validate({"count": -1}, Some, "models.one.training")


def numbers(values: Any, *place: str | int) -> Iterator[tuple[str | int, ...]]:
    """Places of all numbers of a configuration."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from numbers(value, *place, key)
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from numbers(value, *place, index)
    elif isinstance(values, int | float) and not isinstance(values, bool):
        yield place


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1])
def test_every_number_has_limits(wrong: float) -> None:
    whole = load(overrides={"preset": "paper"})
    values = dataclasses.asdict(whole)
    for place in numbers(values):
        if place == ("seed",) and wrong == -1:
            continue  # any whole number is a seed
        changed = copy.deepcopy(values)
        at = changed
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = wrong
        with pytest.raises(UserError) as caught:
            check(changed)
        assert str(caught.value).startswith(".".join(map(str, place)) + ": "), place
