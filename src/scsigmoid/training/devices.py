"""Where models run."""

import resource
import sys

import torch

from scsigmoid.errors import UserError


def resolve_device(device: str) -> torch.device:
    """The device of the setting ``device``.

    Args:
        device: ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.

    Raises:
        UserError: if a GPU is asked for and PyTorch finds none.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda is asked for but PyTorch finds no GPU; set it to auto or cpu")
    return torch.device(device)


def device_name(device: torch.device) -> str:
    """The GPU's name, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has done its work, so that a clock read afterwards counts it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_gb(device: torch.device) -> float:
    """Most memory used so far, in 10^9 bytes: of tensors on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
