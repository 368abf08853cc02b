"""Which configuration a kernel runs with on the GPU at hand.

On GPUs that the table was measured on: its first entry, at once.  On others the table's few entries
are timed when the kernel is first used, and the choice is kept on disk, so that it is made once for
a kind of GPU, a version of Triton and a version of the kernel.  The environment variable
``SCSIGMOID_AUTOTUNE`` says otherwise: 1 times on every GPU, 0 on none.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from scsigmoid.attention.triton_configurations import (
    MEASURED,
    Configuration,
    Kernel,
    configurations,
)
from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.progress import log

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
