"""Progress of long work: a bar on a terminal or in a notebook, lines of text in a log."""

import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from typing import TextIO, TypeVar

from scsigmoid.errors import printable

T = TypeVar("T")

# The terminal for `announce`, while the command line redirects standard error to a log, or None.
terminal: TextIO | None = None


class StandardErrorHandler(logging.Handler):
    """Handler that prints to the current ``sys.stderr``, which may be redirected to a log."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(record.getMessage()), file=sys.stderr, flush=True)


# Part of the interface: users may change the level and add handlers.
LOGGER = logging.getLogger("scsigmoid")
LOGGER.addHandler(StandardErrorHandler())
LOGGER.setLevel(logging.INFO)
LOGGER.propagate = False


def log(message: str) -> None:
    """Print one line of progress to standard error."""
    LOGGER.info(message)


def warn(message: str) -> None:
    """Print one line to standard error, even if lines of progress are disabled."""
    LOGGER.warning(f"warning: {message}")


@contextmanager
def verbosity(is_verbose: bool) -> Iterator[None]:
    """Print only warnings in the block, unless ``is_verbose``."""
    level = LOGGER.level
    if not is_verbose:
        LOGGER.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        LOGGER.setLevel(level)


def announce(message: str) -> None:
    """Print one line to standard error, and to :data:`terminal` if it is not None."""
    log(message)
    if terminal is not None:
        with suppress(OSError):  # the terminal may be closed
            os.write(terminal.fileno(), f"{printable(message)}\n".encode())


def track(items: Iterable[T], *, label: str, total: int | None = None) -> Iterator[T]:
    """Iterate over ``items`` and show progress. In a log, print at most one line per 10 seconds.

    ``label`` names the work, e.g. ``"tokenizing"``. ``total`` is the number of items. The default
    is ``len(items)``, or unknown if ``items`` has no length.
    """
    if not LOGGER.isEnabledFor(logging.INFO):
        yield from items
        return
    if total is None and isinstance(items, Sized):
        total = len(items)
    if "ipykernel.kernelapp" in sys.modules or sys.stderr.isatty():  # a notebook, or a terminal
        from tqdm.auto import tqdm

        yield from tqdm(items, desc=label, total=total, leave=False)
        return
    printed_at = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - printed_at >= 10:
            printed_at = time.monotonic()
            log(f"{label}: {done}" + (f" of {total}" if total else ""))
