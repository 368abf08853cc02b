"""Gives settings their types; all messages about wrong ones are made here."""

import dataclasses
import datetime
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from scsigmoid.errors import UserError

T = TypeVar("T")

MOST = 100_000  # values of a configuration
FEW = 5  # names that are all listed, as the nearest to a wrong one may be another mistake
CONSTANTS = {None: "null", True: "true", False: "false"}
UNKNOWN = ("unexpected_keyword_argument", "invalid_key")
# By the beginning of pydantic's names of what went wrong.
EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text",
    "list": "a list in [ ]",
    "dict": "settings as 'key: value'",
    "dataclass": "settings as 'key: value'",
}
# What pydantic adds to the place of an error: the member of a union that was tried.
TRIED = re.compile(r"bool|int|float|str|(list|literal|constrained|function)\b.*")


def typed(values: Any, kind: type[T], path: str = "") -> T:
    """Check settings and give them their types.

    Args:
        values: as read from YAML.
        kind: a dataclass of the schema.
        path: dotted name of the settings; empty for the whole configuration.

    Raises:
        UserError: for a setting that is unknown, missing, of another type or outside its limits.
    """
    from pydantic import ValidationError

    try:
        settings: T = validator(kind).validate_python(plain(values))  # type: ignore[arg-type]
    except ValidationError as error:
        raise UserError(message(error.errors(include_url=False), kind, path)) from None
    return settings


@cache
def validator(kind: type) -> Any:
    """pydantic's validator of a dataclass; imported where settings are checked, no job needs it."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def plain(values: Any, left: Iterator[int] | None = None) -> Any:
    """The same values as the schema means them.

    YAML takes an unquoted 2024-06-11 for a date, and Snakemake's ``--config`` null for text.

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
    if isinstance(values, datetime.date):
        return values.isoformat()
    return None if values == "null" else values


def message(errors: list[Any], kind: Any, path: str) -> str:
    """One line about the first of pydantic's errors: the setting, what is expected and found."""
    # A misspelt name comes first: the right one is then missing.
    first = min(errors, key=lambda error: error["type"] not in UNKNOWN)
    place = place_of(first)
    # Where a setting takes several types, pydantic says what is wrong with each: the one that got
    # furthest was meant.
    tried = [error for error in errors if place_of(error)[: len(place)] == place]
    place = max(map(place_of, tried), key=len)
    tried = [error for error in tried if place_of(error) == place]
    tried = [error for error in tried if error["type"] == "value_error"] or tried
    first, setting = tried[0], ".".join([*([path] if path else []), *place])
    if first["type"] in UNKNOWN:
        return unknown(setting, place[-1], names_at(kind, place))
    if first["type"] == "missing":
        return f"{setting}: missing setting; add it"
    found = shown(first["input"])
    if first["type"] == "literal_error":
        names = [name for error in tried for name in names_of(error)]
        hint = f"; expected {' or '.join(map(repr, names))}"
        hint = nearest(first["input"], names) if len(names) > FEW else hint
        return f"{setting}: {found} is not a valid value{hint}"
    expected = " or ".join(dict.fromkeys(map(expected_by, tried)))
    return f"{setting}: expected {expected}, found {found}"


def unknown(setting: str, name: str, known: list[str]) -> str:
    """The message about a name that the schema does not have."""
    outer, _, inner = name.partition(".")
    if outer in known and inner:
        return f"{setting}: give settings within others as '{outer}={{{inner}: ...}}'"
    return f"{setting}: unknown setting{nearest(name, known)}"


def place_of(error: dict[str, Any]) -> list[str]:
    """Names down to the setting that an error is about; a wrong key's is what holds the key."""
    loc = error["loc"][:-2] if error["loc"][-1] == "[key]" else error["loc"]
    return [" ".join(str(part).split()) for part in loc if not TRIED.fullmatch(str(part))]


def names_at(kind: Any, place: list[str]) -> list[str]:
    """Names of the settings beside the one at ``place``."""
    for part in place[:-1]:
        if dataclasses.is_dataclass(kind):
            kind = typing.get_type_hints(kind)[part]
        else:  # a list or a mapping
            kind = typing.get_args(kind)[-1]
    return [field.name for field in dataclasses.fields(kind)]


def names_of(error: dict[str, Any]) -> list[str]:
    """The values that a setting takes."""
    return re.findall(r"'([^']*)'", error["ctx"]["expected"])


def expected_by(error: dict[str, Any]) -> str:
    """What one of the tried types expects: a limit of the schema, or the type."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return EXPECTED.get(error["type"].split("_")[0], error["msg"])


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message that points to the nearest valid name."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected one of {', '.join(known)}" if known else ""


def shown(value: Any) -> str:
    """A value as YAML has it, short enough for a message."""
    if value is None or isinstance(value, bool):
        return CONSTANTS[value]
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def check_known(setting: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that a setting gives and the configuration does not have.

    Raises:
        UserError: naming the nearest one that it has.
    """
    known = list(known)
    for name in names:
        if name not in known:
            new = " (new ones are added under 'sizes')" * (kind == "size")
            raise UserError(f"{setting}: unknown {kind} {shown(name)}{nearest(name, known)}{new}")
