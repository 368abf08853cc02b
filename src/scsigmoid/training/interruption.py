"""Signals that ask a run to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Exit code of a run that was asked to stop and left a checkpoint: run it again to go on.
#: (EX_TEMPFAIL of sysexits.h; a process that a signal killed never ends with it.)
STOPPED = 75
# A batch system's end of time, its warning before, and Ctrl-C.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Request:
    """Whether a signal has asked the run to stop.

    Attributes:
        signal: its number; 0 while there was none.
    """

    def __init__(self) -> None:
        self.signal = 0

    @property
    def name(self) -> str:
        """The signal's name."""
        return signal.Signals(self.signal).name if self.signal else "a signal"


@contextmanager
def stop_requests() -> Iterator[Request]:
    """Note SIGTERM, SIGUSR1 and SIGINT instead of dying of them.

    A second Ctrl-C acts at once.  Further SIGTERMs do not: batch systems send them to torchrun and
    to its processes, and torchrun passes them on, while the checkpoint is being written.

    Outside the main thread, where Python allows no signal handlers, nothing changes.
    """
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and request.signal:
            raise KeyboardInterrupt
        request.signal = number

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
