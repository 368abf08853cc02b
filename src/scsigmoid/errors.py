"""The exception for errors that a user can correct, and parts of its messages."""

import difflib
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """An error that the user can correct.

    The message is one line: the file or setting, what is wrong, what to do. The command line prints
    it without a traceback and exits with code 1.
    """

    def __init__(self, message: str) -> None:
        """Shorten the message, because names and values in it may have any length."""
        super().__init__(shortened(message))


def printable(message: str) -> str:
    """Escape control characters, because a terminal would execute them."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in message
    )


def shortened(message: str) -> str:
    """Return a printable message. If it exceeds 800 characters, leave out the middle."""
    message = printable(message)
    return message if len(message) <= 800 else f"{message[:400]} … {message[-300:]}"


def first_few(names: Iterable[object]) -> str:
    """Return up to five names for a message, and the number of the others."""
    texts = [*map(str, names)]
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


def format_names(name: str, present: Sequence[str]) -> str:
    """List at most eight ``present`` names for a message, those similar to ``name`` first."""
    close = difflib.get_close_matches(name, present, n=3, cutoff=0.4)
    others = [item for item in present if item not in close]
    return ", ".join(repr(item) for item in [*close, *others][:8]) or "none"
