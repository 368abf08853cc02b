"""Block sizes of the Triton kernels, and which of them run on the GPU at hand.

A small curated table by head dimension, type and kind of GPU.  The first entry of a list is what
runs on the GPUs that it was measured on.  On others the entries are timed when the kernel is first
used, and the choice is kept on disk, so that it is made once for a kind of GPU, a version of Triton
and a version of the kernel.  The environment variable ``SCSIGMOID_AUTOTUNE`` says otherwise: 1
times on every GPU, 0 on none.  The first choices for half precision at head dimensions 64 and 128
are the best measured on an H200 (docs/kernel-log.md); the others are made to fit into registers and
shared memory.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.progress import log

Kernel = Literal["forward", "dq", "dkdv"]
KERNELS: tuple[Kernel, ...] = ("forward", "dq", "dkdv")


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a kernel is cut into blocks.

    Attributes:
        block_q: query rows of a block.
        block_k: key rows of a block.
        warps: warps of a program.
        stages: blocks in flight in the inner loop.
        tma: the inner loop's blocks are copied whole by the hardware, by tensor descriptors.
        tail_last: without ``tma``, a sequence's last, partial block is done behind the others.
            Hopper's matrix units do not overlap with what follows otherwise; on Ampere it costs
            registers.
    """

    block_q: int
    block_k: int
    warps: int
    stages: int
    tma: bool = False
    tail_last: bool = False


#: Blocks are tiny in Triton's interpreter, so that small tests have whole, last and empty ones.
INTERPRETED = Configuration(16, 16, 4, 1)

#: GPUs that the first entries were measured on, by compute capability.
MEASURED = ((9, 0),)

_Table = dict[tuple[Kernel, int], tuple[Configuration, ...]]

# Hopper and data-centre Blackwell: matrix units read shared memory, and tiles are copied whole.
_HALF: _Table = {
    ("forward", 16): (Configuration(128, 64, 4, 3, tail_last=True),),
    ("forward", 32): (Configuration(128, 64, 4, 3, tail_last=True),),
    ("forward", 64): (
        Configuration(64, 64, 4, 3, tail_last=True),
        Configuration(128, 64, 8, 3, tma=True),
        Configuration(128, 64, 4, 3, tail_last=True),
        Configuration(128, 64, 4, 3, tma=True),
    ),
    ("forward", 128): (
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(128, 32, 8, 4, tma=True),
        Configuration(128, 64, 8, 3, tma=True),
    ),
    ("dq", 16): (Configuration(64, 64, 4, 3, tail_last=True),),
    ("dq", 32): (Configuration(64, 64, 4, 3, tail_last=True),),
    ("dq", 64): (
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(128, 64, 8, 3, tma=True),
        Configuration(64, 64, 4, 3, tail_last=True),
    ),
    ("dq", 128): (
        Configuration(64, 64, 4, 2, tma=True),
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(128, 64, 8, 2, tma=True),
        Configuration(64, 64, 4, 2, tail_last=True),
    ),
    ("dkdv", 16): (Configuration(64, 64, 4, 3, tail_last=True),),
    ("dkdv", 32): (Configuration(64, 64, 4, 3, tail_last=True),),
    ("dkdv", 64): (
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(64, 64, 4, 3, tail_last=True),
        Configuration(64, 128, 8, 3, tma=True),
    ),
    ("dkdv", 128): (
        Configuration(64, 64, 4, 2, tma=True),
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(64, 128, 8, 2, tma=True),
    ),
}

# Other GPUs: operands take registers as well, and shared memory may be small.
_HALF_FROM_REGISTERS: _Table = {
    ("forward", 16): (Configuration(128, 64, 4, 3),),
    ("forward", 32): (Configuration(128, 64, 4, 3),),
    ("dq", 16): (Configuration(64, 64, 4, 3),),
    ("dq", 32): (Configuration(64, 64, 4, 3),),
    ("dkdv", 16): (Configuration(64, 64, 4, 3),),
    ("dkdv", 32): (Configuration(64, 64, 4, 3),),
    ("forward", 64): (
        Configuration(64, 64, 4, 3),
        Configuration(128, 64, 8, 3),
        Configuration(128, 64, 4, 3),
    ),
    ("forward", 128): (
        Configuration(64, 64, 4, 3),
        Configuration(128, 64, 8, 2),
        Configuration(128, 32, 8, 3),
    ),
    ("dq", 64): (
        Configuration(64, 64, 4, 3),
        Configuration(64, 64, 4, 2),
        Configuration(128, 64, 8, 2),
    ),
    ("dq", 128): (
        Configuration(64, 64, 4, 2),
        Configuration(64, 32, 4, 2),
        Configuration(64, 64, 8, 2),
    ),
    ("dkdv", 64): (
        Configuration(64, 64, 4, 3),
        Configuration(64, 64, 4, 2),
        Configuration(64, 128, 8, 2),
    ),
    ("dkdv", 128): (
        Configuration(64, 64, 8, 2),
        Configuration(32, 64, 4, 2),
        Configuration(32, 64, 8, 2),
    ),
}

