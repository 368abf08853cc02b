"""Times between moments of a run that is not stopped for them."""

import time
from itertools import pairwise

import torch


class Stopwatch:
    """On a GPU its own events mark the moments, so that marking waits for nothing: steps follow
    each other as in training.  On a CPU the clock does.

    Args:
        device: what computes.
    """

    def __init__(self, device: torch.device) -> None:
        self._gpu = device.type == "cuda"
        self._begun: tuple[torch.cuda.Event, float] | None = None
        self._moments: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def begin(self) -> None:
        """Wait for what was begun so far, and set host's and GPU's clock to zero together."""
        if self._gpu:
            torch.cuda.synchronize()
            self._begun = self._event(), time.perf_counter()

    def mark(self) -> None:
        """Mark the moment at which what was begun so far is done."""
        if self._gpu:
            self._events.append(self._event())
        self._moments.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Times between the marks, in order; waits for the last one."""
        if not self._gpu:
            return [end - begin for begin, end in pairwise(self._moments)]
        self._events[-1].synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairwise(self._events)]

    def behind(self) -> list[float]:
        """For each mark, the seconds that a GPU took to reach it after the host had gone on.

        Nearly none where the GPU waits for its host to launch something; a good part of a step, as
        much as the queue of launches holds, where the host waits for the GPU.  Waits for the last
        mark; needs :meth:`begin`.  Empty for a CPU.
        """
        if self._begun is None or not self._events:
            return []
        event, moment = self._begun
        self._events[-1].synchronize()
        return [
            event.elapsed_time(mark) / 1e3 - (then - moment)
            for mark, then in zip(self._events, self._moments, strict=True)
        ]

    @staticmethod
    def _event() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
