"""What a benchmark ran on."""

import hashlib
import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from scsigmoid.benchmarks.flash_sigmoid import VARIABLE
from scsigmoid.files import sha256
from scsigmoid.training.devices import device_name

# What a time of the kernel benchmark depends on, beside the kernels.
TIMING_MODULES = (
    "cases", "compiling", "flash_sigmoid", "inputs", "kernel", "preparing", "providers",
    "sigmoid_kernels", "softmax_kernels", "timing", "turns",
)  # fmt: skip
ATTENTION_PACKAGES = (
    "triton-sigmoid", "flash-attn-3", "flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels",
)  # fmt: skip


def machine_facts(device: torch.device, command: str) -> dict[str, str]:
    """The machine in words; empty strings stand for what it does not have.

    Args:
        device: what the benchmark ran on.
        command: the command that ran it.
    """
    gpu = device.type == "cuda"
    capability = torch.cuda.get_device_capability(device) if gpu else ()
    return {
        "device": device_name(device),
        "capability": ".".join(map(str, capability)),
        "cpu": cpu_name(),
        "cpu_cores": str(os.cpu_count() or ""),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "triton": triton_version(),
        "cuda": str(torch.version.cuda or ""),
        "driver": driver_version() if gpu else "",
        "python": platform.python_version(),
        "command": command,
    }


def triton_version() -> str:
    """Triton's version; empty where it is not installed."""
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


def cpu_name() -> str:
    """The CPU's model, as Linux or the platform names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def driver_version() -> str:
    """The NVIDIA driver's version, from ``nvidia-smi``; empty where that is not to be had."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    found = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60)
    return found.stdout.split("\n")[0].strip() if found.returncode == 0 else ""


def attention_versions() -> dict[str, str]:
    """Versions of the libraries whose kernels are compared; empty for those that are not there.

    FlashSigmoid has none: the first digits of its library's SHA-256 stand for it.
    """
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    found = {"cudnn": str(cudnn or "")}
    for package in ATTENTION_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = ""
    library = os.environ.get(VARIABLE, "")
    found["flash-sigmoid"] = sha256(library)[:12] if Path(library).is_file() else ""
    return found


def code_version() -> str:
    """A fingerprint of the attention kernels and of the code that times them."""
    import scsigmoid

    package = Path(scsigmoid.__file__).parent
    timing = [package / "benchmarks" / f"{name}.py" for name in TIMING_MODULES]
    digest = hashlib.sha256()
    for path in [*sorted((package / "attention").rglob("*.py")), *timing]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
