"""What a benchmark ran on: versions, code, and the GPU's clock and power meanwhile."""

import hashlib
import math
import os
import platform
import shutil
import statistics
import subprocess
from contextlib import suppress
from pathlib import Path

import torch

from scsigmoid.benchmarks.flash_sigmoid import VARIABLE
from scsigmoid.benchmarks.rows import cpu_name
from scsigmoid.files import sha256
from scsigmoid.kernels import PACKAGES, version_of
from scsigmoid.training.devices import device_name

# What a time depends on: folders of this package.
TIMED_CODE = ("attention", "benchmarks", "model", "training")


def machine_facts(device: torch.device, command: str) -> dict[str, str]:
    """Machine, versions and code; empty strings stand for what there is not.

    FlashSigmoid has no version: the first digits of its library's SHA-256 stand for it.

    Args:
        device: what the benchmark ran on.
        command: the command that ran it.
    """
    gpu = device.type == "cuda"
    capability = torch.cuda.get_device_capability(device) if gpu else ()
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    library = os.environ.get(VARIABLE, "")
    return {
        "device": device_name(device),
        "capability": ".".join(map(str, capability)),
        "cpu": cpu_name(),
        "cpu_cores": str(os.cpu_count() or ""),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "triton": version_of("triton"),
        "cuda": str(torch.version.cuda or ""),
        "driver": driver_version() if gpu else "",
        "python": platform.python_version(),
        "command": command,
        "code": code_version(),
        "cudnn": str(cudnn or ""),
        **{package: version_of(package) for package in PACKAGES},
        "flash-sigmoid": sha256(library)[:12] if Path(library).is_file() else "",
    }


def driver_version() -> str:
    """The NVIDIA driver's version, from ``nvidia-smi``; empty where that is not to be had."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    found = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60)
    return found.stdout.split("\n")[0].strip() if found.returncode == 0 else ""


def code_version() -> str:
    """A checksum of the attention kernels, of the models and of the code that times them."""
    import scsigmoid

    package = Path(scsigmoid.__file__).parent
    digest = hashlib.sha256()
    for folder in TIMED_CODE:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def identity(device: torch.device) -> str:
    """Which GPU it is, or which machine; not for publication."""
    return gpu_identity(device) if device.type == "cuda" else platform.node()


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

    def __exit__(self, *_: object) -> None:
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
    # An error is Linux's way to say that no more will come.
    with suppress(OSError):
        while part := os.read(terminal, 65536):
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
            with suppress(ValueError):
                column.append(float(cell))
    clock, power = (statistics.median(column) if column else math.nan for column in columns)
    return clock, power
