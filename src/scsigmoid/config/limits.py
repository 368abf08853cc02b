"""Which values a setting takes beyond its type, declared beside the type in the schema.

The markers stand in ``typing.Annotated`` and need nothing but Python, as the schema does.
"""

import dataclasses
import math
import re
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from scsigmoid.config.words import shown
from scsigmoid.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a number.

    Attributes:
        least: smallest value.
        above: what a value exceeds.
        most: largest value.
        below: what a value stays under.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    @property
    def words(self) -> str:
        """The bounds in words, e.g. ``at least 1 and at most 64``."""
        bounds = {
            "at least": self.least,
            "more than": self.above,
            "at most": self.most,
            "less than": self.below,
        }
        return " and ".join(
            f"{name} {bound}" for name, bound in bounds.items() if bound is not None
        )

    def admits(self, value: float) -> bool:
        """Whether a number lies within the bounds; NaN never does."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True)
class Form:
    """What a text looks like.

    Attributes:
        pattern: regular expression of the whole text.
        words: the same in words.
    """

    pattern: str
    words: str

    def admits(self, value: str) -> bool:
        """Whether a text has the form."""
        return re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True)
class Distinct:
    """A list with no entry twice.

    Attributes:
        least: smallest number of entries.
    """

    least: int = 0

    @property
    def words(self) -> str:
        """The same in words."""
        return "no entry twice" if self.least == 0 else "at least one entry, and none twice"

    def admits(self, value: list[Any]) -> bool:
        """Whether a list has the entries, each once."""
        return self.least <= len(value) == len(set(value))


Count = Annotated[int, Limits(least=1)]
CountOrZero = Annotated[int, Limits(least=0)]
Positive = Annotated[float, Limits(above=0)]
NotNegative = Annotated[float, Limits(least=0)]
Share = Annotated[float, Limits(above=0, below=1)]
Text = Annotated[str, Form(r"[^\x00-\x20\x7f][^\x00-\x1f\x7f]*", "text, on one line")]
Several = Annotated[list[T], Distinct(least=1)]
AnyNumber = Annotated[list[T], Distinct()]


def check_limits(value: Any, kind: Any, path: str) -> None:
    """Refuse values that the markers in a type do not admit, and numbers that are not finite.

    Args:
        value: of the type, its limits apart.
        kind: the type, as annotated in the schema.
        path: dotted name of the setting; empty for the whole configuration.

    Raises:
        UserError: naming the first such setting, and what it takes.
    """
    origin = typing.get_origin(kind)
    if origin is Annotated:
        kind, *markers = typing.get_args(kind)
        for marker in markers:
            if not marker.admits(value):
                raise UserError(f"{path}: expected {marker.words}, found {shown(value)}")
        check_limits(value, kind, path)
    elif origin in (typing.Union, types.UnionType):
        kinds = [option for option in typing.get_args(kind) if option is not types.NoneType]
        # Of several types, only a list is told from what is none.
        fits = [option for option in kinds if is_list(option) == isinstance(value, list)]
        check_limits(value, fits[0] if len(fits) == 1 and value is not None else Any, path)
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            inner = f"{path}.{field.name}" if path else field.name
            check_limits(getattr(value, field.name), hints[field.name], inner)
    elif origin is list:
        for index, item in enumerate(value):
            check_limits(item, typing.get_args(kind)[0], f"{path}.{index}")
    elif origin is dict:
        key_kind, item_kind = typing.get_args(kind)
        for key, item in value.items():
            check_limits(key, key_kind, path)
            check_limits(item, item_kind, f"{path}.{key}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{path}: expected a finite number, found {value}")


def is_list(kind: Any) -> bool:
    """Whether a type, as annotated, is a list."""
    bare = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    return typing.get_origin(bare) is list
