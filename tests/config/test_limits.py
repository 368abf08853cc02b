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
    held_out: bool | float | str = False
    inner: dict[schema.Text, Inner] = field(default_factory=dict)


def test_numbers_may_be_text() -> None:
    """As Snakemake's ``--config`` gives them."""
    settings = validate({"count": "12", "cap": "1e-3", "several": ["3"]}, Some)
    assert settings == Some(count=12, cap=1e-3, several=[3])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"count": 0}, "count: should be greater than or equal to 1; found 0"),
        ({"count": True}, "count: should be a number; found true"),
        ({"count": "many"}, "count: should be a valid integer; found 'many'"),
        ({"cap": math.nan}, "cap: should be a finite number; found nan"),
        ({"name": "a\nb"}, r"name: should be text on one line; found 'a\nb'"),
        ({"several": []}, "several: list should have at least 1 item"),
        ({"several": [3, 3]}, "several: should not contain a value twice; found [3, 3]"),
        ({"several": [3, 0]}, "several.1: should be greater than or equal to 1; found 0"),
        ({"label": ["a", ""]}, "label.1: should be text on one line; found ''"),
        ({"label": 3}, "label: should be a valid string or a valid list; found 3"),
        ({"held_out": None}, "held_out: should be a valid boolean or a valid number or a valid"),
        ({"inner": {"one": {"share": 1.0}}}, "inner.one.share: should be less than 1; found 1.0"),
        ({"inner": {"one": {"shar": 1.0}}}, "inner.one.shar: unknown setting; did you mean"),
        ({"inner": {" ": {"share": 0.5}}}, "inner: should be text on one line; found ' '"),
        ({"inner": {"one": {}}}, "inner.one.share: missing; add it"),
        ({"inner": {"one": 3}}, "inner.one: should be settings as 'key: value'; found 3"),
        ({"a\nb": 2}, "a b: unknown setting"),
        ({1: 2}, "1: unknown setting; expected one of count, cap, name, several"),
    ],
)
def test_a_wrong_setting_is_one_line(changed: dict[Any, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        validate(changed, Some)
    assert str(caught.value).startswith(message)


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


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1, True])
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
