"""Settings as one stage is given them: JSON on its command line, or a stored configuration.

The workflow has checked them.  Here they are read without pydantic, which a bare GPU image may
lack; what a person left out or misspelt on a command line is still named.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from scsigmoid.errors import UserError

T = TypeVar("T")


class Given(dict[str, Any]):
    """Settings by name, also nested ones.

    Attributes:
        source: where they are from, for messages.
    """

    def __init__(self, source: str, values: Mapping[str, Any]) -> None:
        """Take the settings over."""
        super().__init__(
            (key, Given(source, value) if isinstance(value, Mapping) else value)
            for key, value in values.items()
        )
        self.source = source

    def __missing__(self, key: str) -> Any:
        """Name what was asked for.

        Raises:
            UserError: always.
        """
        raise UserError(f"{self.source}: the setting {key!r} is missing; add it")


def from_json(source: str, text: str) -> Given:
    """Settings in a JSON object.

    Raises:
        ValueError: if the text is none.
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("expected a JSON object")
    return Given(source, values)


def from_yaml(path: str | Path) -> Given:
    """Settings in a stored configuration.

    Raises:
        UserError: as :func:`read_yaml`.
    """
    return Given(str(path), read_yaml(path))


def built(kind: type[T], values: Mapping[str, Any]) -> T:
    """A settings object of the schema.

    Raises:
        UserError: for settings that it lacks or does not have.
    """
    try:
        return kind(**values)
    except TypeError as error:
        reason = str(error).rpartition("__init__() ")[2]
        raise UserError(f"settings: {kind.__name__}: {reason}; correct them") from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises:
        UserError: if the file is missing, is not YAML or is not a mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); give an existing file"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" near line {where.line + 1}" if where else ""
        raise UserError(f"{path}: not valid YAML{line}; correct the file") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected settings as 'key: value'")
    return values
