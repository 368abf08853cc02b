"""The machine of a benchmark: versions, checksum of the code, clock and power of the GPU."""

import hashlib
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
from contextlib import suppress
from pathlib import Path

import torch

from scsigmoid.benchmarks.flash_sigmoid import VARIABLE
from scsigmoid.files import sha256
from scsigmoid.kernels import PACKAGES, version_of
from scsigmoid.training.devices import device_name

# Folders of this package whose code affects measured times.
TIMED_CODE = ("attention", "benchmarks", "model", "training")


def machine_facts(device: torch.device, command: str) -> dict[str, str]:
    """Return hardware, versions, a checksum of the code, and ``command``, the running command.

    Missing values are "". FlashSigmoid has no version, so its value is the first digits of its
    library's SHA-256.
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


def cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    match = re.search(r"^model name\s*:\s*(.+)", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def driver_version() -> str:
    """Return the NVIDIA driver's version from ``nvidia-smi``, or "" if it is unknown."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    run = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60)
    return run.stdout.split("\n")[0].strip() if run.returncode == 0 else ""


def code_version() -> str:
    """Return a checksum of the files in :data:`TIMED_CODE`."""
    import scsigmoid

    package = Path(scsigmoid.__file__).parent
    digest = hashlib.sha256()
    for folder in TIMED_CODE:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def identity(device: torch.device) -> str:
    """Return the GPU's UUID or, for a CPU, the host name. Neither may be published."""
    return gpu_identity(device) if device.type == "cuda" else platform.node()


# Milliseconds between two readings. A reading occupies the GPU for a few microseconds.
PERIOD_MS = 500


class GpuMonitor:
    """Monitor that reads clock and power from ``nvidia-smi`` while its block runs.

    Attributes:
        clock_mhz: median clock of the multiprocessors, NaN if unknown.
        power_w: median power of the board, NaN if unknown.
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
            # nvidia-smi may buffer lines that it writes to a pipe, but not lines to a terminal.
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
            self.clock_mhz, self.power_w = medians(read_all(self._terminal))
            os.close(self._terminal)


def gpu_identity(device: torch.device) -> str:
    """Return the GPU's UUID in the form that ``nvidia-smi`` uses."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def read_all(terminal: int) -> str:
    """Return all text that was written to a terminal whose other end is closed."""
    parts = []
    # Linux reports the end of the text by an error.
    with suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def medians(text: str) -> tuple[float, float]:
    """Return the median of each column of complete ``clock, power`` lines. Ignore ``[N/A]``."""
    columns: tuple[list[float], list[float]] = ([], [])
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        # Not strict, because a line may be an error message with another number of commas.
        for column, value in zip(columns, line.split(","), strict=False):
            with suppress(ValueError):
                column.append(float(value))
    clock, power = (statistics.median(column) if column else math.nan for column in columns)
    return clock, power
