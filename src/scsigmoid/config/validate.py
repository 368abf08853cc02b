"""Validation of settings with pydantic, and messages for its errors."""

import datetime
import difflib
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from scsigmoid.errors import UserError

T = TypeVar("T", bound=BaseModel)

# Values of a configuration, where 50 characters of text count as a value. Aliases of YAML (`*name`)
# can repeat a value exponentially often. PyYAML stores one copy, but later steps visit all.
MOST_VALUES = 200_000


def validate(values: Any, kind: type[T], path: str = "") -> T:
    """Return settings from YAML as a section ``kind`` of the schema.

    Raise a UserError if a setting is unknown, missing, or has a wrong type or value. ``path`` is
    the dotted name of the section, or empty for the whole configuration.
    """
    try:
        return kind.model_validate(normalize(values))
    except ValidationError as error:
        raise UserError(error_message(error.errors(include_url=False), kind, path)) from None


def normalize(values: Any, source: str = "configuration") -> Any:
    """Return values of YAML with dates as text, and the text ``null`` as None.

    Snakemake reads an unquoted 2024-06-11 as a date, and ``null`` in ``--config`` as text. Raise a
    UserError that names ``source`` if there are more than ``MOST_VALUES`` values.
    """
    count = 0

    def copy(value: Any) -> Any:
        nonlocal count
        count += 1 + (len(value) // 50 if isinstance(value, str) else 0)
        if count > MOST_VALUES:
            problem = f"more than {MOST_VALUES:,} values, with those that aliases (*name) repeat"
            raise UserError(f"{source}: {problem}; write fewer")
        if isinstance(value, Mapping):
            return {key: copy(item) for key, item in value.items()}
        if isinstance(value, list):
            return [copy(item) for item in value]
        if isinstance(value, datetime.date):
            return value.isoformat()
        return None if value == "null" else value

    return copy(values)


def error_message(errors: list[Any], kind: Any, path: str) -> str:
    """Return one line about the first of pydantic's errors: setting, problem and value.

    Unknown settings come first: if a name is misspelled, pydantic also reports the correct name as
    missing.
    """
    # pydantic's types of errors for a name that is not a field, or not text
    unknown_types = ("extra_forbidden", "invalid_key")
    unknown_errors = [error for error in errors if error["type"] in unknown_types]
    error = (unknown_errors or errors)[0]
    location = error["loc"]
    # For a wrong key of a mapping, the location ends with the key and "[key]". Remove both, so that
    # the message names the mapping. It shows the key as the value found.
    if location[-1:] == ("[key]",):
        location = location[:-2]
    place = [" ".join(str(part).split()) for part in location]  # a key may have line breaks
    setting = ".".join(filter(None, [path, *place]))
    if unknown_errors:
        names, name = names_next_to(kind, place), place[-1]
        section, dot, _ = name.partition(".")
        if dot and section in names:  # --config training.steps=1
            form = f"{section}={{key: value}}, or in a file as {section}: {{key: value}}"
            return f"{setting}: unknown setting; write it as {form}"
        hint = suggest(name, names) or "; see docs/configuration.md"
        return f"{setting}: unknown setting{hint}"
    if error["type"] == "missing":
        return f"{setting}: missing; add it"
    problem = error["msg"].removeprefix("Value error, ")
    if error["type"] in ("model_type", "dict_type"):
        problem = "Input should be settings as 'key: value'"
    return f"{setting}: {problem}; found {error['input']!r}"


def names_next_to(kind: Any, place: list[str]) -> list[str]:
    """Return the names of the settings in the same section as the setting at ``place``.

    ``place`` contains the names of the sections from the section ``kind`` to the setting.
    """
    for name in place[:-1]:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = typing.get_type_hints(kind)[name]
        else:  # a list or a mapping of sections
            kind = typing.get_args(kind)[-1]
    return [*kind.model_fields]


def suggest(name: object, known: Iterable[str]) -> str:
    """Return a hint about an unknown name: a similar name, all names if at most 20, or nothing."""
    known = list(known)
    matches = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    if matches:
        return f"; did you mean {matches[0]!r}?"
    return f"; expected one of {', '.join(known)}" if 0 < len(known) <= 20 else ""


def check_known(setting: str, noun: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise a UserError if ``names`` in a setting are not all known.

    ``noun`` is the word for a name in the message, for example ``"model"``.
    """
    for name in names:
        if name not in known:
            raise UserError(f"{setting}: unknown {noun} {name!r}{suggest(name, known)}")
