"""Checks settings with pydantic. All messages about wrong settings are formatted here."""

import dataclasses
import datetime
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from scsigmoid.config.schema import PATTERNS
from scsigmoid.errors import UserError

T = TypeVar("T")

MOST = 100_000  # values of a configuration
UNKNOWN = ("unexpected_keyword_argument", "invalid_key")
CONSTANTS = {None: "null", True: "true", False: "false"}
# pydantic adds the member of a union that it tried to the location of an error.
UNION_MEMBER = re.compile(r"bool|int|float|str|(list|literal|constrained|function)\b.*")


def validate(values: Any, kind: type[T], path: str = "") -> T:
    """Check settings and return them as a section of the schema.

    Args:
        values: settings as read from YAML.
        kind: dataclass of the schema.
        path: dotted name of the section. Empty for the whole configuration.

    Raises:
        UserError: if a setting is unknown, missing, or has a wrong type or value.
    """
    from pydantic import ValidationError

    try:
        settings: T = validator(kind).validate_python(normalize(values))  # type: ignore[arg-type]
    except ValidationError as error:
        raise UserError(message(error.errors(include_url=False), kind, path)) from None
    return settings


@cache
def validator(kind: type) -> Any:
    """Return pydantic's validator of a dataclass."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def normalize(values: Any, left: Iterator[int] | None = None) -> Any:
    """Return values of YAML as the schema expects them.

    Snakemake reads an unquoted 2024-06-11 as a date, and null in ``--config`` as text.

    Raises:
        UserError: if there are too many values, which aliases of YAML can produce.
    """
    left = left or iter(range(MOST))
    if next(left, None) is None:
        raise UserError(f"configuration: more than {MOST:,} values; write fewer, without YAML's *")
    if isinstance(values, Mapping):
        return {key: normalize(value, left) for key, value in values.items()}
    if isinstance(values, list):
        return [normalize(value, left) for value in values]
    if isinstance(values, datetime.date):
        return values.isoformat()
    return None if values == "null" else values


def message(errors: list[Any], kind: Any, path: str) -> str:
    """Return one line about the first error: the setting, the expected value, and the value.

    Of the members of a union, the one that pydantic checked deepest is taken.
    """
    # A misspelled name first: the correct name is then missing.
    first = min(errors, key=lambda error: error["type"] not in UNKNOWN)
    start = location(first)
    place = max((x for x in map(location, errors) if x[: len(start)] == start), key=len)
    setting = ".".join([*([path] if path else []), *place])
    if first["type"] in UNKNOWN:
        return unknown(setting, place[-1], names_at(kind, place))
    if first["type"] == "missing":
        return f"{setting}: missing; add it"
    same = [error for error in errors if location(error) == place]
    first_problem, *others = dict.fromkeys(map(problem, same))
    problems = [first_problem, *(other.removeprefix("should be ") for other in others)]
    return f"{setting}: {' or '.join(problems)}; found {quote(same[0]['input'])}"


def problem(error: dict[str, Any]) -> str:
    """Return what pydantic expects, as ``should be …``."""
    if error["type"] == "string_pattern_mismatch":
        return f"should be {PATTERNS[error['ctx']['pattern']]}"
    if error["type"] in ("dataclass_type", "dict_type"):
        return "should be settings as 'key: value'"
    text = str(error["msg"]).partition(", unable to parse")[0]
    return text.removeprefix("Input ").removeprefix("Value error, ").replace("List", "list")


def unknown(setting: str, name: str, known: list[str]) -> str:
    """Return the message about a name that the schema does not have."""
    outer, _, inner = name.partition(".")
    if outer in known and inner:
        return f"{setting}: give settings within others as '{outer}={{{inner}: ...}}'"
    return f"{setting}: unknown setting{nearest(name, known)}"


def location(error: dict[str, Any]) -> list[str]:
    """Return the names down to the setting of an error. For a wrong key, its section."""
    loc = error["loc"][:-2] if error["loc"][-1:] == ("[key]",) else error["loc"]
    return [" ".join(str(part).split()) for part in loc if not UNION_MEMBER.fullmatch(str(part))]


def names_at(kind: Any, place: list[str]) -> list[str]:
    """Return the names of the settings in the same section as ``place``."""
    for part in place[:-1]:
        if dataclasses.is_dataclass(kind):
            kind = typing.get_type_hints(kind)[part]
        else:  # a list or a mapping
            kind = typing.get_args(kind)[-1]
    return [field.name for field in dataclasses.fields(kind)]


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the end of a message: the most similar valid name, or all valid names."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected one of {', '.join(known)}" if known else ""


def quote(value: Any) -> str:
    """Return a value as YAML writes it, shortened for a message."""
    if value is None or isinstance(value, bool):
        return CONSTANTS[value]
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def check_known(setting: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Check names that a setting refers to.

    Raises:
        UserError: if a name is not known, with the most similar one.
    """
    known = list(known)
    for name in names:
        if name not in known:
            new = " (new ones are added under 'sizes')" * (kind == "size")
            raise UserError(f"{setting}: unknown {kind} {quote(name)}{nearest(name, known)}{new}")
