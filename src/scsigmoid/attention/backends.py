"""Which implementation computes attention on which device."""

import functools
import importlib.util

import torch

from scsigmoid.errors import UserError
from scsigmoid.progress import log

#: Names of the backends of each attention, fastest on a GPU first.
BACKENDS: dict[str, tuple[str, ...]] = {
    "sigmoid": ("triton", "reference"),
    "softmax": ("sdpa", "flex", "reference"),
}

#: ``tanh.approx`` and asynchronous copies need Ampere; so does bfloat16.
OLDEST_CAPABILITY = (8, 0)


def interpreting() -> bool:
    """Whether Triton runs its kernels in its interpreter, on the CPU (``TRITON_INTERPRET=1``)."""
    if importlib.util.find_spec("triton") is None:
        return False
    import triton

    return bool(triton.knobs.runtime.interpret)


def _obstacle(attention: str, backend: str, device: torch.device) -> str | None:
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
    return None


def _automatic(attention: str, device: torch.device) -> tuple[str, str]:
    """The fastest backend that the device supports, and why it is that one."""
    if device.type == "cuda":
        fastest = BACKENDS[attention][0]
        obstacle = _obstacle(attention, fastest, device)
        if obstacle is None:
            return fastest, f"fastest on {torch.cuda.get_device_name(device)}"
        return "reference", f"{fastest}: {obstacle.split(';')[0]}"
    if attention == "softmax":
        return "sdpa", f"fastest on {device.type}"
    return "reference", f"no GPU: the device is {device.type!r}"


@functools.lru_cache
def _choose(attention: str, requested: str, device: torch.device) -> str:
    if attention not in BACKENDS:
        raise UserError(
            f"attention {attention!r}: unknown; use one of {', '.join(sorted(BACKENDS))}"
        )
    if requested == "auto":
        backend, reason = _automatic(attention, device)
        log(f"{attention} attention: backend {backend} ({reason})")
        return backend
    if requested not in BACKENDS[attention]:
        raise UserError(
            f"backend {requested!r}: not one for {attention} attention; "
            f"use auto, {', '.join(BACKENDS[attention])}"
        )
    obstacle = _obstacle(attention, requested, device)
    if obstacle is not None:
        raise UserError(f"backend {requested!r} for {attention} attention: {obstacle}")
    log(f"{attention} attention: backend {requested} (as asked)")
    return requested


def choose_backend(attention: str, requested: str, device: torch.device) -> str:
    """Choose the implementation, and log the choice the first time it is made.

    ``auto`` is for sigmoid attention ``triton`` on a CUDA GPU of capability 8.0 or more and
    ``reference`` elsewhere; for softmax attention ``sdpa``, except on an older GPU, where it is
    ``reference``.

    Args:
        attention: ``sigmoid`` or ``softmax``.
        requested: ``auto`` or a name in :data:`BACKENDS`.
        device: where the tensors are.

    Raises:
        UserError: if the backend is unknown, or the device cannot run it; names what is missing.
    """
    return _choose(attention, requested, device)


# What torch.compiler.assume_constant_result does; calling that would load the whole compiler, a
# second for every run that compiles nothing.
choose_backend._dynamo_marked_constant = True  # type: ignore[attr-defined]
