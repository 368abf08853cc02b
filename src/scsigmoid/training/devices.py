"""Devices: which GPU a job takes, its peak, determinism, and advice when memory runs out."""

import fcntl
import itertools
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch

from scsigmoid.attention.backends import choose_backend, hopper_misfit
from scsigmoid.errors import UserError
from scsigmoid.model.sizes import EncoderSettings, count_parameters

#: Peak of dense bfloat16 products with float32 sums, in operations per second, as the makers' data
#: sheets give it.  The first name that a GPU's own name holds is meant.
PEAK_FLOPS = {
    "B200": 2250e12,
    "GH200": 990e12,
    "H200": 990e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 990e12,
    "A100": 312e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
    "A10": 125e12,
}


# float32 weights, their gradients and AdamW's two moments.
BYTES_PER_PARAMETER = 16


def resolve_device(device: str) -> torch.device:
    """The device of ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.

    Of several GPUs it is the one that the fewest jobs use (:func:`claim_gpus`), and becomes
    PyTorch's current one.  Processes that torchrun started choose theirs by their rank.

    Raises:
        UserError: if a GPU is asked for and PyTorch finds none.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device != "cuda":
        try:
            return torch.device(device)
        except RuntimeError:
            raise UserError(f"device: {device!r} is unknown; set it to auto, cpu or cuda") from None
    if not torch.cuda.is_available():
        raise UserError("device: cuda is asked for but PyTorch finds no GPU; set it to auto or cpu")
    if "WORLD_SIZE" in os.environ or torch.cuda.device_count() == 1:
        return torch.device(device)
    if not _claims:
        torch.cuda.set_device(claim_gpus(1)[0])
    return torch.device(device, torch.cuda.current_device())


# Open files: their locks are this process's claims, and end with it.
_claims: list[IO[str]] = []


def claim_gpus(count: int) -> list[int]:
    """Choose GPUs for this process, those with the fewest claims by other jobs of this user.

    So jobs that one machine runs side by side spread over its GPUs, and share them evenly where
    there are more jobs than GPUs.  A claim is a locked file in the folder for temporary files.

    Returns:
        ``count`` indices into the visible GPUs, in order; all of them where there are no more.
    """
    visible = visible_gpus()
    if count >= len(visible):
        return list(range(len(visible)))
    folder = Path(tempfile.gettempdir()) / f"scsigmoid-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    chosen: list[int] = []
    for place in itertools.count():
        for index, name in enumerate(visible):
            if index in chosen:
                continue
            file = (folder / f"{name}-{place}").open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                continue
            _claims.append(file)
            chosen.append(index)
            if len(chosen) == count:
                return sorted(chosen)
    raise AssertionError  # the loop above has no end


def visible_gpus() -> list[str]:
    """How ``CUDA_VISIBLE_DEVICES`` names the GPUs that PyTorch sees."""
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [name.strip() for name in named] if len(named) == count else [*map(str, range(count))]


def device_name(device: torch.device) -> str:
    """The GPU's name, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def backend_of(settings: EncoderSettings, device: torch.device) -> str:
    """The attention backend that computes an encoder's training on a device.

    Raises:
        UserError: if the one that is asked for cannot.
    """
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    like = torch.empty(0, settings.heads, settings.head_dimension, dtype=precision)
    return choose_backend(settings.attention, settings.backend, device, hopper_misfit(like))


def peak_flops(name: str) -> float | None:
    """Most operations per second of a device of this name; None if it is not in the table."""
    return next((peak for part, peak in PEAK_FLOPS.items() if part in name), None)


def be_deterministic() -> None:
    """Have PyTorch use deterministic algorithms, or fail where it has none.

    Must come before the GPU is used.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # All memory that we read was written before; filling it first only costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # Else the compiler chooses among kernels by trial, and another choice adds in another order.
    from torch._inductor import config

    if hasattr(config, "deterministic"):
        config.deterministic = True


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


@contextmanager
def out_of_memory_advice(
    encoder: EncoderSettings, micro_batch_tokens: int, device: torch.device
) -> Iterator[None]:
    """Say which setting to lower, and to what, when the GPU's memory does not suffice."""
    try:
        yield
    except torch.OutOfMemoryError:
        total = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None
        raise UserError(advice(encoder, micro_batch_tokens, total)) from None


def advice(encoder: EncoderSettings, micro_batch_tokens: int, total: int | None) -> str:
    """What to change, for a GPU of ``total`` bytes; None if unknown."""
    fixed = BYTES_PER_PARAMETER * count_parameters(encoder)
    if total is not None and fixed > 0.9 * total:
        return (
            f"architecture.size: weights, gradients and optimiser take {fixed / 1e9:.0f} GB and "
            f"the GPU has {total / 1e9:.0f} GB; take a smaller model or a larger GPU"
        )
    if micro_batch_tokens <= encoder.context:
        return (
            f"training.micro_batch_tokens: a single cell of {encoder.context} tokens does not fit "
            "in the GPU's memory; take a smaller context or model"
        )
    # Beyond the fixed part, memory grows with the tokens; halving is sure to change something.
    lower = max(encoder.context, micro_batch_tokens // 2)
    return (
        f"training.micro_batch_tokens: {micro_batch_tokens} tokens do not fit in the GPU's memory; "
        f"lower it to {lower}, and again by half if that is too much (it changes rounding alone)"
    )
