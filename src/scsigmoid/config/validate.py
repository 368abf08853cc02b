"""Checks settings with pydantic, and formats its errors."""

import dataclasses
import datetime
import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from scsigmoid.config.schema import Settings
from scsigmoid.errors import UserError

T = TypeVar("T")

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
        raise UserError(message(error.errors(include_url=False), path)) from None
    return settings


@cache
def validator(kind: type) -> Any:
    """Return pydantic's validator of a dataclass."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def normalize(values: Any) -> Any:
    """Return values of YAML as the schema expects them.

    Snakemake reads an unquoted 2024-06-11 as a date, and null in ``--config`` as text.
    """
    if isinstance(values, Mapping):
        return {key: normalize(value) for key, value in values.items()}
    if isinstance(values, list):
        return [normalize(value) for value in values]
    if isinstance(values, datetime.date):
        return values.isoformat()
    return None if values == "null" else values


def message(errors: list[Any], path: str) -> str:
    """Return one line about one of pydantic's errors: the setting, the problem, and the value.

    A misspelled name comes first, because the correct name is then missing. Of the members of a
    union, the one that pydantic checked deepest is taken.
    """
    unknown = ("unexpected_keyword_argument", "invalid_key")
    error = min(errors, key=lambda item: (item["type"] not in unknown, -len(location(item))))
    *_, name = place = location(error) or [""]
    setting = ".".join(filter(None, [path, *place]))
    if error["type"] in unknown:
        sections = Settings.__subclasses__()
        names = {field.name for section in sections for field in dataclasses.fields(section)}  # type: ignore[arg-type]
        hint = "" if name in names else nearest(name, names)
        return f"{setting}: unknown setting{hint or '; see docs/configuration.md'}"
    if error["type"] == "missing":
        return f"{setting}: missing; add it"
    return f"{setting}: {error['msg']}; found {error['input']!r}"


def location(error: dict[str, Any]) -> list[str]:
    """Return the names down to the setting of an error. For a wrong key, its section."""
    loc = error["loc"][:-2] if error["loc"][-1:] == ("[key]",) else error["loc"]
    return [" ".join(str(part).split()) for part in loc if not UNION_MEMBER.fullmatch(str(part))]


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the end of a message: the most similar valid name, or up to 20 valid names."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected one of {', '.join(known)}" if 0 < len(known) <= 20 else ""


def check_known(setting: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Check names that a setting refers to.

    Raises:
        UserError: if a name is not known, with the most similar one.
    """
    known = list(known)
    for name in names:
        if name not in known:
            raise UserError(f"{setting}: unknown {kind} {name!r}{nearest(name, known)}")
