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


def shortened(message: str) -> str:
    """A message of at most some 800 characters; its end, which says what to do, stays."""
    return message if len(message) <= 800 else f"{message[:400]} … {message[-300:]}"


@contextmanager
def naming(temporary: Path, location: str) -> Iterator[None]:
    """Let messages name the file as the user knows it instead of a temporary path."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace(str(temporary), location)) from error.__cause__
