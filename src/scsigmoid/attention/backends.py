"""Which implementation computes attention on which device."""

import functools
import importlib
import importlib.util
import warnings

import torch
from torch import Tensor

from scsigmoid.attention.torch_internals import mark_constant
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS, Backend, version_of
from scsigmoid.progress import log

HOPPER_DIMENSIONS = (64, 128)


def interpreting() -> bool:
    """Whether Triton runs its kernels in its interpreter, on the CPU (``TRITON_INTERPRET=1``)."""
    if importlib.util.find_spec("triton") is None:
        return False
    import triton

    return bool(triton.knobs.runtime.interpret)


def hopper_misfit(q: Tensor) -> str:
    """Why kernels for Hopper do not compute attention of ``q``; empty if they do."""
    if q.dtype not in (torch.bfloat16, torch.float16):
        return "it computes bfloat16 and float16 only"
    # A comparison, so that the compiler of torch takes the dimension for a constant.
    if q.shape[-1] not in HOPPER_DIMENSIONS:
        return "it computes head dimensions 64 and 128 only"
    return ""


@functools.cache
def _unavailable(backend: Backend) -> str:
    """Why a backend's kernels do not run on a GPU of its capability; empty if they do."""
    if backend.package and not version_of(backend.package):
        return f"{backend.package} is not installed (pip install --pre {backend.package})"
    try:
        kernels = importlib.import_module(f"scsigmoid.attention.{backend.kernels}")
    except ImportError as error:
        return f"its kernels cannot be imported ({error})"
    reason: str = kernels.unavailable()
    return reason


@functools.cache
def _warn(attention: str, name: str, reason: str) -> None:
    """Say once in a process that the fastest kernels are not used."""
    warnings.warn(
        f"{attention} attention: backend {name} is not available: {reason}; a slower one is used",
        stacklevel=2,
    )


def _obstacle(name: str, backend: Backend, device: torch.device, misfit: str) -> str | None:
    """What keeps a backend from running on a device, with the remedy; None if nothing does."""
    if backend.anywhere and (device.type != "cuda" or backend.needs is None):
        return None
    if name == "triton":
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed; install triton or take 'reference'"
        if device.type == "cpu" and interpreting():
            return None
    remedy = f"take {backend.instead!r} or 'auto'"
    if device.type != "cuda":
        return f"it needs a CUDA GPU and the device is {device.type!r}; {remedy}"
    if not torch.cuda.is_available():
        return f"it needs a CUDA GPU and torch sees none; {remedy}"
    capability, needs = torch.cuda.get_device_capability(device), backend.needs
    assert needs is not None
    if capability < needs or (backend.only and capability != needs):
        more = "" if backend.only else " or more"
        return (
            f"it needs compute capability {needs[0]}.{needs[1]}{more} and this GPU has "
            f"{capability[0]}.{capability[1]}; {remedy}"
        )
    reason = backend.kernels and (misfit or _unavailable(backend))
    return f"{reason}; {remedy}" if reason else None


def _automatic(attention: str, device: torch.device, misfit: str) -> tuple[str, str]:
    """The fastest backend that the device supports, and why it is that one."""
    gpu = device.type == "cuda"
    if gpu and not torch.cuda.is_available():
        raise UserError(f"device {str(device)!r}: torch sees no CUDA GPU")
    reasons = [f"fastest on {torch.cuda.get_device_name(device) if gpu else device.type}"]
    for name, backend in BACKENDS[attention].items():
        if not backend.automatic or not (gpu or backend.anywhere):
            continue
        obstacle = _obstacle(name, backend, device, misfit)
        if obstacle is None:
            return name, "; ".join(reasons)
        reasons.append(f"{name}: {obstacle.split(';')[0]}")
        optional = backend.package and not version_of(backend.package)
        suits = torch.cuda.get_device_capability(device) == backend.needs and not misfit
        if backend.kernels and suits and not optional:
            _warn(attention, name, _unavailable(backend))
    raise AssertionError("the reference runs everywhere")


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
    obstacle = _obstacle(requested, BACKENDS[attention][requested], device, misfit)
    if obstacle is not None:
        raise UserError(f"backend {requested!r} for {attention} attention: {obstacle}")
    log(f"{attention} attention: backend {requested} (as asked)")
    return requested


@mark_constant
def choose_backend(
    attention: str, requested: str, device: torch.device | str, misfit: str = ""
) -> str:
    """Choose the implementation, and log the choice the first time it is made.

    ``auto`` is for sigmoid attention ``hopper`` on a GPU of capability 9.0, ``triton`` on another
    of 8.0 or more, and ``reference`` elsewhere; for softmax attention ``fa4`` on a GPU of
    capability 9.0 where its package is installed, else ``sdpa``, except on an older GPU, where it
    is ``reference``.  Where ``hopper`` or an installed ``fa4`` should run and cannot, because of a
    version that it does not know, a warning says so, once.

    Args:
        attention: ``sigmoid`` or ``softmax``.
        requested: ``auto`` or a name in :data:`BACKENDS`.
        device: where the tensors are, or will be; a name such as ``cuda``, too.
        misfit: :func:`hopper_misfit` of the tensors; by default they suit every backend.

    Raises:
        UserError: if the backend is unknown, or the device cannot run it; names what is missing.
    """
    if not isinstance(requested, str):
        raise UserError(f"backend {requested!r}: is no name; take 'auto' or a name of BACKENDS")
    return _choose(attention, requested, torch.device(device), misfit)
