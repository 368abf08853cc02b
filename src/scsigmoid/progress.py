"""Progress of long work: a bar on a terminal or in a notebook, plain lines in a log."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from typing import TextIO, TypeVar

from scsigmoid.errors import named

T = TypeVar("T")

# The terminal beside the log, while standard error goes to a log; set by the command line.
terminal: TextIO | None = None


def log(message: str) -> None:
    """Print one line of progress to standard error."""
    print(named(message), file=sys.stderr, flush=True)


def announce(message: str) -> None:
    """Print one line of progress to standard error and, where that is a log, on the terminal too.

    For the few lines that somebody who runs the workflow waits for.
    """
    log(message)
    if terminal is not None:
        with suppress(OSError):  # nobody reads it any more: no reason to stop
            os.write(terminal.fileno(), f"{named(message)}\n".encode())


def track(items: Iterable[T], *, label: str, total: int | None = None) -> Iterator[T]:
    """Iterate over ``items``, showing progress; in a log a line every 10 seconds at most.

    Args:
        items: what to iterate over.
        label: what is being done, e.g. ``"tokenizing"``.
        total: number of items where ``items`` has no length.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    notebook = hasattr(sys.modules.get("ipykernel"), "kernelapp")
    if notebook or sys.stderr.isatty():
        from tqdm.auto import tqdm

        yield from tqdm(items, desc=label, total=total, leave=False)
        return
    last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - last >= 10:
            last = time.monotonic()
            log(f"{label}: {done}" + (f" of {total}" if total else ""))
