"""Gives settings their types, and words what is wrong with them."""

import dataclasses
import datetime
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from scsigmoid.config.limits import check_limits
from scsigmoid.config.words import nearest, shown
from scsigmoid.errors import UserError

T = TypeVar("T")

MOST = 100_000  # values of a configuration
FEW = 5  # names that are all listed, as the nearest to a wrong one may be another mistake
# By the beginning of pydantic's names of what went wrong.
EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list in [ ]",
    "dict": "settings as 'key: value'",
}
# What pydantic adds to the place of an error: the member of a union that was tried, or a key.
TRIED = re.compile(r"\[key\]|bool|int|float|str|list\[.*\]|constrained.*|function.*")


def typed(values: Any, kind: type[T], path: str = "") -> T:
    """Check settings and give them their types.

    Args:
        values: as read from YAML.
        kind: a dataclass of the schema.
        path: dotted name of the settings; empty for the whole configuration.

    Raises:
        UserError: for the first setting that is unknown, missing, of another type or outside its
            limits.
    """
    values = plain(values)
    check_keys(values, kind, f"{path}." if path else "")
    try:
        settings = TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise UserError(worded(error, path)) from None
    check_limits(settings, kind, path)
    return settings


def plain(values: Any, left: Iterator[int] | None = None) -> Any:
    """The same values with dates as text: YAML takes an unquoted 2024-06-11 for a date.

    Raises:
        UserError: if there are far too many, as names of YAML that stand for one another can make.
    """
    left = left or iter(range(MOST))
    if next(left, None) is None:
        raise UserError(f"configuration: more than {MOST:,} values; write fewer, without YAML's *")
    if isinstance(values, Mapping):
        return {key: plain(value, left) for key, value in values.items()}
    if isinstance(values, list):
        return [plain(value, left) for value in values]
    return values.isoformat() if isinstance(values, datetime.date) else values


def check_keys(value: Any, kind: Any, path: str) -> None:
    """Refuse keys that ``kind`` does not have, missing keys, and true or false for a number.

    Args:
        value: as read from YAML.
        kind: its type.
        path: dotted name of what holds the keys, with a dot behind it.
    """
    origin = typing.get_origin(kind)
    kinds = typing.get_args(kind) if origin in (typing.Union, types.UnionType) else (kind,)
    present = [one for one in kinds if one is not types.NoneType]
    if value is not None and len(present) == 1 < len(kinds):
        check_keys(value, present[0], path)
    elif origin is dict and isinstance(value, Mapping):
        for key, item in value.items():
            check_keys(item, typing.get_args(kind)[1], f"{path}{key}.")
    elif origin is list and isinstance(value, list):
        for index, item in enumerate(value):
            check_keys(item, typing.get_args(kind)[0], f"{path}{index}.")
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise UserError(
                f"{path.rstrip('.')}: expected settings as 'key: value', found {shown(value)}"
            )
        hints = typing.get_type_hints(kind)
        for key in value:
            outer, _, inner = str(key).partition(".")
            if outer in hints and inner:
                raise UserError(
                    f"{path}{key}: give settings within others as '{outer}={{{inner}: ...}}'"
                )
            if key not in hints:
                raise UserError(f"{path}{key}: unknown setting{nearest(key, hints)}")
        for field in dataclasses.fields(kind):
            if field.name in value:
                check_keys(value[field.name], hints[field.name], f"{path}{field.name}.")
            elif (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ):
                raise UserError(f"{path}{field.name}: missing setting; add it")
    elif isinstance(value, bool) and bool not in kinds and {int, float} & set(kinds):
        # pydantic would take true for 1
        raise UserError(f"{path.rstrip('.')}: expected a number, found {shown(value)}")


def worded(error: ValidationError, path: str) -> str:
    """The first error of pydantic in one line of ours."""
    errors = error.errors()
    place = place_of(errors[0]["loc"])
    setting = ".".join(part for part in (path, place) if part)
    first = errors[0]
    if first["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", str(first.get("ctx", {}).get("expected", "")))
        found = first["input"]
        hint = (
            nearest(found, names)
            if len(names) > FEW
            else f"; expected {' or '.join(map(repr, names))}"
        )
        return f"{setting}: {shown(found)} is not a valid value{hint}"
    # Of a setting that takes several types, pydantic reports each.
    tried = [
        EXPECTED.get(each["type"].split("_")[0], each["msg"])
        for each in errors
        if place_of(each["loc"]) == place
    ]
    return f"{setting}: expected {' or '.join(dict.fromkeys(tried))}, found {shown(first['input'])}"


def place_of(location: tuple[int | str, ...]) -> str:
    """Dotted name of the setting that an error of pydantic is about."""
    return ".".join(str(part) for part in location if not TRIED.fullmatch(str(part)))