# float32 runs without tensor cores, for exactness; small blocks keep it in registers.
_SINGLE: _Table = {
    (kernel, width): (Configuration(32, 32, 4, 2 if width < 128 else 1),)
    for kernel in KERNELS
    for width in (16, 32, 64, 128)
}


def block_width(dimension: int) -> int:
    """Columns of a block: the head dimension's next power of two, at least 16."""
    return max(16, 1 << (dimension - 1).bit_length())


def configurations(
    kernel: Kernel, dimension: int, itemsize: int, capability: tuple[int, int]
) -> tuple[Configuration, ...]:
    """The configurations of a kernel that are worth timing, the preferred one first.

    Args:
        kernel: ``forward``, ``dq`` or ``dkdv``.
        dimension: head dimension, up to 128.
        itemsize: bytes of an element.
        capability: the GPU's compute capability.
    """
    key = (kernel, block_width(dimension))
    if itemsize == 4:
        return _SINGLE[key]
    # Consumer Blackwell (12) has Ampere's matrix units.
    return _HALF[key] if capability[0] in (9, 10) else _HALF_FROM_REGISTERS[key]


SWITCH = "SCSIGMOID_AUTOTUNE"

_chosen: dict[tuple[Kernel, int, torch.dtype, torch.device], Configuration] = {}


def folder() -> Path:
    """Where choices are kept: ``scsigmoid`` in the user's folder for caches."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "scsigmoid"


def wanted(capability: tuple[int, int]) -> bool:
    """Whether configurations are to be timed on such a GPU."""
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise UserError(f"{SWITCH}: is {switch!r}; set it to 1 (time), 0 (do not) or not at all")
    return switch == "1" or (switch == "" and capability not in MEASURED)


def choose(
    kernel: Kernel,
    dimension: int,
    dtype: torch.dtype,
    device: torch.device,
    trial: Callable[[Configuration], Callable[[], None]],
    function: Any,
) -> Configuration:
    """The configuration to run a kernel with.

    Args:
        kernel: the kernel.
        dimension: head dimension.
        dtype: type of q, k and v.
        device: the GPU.
        trial: gives for a configuration what launches the kernel with it, on inputs of its own.
        function: the kernel's Triton function.
    """
    key = (kernel, dimension, dtype, device)
    if key in _chosen:
        return _chosen[key]
    capability = torch.cuda.get_device_capability(device)
    entries = configurations(kernel, dimension, dtype.itemsize, capability)
    if len(entries) == 1 or not wanted(capability):
        _chosen[key] = entries[0]
    elif torch.cuda.is_current_stream_capturing():
        # Nothing can be timed while a CUDA graph records; the next call outside of it does.
        return entries[0]
    else:
        name = f"{kernel}-{dimension}-{str(dtype).removeprefix('torch.')}"
        path = folder() / f"{name}-{_fingerprint(device, function, entries)}.json"
        _chosen[key] = remembered(path, entries) or _time(name, entries, trial, path)
    return _chosen[key]


def _fingerprint(device: torch.device, function: Any, entries: tuple[Configuration, ...]) -> str:
    """What a choice depends on, beside the kernel's name."""
    import triton

    about = torch.cuda.get_device_name(device), triton.__version__, function.cache_key, entries
    return hashlib.sha256(repr(about).encode()).hexdigest()[:16]


def remembered(path: Path, entries: tuple[Configuration, ...]) -> Configuration | None:
    """The choice in a file; None if there is none that can be used."""
    try:
        chosen = Configuration(**json.loads(path.read_text(encoding="utf-8"))["chosen"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return chosen if chosen in entries else None


def _time(
    name: str,
    entries: tuple[Configuration, ...],
    trial: Callable[[Configuration], Callable[[], None]],
    path: Path,
) -> Configuration:
    """Time the entries and keep the fastest."""
    from triton.runtime.errors import OutOfResources
    from triton.testing import do_bench

    log(f"attention kernel {name}: timing {len(entries)} configurations, once on this kind of GPU")
    milliseconds: dict[Configuration, float] = {}
    for entry in entries:
        try:
            milliseconds[entry] = do_bench(trial(entry), warmup=10, rep=50, return_mode="median")
        except OutOfResources:
            continue
    fastest = min(milliseconds, key=milliseconds.__getitem__, default=entries[0])
    record = {
        "chosen": asdict(fastest),
        "milliseconds": [[asdict(entry), time] for entry, time in milliseconds.items()],
    }
    try:
        write_json(path, record)
    except OSError as error:
        log(f"attention kernel {name}: the choice cannot be kept in {path}: {error.strerror}")
    return fastest
