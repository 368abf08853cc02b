"""Choice of the attention backend for a device."""

import functools
import importlib
import importlib.util
import warnings

import torch
from torch import Tensor

from scsigmoid.attention.hopper import DIMENSIONS
from scsigmoid.attention.selfcheck import find_failure
from scsigmoid.attention.torch_internals import mark_constant
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS, Backend, version_of
from scsigmoid.progress import log


def is_interpreted() -> bool:
    """Return True if Triton interprets its kernels on the CPU (``TRITON_INTERPRET=1``)."""
    if importlib.util.find_spec("triton") is None:
        return False
    import triton

    return bool(triton.knobs.runtime.interpret)


def hopper_misfit(q: Tensor) -> str:
    """Return why the kernels for Hopper do not support ``q``, or "" if they do."""
    if q.dtype not in (torch.bfloat16, torch.float16):
        return "it computes bfloat16 and float16 only"
    # Comparing with `in` makes torch.compile treat the dimension as a constant.
    if q.shape[-1] not in DIMENSIONS:
        return "it computes head dimensions 64 and 128 only"
    return ""


@functools.cache
def _find_missing_part(backend: Backend) -> str:
    """Return why kernels do not run on a GPU of the required capability, or "" if they run."""
    if backend.package and not version_of(backend.package):
        return f"{backend.package} is not installed (pip install --pre {backend.package})"
    try:
        module = importlib.import_module(f"scsigmoid.attention.{backend.kernels}")
    except ImportError as error:
        return f"its kernels cannot be imported ({error})"
    return str(module.unavailable())


@functools.cache
def _warn(attention: str, name: str, reason: str) -> None:
    """Warn, once per process and reason, that the fastest kernels are not used."""
    warnings.warn(
        f"{attention} attention: backend {name} is not available: {reason}; "
        "a slower backend is used",
        stacklevel=2,
    )


def _find_obstacle(name: str, backend: Backend, device: torch.device, misfit: str) -> str | None:
    """Return why a backend does not run on a device, followed by a remedy. None: it runs."""
    required = backend.capability
    # A backend without a required capability runs on all devices.
    if required is None or (backend.runs_on_cpu and device.type != "cuda"):
        return None
    if name == "triton":
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed; install triton or use 'reference'"
        if device.type == "cpu" and is_interpreted():
            return None
    remedy = f"use {backend.alternative!r} or 'auto'"
    if device.type != "cuda":
        return f"it needs a CUDA GPU and the device is {device.type!r}; {remedy}"
    if not torch.cuda.is_available():
        return f"it needs a CUDA GPU and torch sees none; {remedy}"
    capability = torch.cuda.get_device_capability(device)
    if capability < required or (backend.needs_exact_capability and capability != required):
        more = "" if backend.needs_exact_capability else " or more"
        return (
            f"it needs compute capability {required[0]}.{required[1]}{more} and this GPU has "
            f"{capability[0]}.{capability[1]}; {remedy}"
        )
    reason = backend.kernels and (misfit or _find_missing_part(backend))
    if not reason and backend.launcher and not is_interpreted():
        reason = find_failure(name, device)
        # Backend `triton`: do not fall back to `reference`, which is much slower.
        if reason and not backend.kernels:
            raise UserError(f"backend {name!r}: {reason}; use a tested version or 'reference'")
    return f"{reason}; {remedy}" if reason else None


def _choose_automatically(attention: str, device: torch.device, misfit: str) -> tuple[str, str]:
    """Return the fastest backend that runs on the device, and the reason."""
    is_gpu = device.type == "cuda"
    if is_gpu and not torch.cuda.is_available():
        raise UserError(f"device {str(device)!r}: torch sees no CUDA GPU")
    reasons = [f"fastest on {torch.cuda.get_device_name(device) if is_gpu else device.type}"]
    for name, backend in BACKENDS[attention].items():
        if not backend.is_automatic or not (is_gpu or backend.runs_on_cpu):
            continue
        obstacle = _find_obstacle(name, backend, device, misfit)
        if obstacle is None:
            return name, "; ".join(reasons)
        # An obstacle ends in "; remedy". The remedy is for users who requested the backend.
        reasons.append(f"{name}: {obstacle.split(';')[0]}")
        is_installed = not backend.package or version_of(backend.package)
        is_supported = torch.cuda.get_device_capability(device) == backend.capability and not misfit
        if backend.kernels and is_supported and is_installed:
            _warn(attention, name, obstacle.rsplit("; ", 1)[0])
    raise AssertionError("the reference runs on every device")


@functools.lru_cache
def _choose(attention: str, requested: str, device: torch.device, misfit: str) -> str:
    if attention not in BACKENDS:
        raise UserError(
            f"attention {attention!r}: unknown; use one of {', '.join(sorted(BACKENDS))}"
        )
    if requested == "auto":
        backend, reason = _choose_automatically(attention, device, misfit)
        log(f"{attention} attention: backend {backend} ({reason})")
        return backend
    if requested not in BACKENDS[attention]:
        raise UserError(
            f"backend {requested!r}: does not compute {attention} attention; "
            f"use auto, {', '.join(BACKENDS[attention])}"
        )
    obstacle = _find_obstacle(requested, BACKENDS[attention][requested], device, misfit)
    if obstacle is not None:
        raise UserError(f"backend {requested!r} for {attention} attention: {obstacle}")
    log(f"{attention} attention: backend {requested} (as requested)")
    return requested


@mark_constant
def choose_backend(
    attention: str, requested: str, device: torch.device | str, misfit: str = ""
) -> str:
    """Choose the attention backend for a device, and log each choice once.

    For sigmoid attention ``auto`` is ``hopper`` on GPUs of compute capability 9.0, ``triton`` on
    other GPUs of 8.0 or more, and ``reference`` on all other devices. For softmax attention
    ``auto`` is ``fa4`` on GPUs of capability 9.0 if its package is installed, ``reference`` on GPUs
    below 8.0, and ``sdpa`` on all other devices. A warning is issued once if ``hopper`` or an
    installed ``fa4`` supports the GPU but not the installed versions of its packages. With an
    untested version of Triton, results are checked first (:mod:`scsigmoid.attention.selfcheck`).

    Args:
        attention: ``sigmoid`` or ``softmax``.
        requested: ``auto`` or a name in :data:`BACKENDS`.
        device: device of the tensors, or its name.
        misfit: result of :func:`hopper_misfit` for the tensors. By default all backends support
            them.

    Raises:
        UserError: if the backend is unknown or does not run on the device, or if ``triton``
            computes wrong results.
    """
    if not isinstance(requested, str):
        raise UserError(f"backend {requested!r}: is not a string; use 'auto' or a name in BACKENDS")
    return _choose(attention, requested, torch.device(device), misfit)
