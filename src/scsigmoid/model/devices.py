"""Devices: choice of the GPU, peak performance, determinism, and out-of-memory errors."""

import fcntl
import itertools
import os
import resource
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import torch

from scsigmoid.attention.backends import choose_backend, find_unsupported, tile_width
from scsigmoid.errors import UserError
from scsigmoid.files import open_lock
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.progress import log

#: Peak operations per second of dense bfloat16 matrix products with float32 sums, from data sheets.
#: The first key that is part of a GPU's name applies.
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
# Locked files, each of which claims a GPU for this process (`claim_gpus`) until the process ends.
_claims: list[IO[bytes]] = []


def resolve_device(device: str) -> torch.device:
    """Return the device for ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.

    Of several GPUs, the GPU with the fewest jobs is chosen (:func:`claim_gpus`) and becomes the
    current device of PyTorch. With one GPU, or under torchrun, return ``cuda`` without an index.
    Under torchrun, the caller chooses the GPU by the rank of the process.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device != "cuda":
        try:
            found = torch.device(device)
        except (RuntimeError, TypeError):
            raise UserError(f"device: {device!r} is unknown; set it to auto, cpu or cuda") from None
        if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
            raise UserError(f"device: {device!r}: no such GPU; set it to auto, cpu or cuda")
        return found
    if not torch.cuda.is_available():
        raise UserError("device: 'cuda', but PyTorch finds no GPU; set it to auto or cpu")
    if "WORLD_SIZE" in os.environ or torch.cuda.device_count() == 1:
        return torch.device(device)
    if not _claims:  # the first call of this process
        torch.cuda.set_device(claim_gpus(1)[0])
    return torch.device(device, torch.cuda.current_device())


def claim_gpus(count: int) -> list[int]:
    """Claim the ``count`` GPUs with the fewest claims by this user. Return ascending indices.

    This spreads simultaneous jobs evenly over the GPUs of a machine. A claim is a locked file in
    the folder of temporary files. If there are at most ``count`` GPUs, return all and claim none.
    """
    visible = visible_gpus()
    if count >= len(visible):
        return list(range(len(visible)))
    folder = claims_folder()
    chosen: list[int] = []
    # The n-th claim of a GPU locks the file with the number n - 1. All GPUs are tried with number 0
    # first, then with 1, and so on, so the GPUs with the fewest claims are found first.
    attempts = ((number, index) for number in itertools.count() for index in range(len(visible)))
    while len(chosen) < count:
        number, index = next(attempts)
        if index in chosen:
            continue
        file = open_lock(folder / f"{visible[index].replace('/', '-')}-{number}")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            _claims.append(file)
            chosen.append(index)
    names = ", ".join(visible[index] for index in sorted(chosen))
    log(f"GPU {names}: the fewest jobs of the {len(visible)} GPUs")
    return sorted(chosen)


def choose_gpus(device: str, count: int) -> list[torch.device]:
    """Return ``count`` GPUs of this machine, those with the fewest jobs (:func:`claim_gpus`).

    Raise a UserError if there are fewer, or if ``device`` is ``cpu``.
    """
    if count < 1:
        raise UserError(f"devices: is {count}; use an integer of at least 1")
    if device == "cpu":
        raise UserError(f"devices: {count} GPUs, but the device is cpu; remove one of the options")
    if not (found := torch.cuda.device_count()):
        raise UserError(f"devices: {count} GPUs, but PyTorch finds none; leave it out")
    if count > found:
        raise UserError(f"devices: {count} GPUs, but PyTorch finds {found}; use at most {found}")
    return [torch.device("cuda", index) for index in claim_gpus(count)]


def claims_folder() -> Path:
    """Return the folder with the claims of this user, in the folder of temporary files.

    Raise a UserError if other users can write to the folder, which may be a link or have been made
    by another user.
    """
    folder = Path(tempfile.gettempdir()) / f"scsigmoid-gpus-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    is_private = status.st_uid == os.getuid() and not status.st_mode & 0o022
    if not stat.S_ISDIR(status.st_mode) or not is_private:
        raise UserError(
            f"{folder}: not a folder that only you can write to; delete it, or set TMPDIR to a "
            "folder of your own"
        )
    return folder


def visible_gpus() -> list[str]:
    """Return the entries of ``CUDA_VISIBLE_DEVICES``, one for each GPU that PyTorch finds.

    If the variable does not have this number of entries, return the indices of the GPUs.
    """
    count = torch.cuda.device_count()
    entries = map(str.strip, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
    names = [*itertools.takewhile(bool, entries)]  # CUDA ignores what follows an empty entry
    return names if len(names) == count else [str(index) for index in range(count)]


def device_name(device: torch.device) -> str:
    """Return the name of the GPU, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


@contextmanager
def own_defaults() -> Iterator[None]:
    """Create tensors on the CPU and in float32 in the block, whatever the caller's defaults are.

    These defaults are set by :func:`torch.set_default_device` and :func:`torch.set_default_dtype`.
    """
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)


def autocast(device: torch.device) -> torch.autocast:
    """Return bfloat16 mixed precision for a GPU (tab:model_arch), float32 for a CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


def backend_of(settings: EncoderSettings, device: torch.device) -> str:
    """Return the attention backend for training an encoder on a device."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    query = torch.empty(0, settings.heads, settings.head_dimension, dtype=dtype)
    # Depends on the dtype and the head dimension of the query only.
    obstacle = find_unsupported(settings.attention, query)
    case = device, obstacle, tile_width(settings.head_dimension)
    return choose_backend(settings.attention, settings.backend, *case)


def check_backend(settings: EncoderSettings, device: torch.device) -> None:
    """Raise a UserError if the device cannot run the encoder's attention backend."""
    choose_backend(settings.attention, settings.backend, device)


def peak_flops(name: str) -> float | None:
    """Return the peak operations per second of a device, or None if it is not in the table."""
    return next((peak for part, peak in PEAK_FLOPS.items() if part in name), None)


def be_deterministic() -> None:
    """Make operations deterministic or raise errors. Call this function before the GPU is used."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # This mode would also fill new memory, which is not needed: it is written before it is read.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # Otherwise the compiler chooses kernels by timing, and kernels may sum in different orders.
    from torch._inductor import config

    config.deterministic = True


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished its work, so that a time measured afterwards includes it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_gb(device: torch.device) -> float:
    """Return the peak memory in 10^9 bytes: of tensors on a GPU, or of the process for a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


@contextmanager
def out_of_memory_advice(context: int, micro_batch_tokens: int) -> Iterator[None]:
    """Raise a UserError that names the settings to lower if the block runs out of GPU memory."""
    try:
        yield
    except torch.OutOfMemoryError:
        # The memory used, except for the model and its optimizer, is proportional to the tokens.
        raise UserError(
            f"training.execution.micro_batch_tokens: {micro_batch_tokens} tokens do not fit in the "
            "GPU's memory; halve it (this changes results by rounding only) down to "
            f"{context} tokens, a single cell, then use a smaller context or model"
        ) from None
