"""Clock and power of a GPU while it works."""

import math
import os
import shutil
import statistics
import subprocess
from types import TracebackType

import torch

# Between two readings.  Reading takes the GPU some microseconds.
PERIOD_MS = 500


class GpuMonitor:
    """Reads clock and power beside what runs in its block, from ``nvidia-smi``.

    Attributes:
        clock_mhz: median clock of the multiprocessors; NaN where it is not to be had.
        power_w: median power drawn by the board; NaN likewise.
    """

    def __init__(self, device: torch.device) -> None:
        self.clock_mhz = self.power_w = math.nan
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None
        self._terminal = -1

    def __enter__(self) -> "GpuMonitor":
        command = shutil.which("nvidia-smi")
        if self._device.type == "cuda" and command is not None:
            query = [
                command,
                f"--id={gpu_identity(self._device)}",
                "--query-gpu=clocks.sm,power.draw",
                "--format=csv,noheader,nounits",
                f"--loop-ms={PERIOD_MS}",
            ]
            # Into a pipe it might write nothing before its buffer is full; to a terminal it does.
            self._terminal, end = os.openpty()
            self._process = subprocess.Popen(
                query, stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.DEVNULL
            )
            os.close(end)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self.clock_mhz, self.power_w = medians(drained(self._terminal))
            os.close(self._terminal)


def gpu_identity(device: torch.device) -> str:
    """The GPU's UUID, as ``nvidia-smi`` writes it."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def drained(terminal: int) -> str:
    """All that was written to a terminal whose other end is closed."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            # Linux's way to say that no more will come.
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode(errors="replace")


def medians(text: str) -> tuple[float, float]:
    """Medians of the two columns of ``clock, power`` lines; NaN where there is no number.

    A line that the end of the process cut short is left out, as is what the GPU does not tell
    (``[N/A]``).
    """
    columns: tuple[list[float], list[float]] = ([], [])
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        for column, cell in zip(columns, line.split(","), strict=False):
            try:
                column.append(float(cell))
            except ValueError:
                continue
    clock, power = (statistics.median(column) if column else math.nan for column in columns)
    return clock, power
