"""The machine of a benchmark: hardware, versions, checksum of the code."""

import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path

import torch

from scsigmoid.benchmarks.flash_sigmoid import VARIABLE
from scsigmoid.files import sha256
from scsigmoid.kernels import PACKAGES, version_of
from scsigmoid.model.devices import device_name
from scsigmoid.training.run import kernel_of

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
        "sdpa": kernel_of("softmax", "sdpa", device),
        **{package: version_of(package) for package in PACKAGES},
        "flash-sigmoid": sha256(library)[:12] if Path(library).is_file() else "",
    }


def cpu_name() -> str:
    """Return the model of the CPU, or its architecture if the model is unknown."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    match = re.search(r"^model name\s*:\s*(.+)", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def driver_version() -> str:
    """Return the NVIDIA driver's version from ``nvidia-smi``, or "" if it is unknown."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        run = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):  # missing, failed, or timed out
        return ""
    return run.stdout.split("\n")[0].strip()


def code_version() -> str:
    """Return a checksum of the files in :data:`TIMED_CODE`."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for folder in TIMED_CODE:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def machine_identity(device: torch.device) -> str:
    """Return the GPU's UUID or, for a CPU, the host name. Neither may be published."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_properties(device).uuid)
    return platform.node()
