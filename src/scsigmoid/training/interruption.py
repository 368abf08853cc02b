"""Signals that ask a run to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Request:
    """Whether a signal has asked the run to stop.

    Attributes:
        signal: its number; 0 while there was none.
    """

    def __init__(self) -> None:
        self.signal = 0


@contextmanager
def stop_requests() -> Iterator[Request]:
    """Note SIGTERM and SIGINT instead of dying of them; a second signal acts at once.

    Outside the main thread, where Python allows no signal handlers, nothing changes.
    """
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = number
        restore()

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    for number in previous:
        signal.signal(number, note)
    try:
        yield request
    finally:
        restore()
