"""Limits of settings: declared with the types, and none forgotten."""

import copy
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from scsigmoid.config import schema
from scsigmoid.config.check import check, load
from scsigmoid.config.validate import typed
from scsigmoid.errors import UserError


@dataclass(frozen=True)
class Inner(schema.Settings):
    share: schema.Share


@dataclass(frozen=True)
class Some(schema.Settings):
    count: schema.Count = 1
    zero: schema.CountOrZero = 0
    cap: schema.Positive | None = None
    bounded: Annotated[int, schema.at_least(2, 4)] = 3
    plain: float = 0.0
    name: schema.Text = "a b"
    word: Annotated[str, schema.form("[a-c]+", "a word of a, b and c")] = "abc"
    several: schema.Several[schema.Count] = field(default_factory=lambda: [1, 2])
    any_number: schema.AnyNumber[str] = field(default_factory=list)
    label: schema.Label = "x"
    inner: dict[schema.Text, Inner] = field(default_factory=dict)


def test_what_lies_within_the_limits_passes() -> None:
    assert typed({}, Some) == Some()
    for bounded in (2, 4):
        shares = {"one": 1e-9, "two": 1 - 1e-9}
        values = {"bounded": bounded, "cap": 1e-300, "label": ["a", "b"]}
        inner = {name: {"share": share} for name, share in shares.items()}
        found = typed({**values, "inner": inner}, Some)
        assert found == Some(**values, inner={name: Inner(x) for name, x in shares.items()})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"count": 0}, "count: expected at least 1, found 0"),
        ({"zero": -1}, "zero: expected at least 0, found -1"),
        ({"cap": 0.0}, "cap: expected more than 0, found 0.0"),
        ({"cap": math.nan}, "cap: expected a finite number, found nan"),
        ({"cap": math.inf}, "cap: expected a finite number, found inf"),
        ({"plain": -math.inf}, "plain: expected a finite number, found -inf"),
        ({"bounded": 1}, "bounded: expected at least 2 and at most 4, found 1"),
        ({"bounded": 5}, "bounded: expected at least 2 and at most 4, found 5"),
        ({"bounded": True}, "bounded: expected a number, found true"),
        ({"name": ""}, "name: expected text, on one line, found ''"),
        ({"name": "a\nb"}, r"name: expected text, on one line, found 'a\nb'"),
        ({"word": "abd"}, "word: expected a word of a, b and c, found 'abd'"),
        ({"several": []}, "several: expected at least one entry, and none twice, found []"),
        ({"several": [3, 3]}, "several: expected at least one entry, and none twice, found [3, 3]"),
        ({"several": [3, 0]}, "several.1: expected at least 1, found 0"),
        ({"any_number": ["x", "x"]}, "any_number: expected no entry twice, found ['x', 'x']"),
        ({"label": ""}, "label: expected text, on one line, found ''"),
        ({"label": []}, "label: expected at least one entry, and none twice, found []"),
        ({"label": ["a", ""]}, "label.1: expected text, on one line, found ''"),
        ({"label": 3}, "label: expected text or a list in [ ], found 3"),
        (
            {"inner": {"one": {"share": 1.0}}},
            "inner.one.share: expected more than 0 and less than 1, found 1.0",
        ),
        (
            {"inner": {"one": {"shar": 1.0}}},
            "inner.one.shar: unknown setting; did you mean",
        ),
        ({"inner": {" ": {"share": 0.5}}}, "inner: expected text, on one line, found ' '"),
        ({"inner": {"one": {}}}, "inner.one.share: missing setting; add it"),
        ({"a\nb": 2}, "a b: unknown setting"),
        ({1: 2}, "1: unknown setting; expected one of count, zero, cap, bounded"),
    ],
)
def test_what_lies_outside_is_named(changed: dict[Any, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        typed(changed, Some)
    assert str(caught.value).startswith(message)


def test_a_place_stands_in_front() -> None:
    with pytest.raises(UserError, match=r"^models\.one\.training\.count: "):
        typed({"count": -1}, Some, "models.one.training")


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
def test_no_number_of_the_configuration_goes_unchecked(wrong: float) -> None:
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
