"""Progress of a run: a bar with loss, rate and time left on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any

from scsigmoid.progress import log


class Display:
    """Shows the steps of one run."""

    def __init__(self, label: str, first: int, steps: int, seconds: float = 10.0) -> None:
        """Begin at step ``first`` of ``steps``; log lines come at most every ``seconds``."""
        self.label = label
        self.first = first
        self.steps = steps
        self.seconds = seconds
        self.begin = self.last = time.monotonic()
        self.bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(desc=label, total=steps, initial=first, unit="step", leave=False)

    def step(self) -> None:
        """One step was taken."""
        if self.bar is not None:
            self.bar.update()

    def show(self, step: int, loss: float, cells_per_second: float) -> None:
        """The loss and the rate at a logging step."""
        if self.bar is not None:
            self.bar.set_postfix_str(f"loss {loss:.4f}, {cells_per_second:.0f} cells/s")
            return
        now = time.monotonic()
        if now - self.last < self.seconds and step < self.steps:
            return
        self.last = now
        left = (now - self.begin) / max(1, step - self.first) * (self.steps - step)
        log(
            f"{self.label}: step {step} of {self.steps}, loss {loss:.4f}, "
            f"{cells_per_second:.0f} cells/s, {duration(left)} left"
        )

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()


def duration(seconds: float) -> str:
    """A time for people: ``12 s``, ``3 min``, ``1 h 05 min``, ``2 d 03 h``."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"
