"""The exception for errors that a user can correct."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


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


def first_names(names: Sequence[object]) -> str:
    """Return the first six names, and the number of other names, as text for a message."""
    others = len(names) - 6
    return ", ".join(map(str, names[:6])) + (f" and {others} more" if others > 0 else "")


_NAMES: dict[str, str] = {}  # by temporary path, the file or address that messages show instead


@contextmanager
def naming(temporary: Path, location: str) -> Iterator[None]:
    """Show the user's file or address instead of a temporary path in errors and log lines."""
    _NAMES[str(temporary)] = location
    try:
        yield
    except UserError as error:
        error.args = (named(str(error)),)  # a new UserError would lose the subclass
        raise
    finally:
        del _NAMES[str(temporary)]


def named(message: str) -> str:
    """Return a message in which the user's names replace temporary paths (:func:`naming`)."""
    for temporary, location in _NAMES.items():
        message = message.replace(temporary, location)
    return message
