"""Words for messages about settings."""

import difflib
from collections.abc import Iterable
from typing import Any

CONSTANTS = {None: "null", True: "true", False: "false"}


def nearest(name: object, known: Iterable[str]) -> str:
    """Words that point to the nearest valid name."""
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
