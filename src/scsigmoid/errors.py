"""The one exception that users see."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """A mistake that the user can mend.

    The message is one line: the file or setting, what is wrong with it, what to do.  The command
    line prints it without a traceback and ends with exit code 1.
    """

    def __init__(self, message: str) -> None:
        """Cut what no line can hold: names and values of others may be of any length."""
        super().__init__(shortened(message))


def printable(message: str) -> str:
    """Escape control characters, which could change what a terminal shows."""
    if message.isprintable():
        return message
    return "".join(
        char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in message
    )


def shortened(message: str) -> str:
    """A printable message of at most some 800 characters; its end, which says what to do, stays."""
    message = printable(message)
    return message if len(message) <= 800 else f"{message[:400]} … {message[-300:]}"


# Temporary paths, and what messages call them meanwhile.
_NAMES: dict[str, str] = {}


@contextmanager
def naming(temporary: Path, location: str) -> Iterator[None]:
    """Let errors and the log name the file as the user knows it instead of a temporary path."""
    _NAMES[str(temporary)] = location
    try:
        yield
    except UserError as error:
        error.args = (named(str(error)),)  # of a subclass, too
        raise
    finally:
        del _NAMES[str(temporary)]


def named(message: str) -> str:
    """A message with the users' names for temporary paths."""
    for temporary, location in _NAMES.items():
        message = message.replace(temporary, location)
    return message
