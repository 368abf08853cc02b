"""Which implementation computes attention on which device."""

import functools
import importlib
import importlib.util
import warnings

import torch
from torch import Tensor

from scsigmoid.errors import UserError
from scsigmoid.progress import log

#: Names of the backends of each attention, fastest on a GPU first.
BACKENDS: dict[str, tuple[str, ...]] = {
    "sigmoid": ("hopper", "triton", "reference"),
    "softmax": ("sdpa", "flex", "reference"),
}

#: ``tanh.approx`` and asynchronous copies need Ampere; so does bfloat16.
OLDEST_CAPABILITY = (8, 0)
#: What the backend ``hopper`` is written for.
HOPPER = (9, 0)
HOPPER_DIMENSIONS = (64, 128)


def interpreting() -> bool:
    """Whether Triton runs its kernels in its interpreter, on the CPU (``TRITON_INTERPRET=1``)."""
    if importlib.util.find_spec("triton") is None:
        return False
    import triton

    return bool(triton.knobs.runtime.interpret)


def hopper_misfit(q: Tensor) -> str:
    """Why the backend ``hopper`` does not compute attention of ``q``; empty if it does."""
    if q.dtype not in (torch.bfloat16, torch.float16):
        return "it computes bfloat16 and float16 only"
    # A comparison, so that the compiler of torch takes the dimension for a constant.
    if q.shape[-1] not in HOPPER_DIMENSIONS:
        return "it computes head dimensions 64 and 128 only"
    return ""


@functools.cache
def _hopper_unavailable(device: torch.device) -> str:
    """Why the kernels of ``hopper`` do not run on this Hopper GPU; empty if they do."""
    try:
        hopper = importlib.import_module("scsigmoid.attention.hopper")
    except ImportError as error:
        return f"its kernels cannot be imported ({error})"
    return hopper.unavailable(device) or ""


@functools.cache
def _warn(reason: str) -> None:
    """Say once in a process that the fastest kernels are not used."""
    warnings.warn(
        f"sigmoid attention: backend hopper is not available: {reason}; "
        "the slower backend triton is used",
        stacklevel=2,
    )


def _obstacle(backend: str, device: torch.device, misfit: str) -> str | None:
    """What keeps a backend from running on a device, with the remedy; None if nothing does."""
    if backend == "reference" or (backend == "sdpa" and device.type != "cuda"):
        return None
    if backend == "triton":
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed; install triton or take 'reference'"
        if device.type == "cpu" and interpreting():
            return None
    fallback = "sdpa" if backend == "flex" else "reference"
    if device.type != "cuda":
        return f"it needs a CUDA GPU and the device is {device.type!r}; take {fallback!r} or 'auto'"
    if not torch.cuda.is_available():
        return f"it needs a CUDA GPU and torch sees none; take {fallback!r} or 'auto'"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        return (
            f"it needs compute capability {OLDEST_CAPABILITY[0]}.{OLDEST_CAPABILITY[1]} and this "
            f"GPU has {capability[0]}.{capability[1]}; take 'reference' or 'auto'"
        )
    if backend == "hopper":
        if capability != HOPPER:
            return (
                f"this GPU has capability {capability[0]}.{capability[1]}, not 9.0; take 'triton'"
            )
        reason = misfit or _hopper_unavailable(device)
        return f"{reason}; take 'triton' or 'auto'" if reason else None
    return None


def _automatic(attention: str, device: torch.device, misfit: str) -> tuple[str, str]:
    """The fastest backend that the device supports, and why it is that one."""
    if device.type == "cuda":
        fastest = "triton" if attention == "sigmoid" else BACKENDS[attention][0]
        obstacle = _obstacle(fastest, device, misfit)
        if (
            fastest == "triton"
            and obstacle is None
            and torch.cuda.get_device_capability(device) == HOPPER
            and not misfit
        ):
            unavailable = _hopper_unavailable(device)
            if not unavailable:
                fastest = "hopper"
            else:
                _warn(unavailable)
        if obstacle is None:
            return fastest, f"fastest on {torch.cuda.get_device_name(device)}"
        return "reference", f"{fastest}: {obstacle.split(';')[0]}"
    if attention == "softmax":
        return "sdpa", f"fastest on {device.type}"
    return "reference", f"no GPU: the device is {device.type!r}"


@functools.lru_cache
def _choose(attention: str, requested: str, device: torch.device, misfit: str) -> str:
    if attention not in BACKENDS:
        raise UserError(
            f"attention {attention!r}: unknown; use one of {', '.join(sorted(BACKENDS))}"
        )
    if requested == "auto":
        backend, reason = _automatic(attention, device, misfit)
        log(f"{attention} attention: backend {backend} ({reason})")
        return backend
    if requested not in BACKENDS[attention]:
        raise UserError(
            f"backend {requested!r}: not one for {attention} attention; "
            f"use auto, {', '.join(BACKENDS[attention])}"
        )
    obstacle = _obstacle(requested, device, misfit)
    if obstacle is not None:
        raise UserError(f"backend {requested!r} for {attention} attention: {obstacle}")
    log(f"{attention} attention: backend {requested} (as asked)")
    return requested


def choose_backend(attention: str, requested: str, device: torch.device, misfit: str = "") -> str:
    """Choose the implementation, and log the choice the first time it is made.

    ``auto`` is for sigmoid attention ``hopper`` on a GPU of capability 9.0, ``triton`` on another
    of 8.0 or more, and ``reference`` elsewhere; for softmax attention ``sdpa``, except on an older
    GPU, where it is ``reference``.  Where ``hopper`` should run and cannot, because of a version
    that it does not know, a warning says so, once.

    Args:
        attention: ``sigmoid`` or ``softmax``.
        requested: ``auto`` or a name in :data:`BACKENDS`.
        device: where the tensors are.
        misfit: :func:`hopper_misfit` of the tensors; by default they suit every backend.

    Raises:
        UserError: if the backend is unknown, or the device cannot run it; names what is missing.
    """
    return _choose(attention, requested, device, misfit)


# What torch.compiler.assume_constant_result does; calling that would load the whole compiler, a
# second for every run that compiles nothing.
choose_backend._dynamo_marked_constant = True  # type: ignore[attr-defined]
