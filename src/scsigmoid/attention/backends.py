"""Choice of the attention backend for a device."""

import functools
import importlib
import importlib.util
import warnings

import torch
from torch import Tensor

from scsigmoid.attention.hopper import DIMENSIONS
from scsigmoid.attention.torch_internals import mark_constant
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS, Backend, version_of
from scsigmoid.progress import log

#: Head dimensions of FlashAttention-4 that were tested.
FA4_DIMENSIONS = (64, 128)
#: Width of the tiles of a call (:func:`tile_width`), and its option or "".
Case = tuple[int, str]


def is_interpreted() -> bool:
    """Return True if Triton interprets its kernels on the CPU (``TRITON_INTERPRET=1``)."""
    if importlib.util.find_spec("triton") is None:
        return False
    import triton

    return bool(triton.knobs.runtime.interpret)


def find_unsupported(attention: str, q: Tensor, option: str = "") -> str:
    """Return why ``hopper`` (of sigmoid attention) or ``fa4`` does not support a call, or "".

    ``option``: name of an option of the call that only other backends compute, if any.
    """
    if q.dtype not in (torch.bfloat16, torch.float16):
        return "it computes bfloat16 and float16 only"
    dimensions = DIMENSIONS if attention == "sigmoid" else FA4_DIMENSIONS
    # Comparing with `in` makes torch.compile treat the dimension as a constant.
    if q.shape[-1] not in dimensions:
        *most, last = map(str, dimensions)
        return f"it computes head dimensions {', '.join(most)} and {last} only"
    return f"it does not compute {option}" if option else ""


def tile_width(dimension: int) -> int:
    """Return the columns of the kernels' tiles for a head dimension: 64, 128 or 256.

    Comparisons make torch.compile treat the result as a constant.
    """
    return 64 if dimension <= 64 else 128 if dimension <= 128 else 256


@functools.cache
def _find_missing_software(backend: Backend) -> str:
    """Return which software of a backend is missing, or "" if its kernels can be used."""
    if backend.package and not version_of(backend.package):
        return f"{backend.package} is not installed (pip install --pre {backend.package})"
    try:
        module = importlib.import_module(f"scsigmoid.attention.{backend.kernels}")
    except ImportError as error:
        return f"its kernels cannot be imported ({error})"
    return str(module.unavailable())


def find_failure(name: str, device: torch.device, dimension: int, option: str) -> str:
    """Return why a backend's kernels fail with the installed software, or "" if they work."""
    # Imported here, because only GPUs need the check.
    from scsigmoid.attention import selfcheck

    return selfcheck.find_failure(name, device, dimension, option)


@functools.cache
def _warn(attention: str, name: str, obstacle: str) -> None:
    """Warn, once per process and obstacle, that the faster backend ``name`` is not used."""
    warnings.warn(
        f"{attention} attention: backend {name} is not available: {obstacle}; "
        "a slower backend is used",
        stacklevel=2,
    )


def _find_obstacle(
    name: str, backend: Backend, device: torch.device, unsupported: str, case: Case
) -> str:
    """Return why a backend does not run on a device, or "" if it does."""
    required = backend.capability
    # Without a required capability, a backend runs on all devices.
    if required is None or (backend.runs_on_cpu and device.type != "cuda"):
        return ""
    if name == "triton":
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed (pip install triton)"
        if device.type == "cpu" and is_interpreted():
            return ""
    if device.type != "cuda":
        return f"it needs a CUDA GPU and the device is {device.type!r}"
    if not torch.cuda.is_available():
        return "it needs a CUDA GPU and torch sees none"
    capability = torch.cuda.get_device_capability(device)
    if capability < required or (backend.needs_exact_capability and capability != required):
        more = "" if backend.needs_exact_capability else " or more"
        return (
            f"it needs compute capability {required[0]}.{required[1]}{more} and this GPU has "
            f"{capability[0]}.{capability[1]}"
        )
    if backend.kernels and (obstacle := unsupported or _find_missing_software(backend)):
        return obstacle
    if not backend.is_checked or is_interpreted():
        return ""
    failure = find_failure(name, device, *case)
    if failure and backend.alternative == "reference":
        # Do not fall back to `reference`, which is much slower.
        raise UserError(f"backend {name!r}: {failure}; use a tested version or 'reference'")
    return failure


