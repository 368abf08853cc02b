"""Progress of long work: a bar on a terminal or in a notebook, lines of text in a log."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TextIO, TypeVar

from scsigmoid.errors import printable

T = TypeVar("T")
LOG_SECONDS, ANNOUNCE_SECONDS = 10, 60  # minimum times between two lines in a log, on a terminal

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
def verbosity(is_verbose: bool, lowest: int = logging.WARNING) -> Iterator[None]:
    """Print only messages of the level ``lowest`` and above in the block, unless ``is_verbose``."""
    level = LOGGER.level
    if not is_verbose:
        LOGGER.setLevel(max(level, lowest))
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


def track(
    items: Iterable[T],
    *,
    label: str,
    unit: str,
    total: int | None = None,
    size: Callable[[T], int] = lambda item: 1,
) -> Iterator[T]:
    """Iterate over ``items`` and show progress, rate and remaining time.

    On a terminal or in a notebook, progress is a bar, otherwise lines: every 10 seconds in a log,
    and every minute on :data:`terminal`.

    Args:
        label: name of the work, e.g. ``"tokenizing"``.
        unit: what is counted, in the plural, e.g. ``"cells"``.
        total: number of units. The default is ``len(items)``, or unknown if ``items`` has no
            length.
        size: function that returns the number of units of an item (default: 1).
    """
    if not LOGGER.isEnabledFor(logging.INFO):
        yield from items
        return
    if total is None and isinstance(items, Sized):
        total = len(items)
    if "ipykernel.kernelapp" in sys.modules or sys.stderr.isatty():  # a notebook, or a terminal
        from tqdm.auto import tqdm

        with tqdm(desc=label, total=total, unit=f" {unit}", leave=False) as bar:
            for item in items:
                yield item
                bar.update(size(item))
        return
    began = logged_at = announced_at = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += size(item)
        now = time.monotonic()
        if now - logged_at < LOG_SECONDS:
            continue
        logged_at = now
        rate = done / (now - began)
        line = f"{label}: {done:,}" + (f" of {total:,}" if total else "")
        line += f" {unit}, {rate:,.0f}/s" if rate >= 10 else f" {unit}, {rate:.2g}/s"
        if total and rate:
            line += f", {timedelta(seconds=round((total - done) / rate))} left"
        if now - announced_at < ANNOUNCE_SECONDS:
            log(line)
        else:
            announced_at = now
            announce(line)
