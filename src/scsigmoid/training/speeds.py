"""Measured speeds of the GPUs of a run, by which the work of a step is divided.

GPUs of one type differ in speed by some percent, even in one machine, and all wait once per step
for the slowest. Every few steps the processes exchange the speeds that they have measured. From
then on, a slower GPU gets fewer cells. Like the number of processes, this changes results by
rounding only.
"""

from statistics import median

import torch

from scsigmoid.progress import log
from scsigmoid.training.processes import Processes
from scsigmoid.training.shares import GlobalBatches

MEASURED_STEPS = 32  # number of steps between two exchanges


class Speeds:
    """The speed of this process, and its exchange with the others."""

    def __init__(self, batches: GlobalBatches, processes: Processes) -> None:
        """Speeds are used for ``batches``. Nothing is measured for one process or on a CPU."""
        self._batches, self._processes = batches, processes
        execution = batches.training.execution
        # In deterministic mode, a resumed run must divide each step as the uninterrupted run.
        is_gpu = processes.device.type == "cuda"
        self.is_measured = is_gpu and processes.count > 1 and not execution.deterministic
        # Steps after the current one that may be prepared already (`shares.prefetch`).
        self._prepared = 2 * execution.workers + 1
        self._readings: list[tuple[float, torch.cuda.Event, torch.cuda.Event]] = []
        self._is_logged = False

    def add(self, step: int, work: float, begin: torch.cuda.Event, end: torch.cuda.Event) -> None:
        """Add the operations of a step, and the events before and after its gradient.

        After ``MEASURED_STEPS`` steps, exchange the speeds. All processes add the same steps.
        """
        self._readings.append((work, begin, end))
        if len(self._readings) == MEASURED_STEPS:
            end.synchronize()
            readings, self._readings = self._readings, []
            # The median, because some steps compile or record kernels. Operations per millisecond
            self.exchange(
                step, median(work / begin.elapsed_time(end) for work, begin, end in readings)
            )

    def exchange(self, step: int, speed: float) -> None:
        """Divide later steps by the speeds of all processes. ``speed`` is that of this process."""
        own = [0] * self._processes.count
        own[self._processes.rank] = round(speed)
        speeds = self._processes.total(own)
        if min(speeds) <= 0:  # a process had no cells
            return
        self._batches.set_speeds(step + self._prepared + 1, speeds)
        if self._processes.is_first and not self._is_logged:
            self._is_logged = True
            mean = sum(speeds) / len(speeds)
            shown = ", ".join(f"{each / mean:.3f}" for each in speeds)
            log(f"work is divided by the speeds of the GPUs (relative to their mean: {shown})")
