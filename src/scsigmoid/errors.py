"""The exception for errors that a user can correct."""

from collections.abc import Iterable, Iterator
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


def first_few(names: Iterable[object]) -> str:
    """Return up to five names for a message, and the number of the others."""
    texts = [*map(str, names)]
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


_LOCATIONS: dict[str, str] = {}  # the text to show, by temporary path


@contextmanager
def shown_as(temporary: Path, location: str) -> Iterator[None]:
    """In errors and log lines, show the user's file or its URL instead of a temporary copy."""
    _LOCATIONS[str(temporary)] = location
    try:
        yield
    except UserError as error:
        error.args = (with_locations(str(error)),)  # a new UserError would lose the subclass
        raise
    finally:
        del _LOCATIONS[str(temporary)]


def with_locations(message: str) -> str:
    """Replace temporary paths in a message by their locations (:func:`shown_as`)."""
    for temporary, location in _LOCATIONS.items():
        message = message.replace(temporary, location)
    return message
