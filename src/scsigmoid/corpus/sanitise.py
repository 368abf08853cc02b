"""Text from elsewhere, before it becomes part of a path, an address, a table or a message."""

import re
from typing import Any

from scsigmoid.config.combinations import IDENTIFIER
from scsigmoid.errors import UserError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
LONGEST = 200
LARGEST = 10**15  # bytes or cells; more is nonsense


def one_line(value: Any, longest: int = LONGEST) -> str:
    """Printable text without line breaks or control characters, cut where it is too long."""
    text = str(value)[: 4 * longest]
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def check_identifier(identifier: Any, where: str = "CELLxGENE") -> str:
    """Refuse what is no CELLxGENE id before it becomes part of an address or a path."""
    if not isinstance(identifier, str) or not IDENTIFIER.fullmatch(identifier):
        raise UserError(f"{where}: {one_line(identifier, 60)!r} is not a CELLxGENE id; correct it")
    return identifier


def check_name(name: str, where: str) -> str:
    """Refuse a name that could lead out of its folder."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"{where}: {one_line(name, 60)!r} is not a file name of letters, digits, '_' and '-'"
        )
    return name


def as_count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        return None
    return value


def parse_count(text: str) -> int | None:
    """The count that a header states, or ``None`` where it states none."""
    return as_count(int(text)) if re.fullmatch(r"[0-9]{1,20}", text) else None