def _find_alternative(
    attention: str, backend: Backend, device: torch.device, unsupported: str, case: Case
) -> str:
    """Return the first alternative of ``backend``, or of its alternatives, that runs."""
    name = backend.alternative
    while _find_obstacle(name, BACKENDS[attention][name], device, unsupported, case):
        name = BACKENDS[attention][name].alternative
    return name


def _choose_automatically(
    attention: str, device: torch.device, unsupported: str, case: Case
) -> tuple[str, list[str]]:
    """Return the fastest backend that runs on the device, and why faster backends do not run."""
    is_gpu = device.type == "cuda"
    if is_gpu and not torch.cuda.is_available():
        raise UserError(f"device {str(device)!r}: torch sees no CUDA GPU")
    passed_over: list[str] = []
    for name, backend in BACKENDS[attention].items():
        if not backend.is_automatic or not (is_gpu or backend.runs_on_cpu):
            continue
        obstacle = _find_obstacle(name, backend, device, unsupported, case)
        if not obstacle:
            return name, passed_over
        passed_over.append(f"{name}: {obstacle}")
        # Only GPUs get here. Warn only if installing or updating software would help.
        is_installed = not backend.package or version_of(backend.package)
        is_made_for_gpu = torch.cuda.get_device_capability(device) == backend.capability
        if backend.kernels and is_made_for_gpu and not unsupported and is_installed:
            _warn(attention, name, obstacle)
    raise AssertionError("the reference runs on every device")


@functools.lru_cache
def _choose(
    attention: str, requested: str, device: torch.device, unsupported: str, case: Case
) -> str:
    """Choose a backend and log the choice. Cached, so that each choice is logged once."""
    if attention not in BACKENDS:
        raise UserError(
            f"attention {attention!r}: unknown; use one of {', '.join(sorted(BACKENDS))}"
        )
    if requested == "auto":
        name, passed_over = _choose_automatically(attention, device, unsupported, case)
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        reasons = "; ".join([f"fastest on {where}", *passed_over])
        log(f"{attention} attention: backend {name} ({reasons})")
        return name
    if requested not in BACKENDS[attention]:
        raise UserError(
            f"backend {requested!r}: does not compute {attention} attention; "
            f"use auto, {', '.join(BACKENDS[attention])}"
        )
    backend = BACKENDS[attention][requested]
    if obstacle := _find_obstacle(requested, backend, device, unsupported, case):
        remedy = (
            f"use {_find_alternative(attention, backend, device, unsupported, case)!r} or 'auto'"
        )
        raise UserError(f"backend {requested!r} for {attention} attention: {obstacle}; {remedy}")
    log(f"{attention} attention: backend {requested} (as requested)")
    return requested


@mark_constant
def choose_backend(
    attention: str,
    requested: str,
    device: torch.device | str,
    unsupported: str = "",
    width: int = 64,
    option: str = "",
) -> str:
    """Choose the attention backend for a device, and log each choice once.

    For sigmoid attention ``auto`` is ``hopper`` on GPUs of compute capability 9.0, ``triton`` on
    other GPUs of 8.0 or more, and ``reference`` on all other devices. For softmax attention
    ``auto`` is ``fa4`` on GPUs of capability 9.0 if its package is installed, ``reference`` on GPUs
    below 8.0, and ``sdpa`` on all other devices. Warns once if ``hopper`` or an installed ``fa4``
    supports the GPU but does not work with the installed packages. With untested versions of
    Triton or PyTorch, results are checked first (:mod:`scsigmoid.attention.selfcheck`).

    Args:
        attention: ``sigmoid`` or ``softmax``.
        requested: ``auto`` or a name in :data:`BACKENDS`.
        device: device of the tensors, or its name.
        unsupported: result of :func:`find_unsupported` for the tensors. By default all backends
            support them.
        width: result of :func:`tile_width`.
        option: :data:`~.problem.CAUSAL`, :data:`~.problem.KEY_BIAS` or "".

    Raises:
        UserError: if the backend is unknown or does not run on the device, or if ``triton`` or
            ``sdpa`` fails this check.
    """
    if not isinstance(requested, str):
        raise UserError(f"backend {requested!r}: is not a string; use 'auto' or a name in BACKENDS")
    return _choose(attention, requested, torch.device(device), unsupported, (width, option))
