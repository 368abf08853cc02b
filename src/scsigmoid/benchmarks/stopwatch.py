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
        self._moments: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Mark the moment at which what was begun so far is done."""
        if self._gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._moments.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Times between the marks, in order; waits for the last one."""
        if not self._gpu:
            return [end - begin for begin, end in pairwise(self._moments)]
        self._events[-1].synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairwise(self._events)]
