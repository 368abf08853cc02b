"""Launching the Triton kernels: blocks, strides, grids."""

import contextlib
import functools
from typing import Any

import torch
from torch import Tensor

from scsigmoid.attention.backends import interpreting
from scsigmoid.attention.triton_configurations import (
    INTERPRETED,
    Configuration,
    Kernel,
    block_width,
    configuration,
)
from scsigmoid.attention.triton_sigmoid import dkdv_kernel, dq_kernel, forward_kernel

WIDEST = 128


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _configuration(kernel: Kernel, q: Tensor) -> Configuration:
    if interpreting():
        return INTERPRETED
    return configuration(kernel, q.shape[-1], q.element_size(), _capability(q.device))


def constants(
    chosen: Configuration, dimension: int, itemsize: int, *, has_bias: bool, accurate: bool
) -> dict[str, Any]:
    """The kernels' compile-time arguments; float32 always gets the exact sigmoid."""
    return {
        "D": dimension,
        "BLOCK_D": block_width(dimension),
        "BLOCK_Q": chosen.block_q,
        "BLOCK_K": chosen.block_k,
        "HAS_BIAS": has_bias,
        "EXACT": accurate or itemsize == 4,
        "PRECISION": "ieee" if itemsize == 4 else "tf32",
        "STAGES": chosen.stages,
    }


def _options(chosen: Configuration, q: Tensor, bias: Tensor | None, accurate: bool) -> Any:
    # The interpreter knows no inline assembly.
    accurate = accurate or interpreting()
    fixed = constants(
        chosen, q.shape[-1], q.element_size(), has_bias=bias is not None, accurate=accurate
    )
    return {**fixed, "num_warps": chosen.warps, "num_stages": chosen.stages}


def _check(q: Tensor) -> None:
    if q.shape[-1] > WIDEST:
        raise ValueError(
            f"q: head dimension {q.shape[-1]} is above {WIDEST}, the triton backend's limit; "
            "use backend='reference'"
        )
    if q.dtype == torch.float64:
        raise TypeError("q: the triton backend has no float64; use backend='reference'")


def _inner_contiguous(tensor: Tensor) -> Tensor:
    """The tensor, copied only if the elements of one head do not lie side by side."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _empty(like: Tensor, gaps: bool) -> Tensor:
    make = torch.zeros if gaps else torch.empty
    return make(like.shape, dtype=like.dtype, device=like.device)


def _device(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be the tensor's."""
    if tensor.device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def _blocks(longest: int, block: int) -> int:
    return max(1, -(-longest // block))


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    ends_q: Tensor,
    starts_k: Tensor,
    ends_k: Tensor,
    bias: Tensor | None,
    longest_q: int,
    scale: float,
    accurate: bool,
    gaps: bool,
) -> Tensor:
    """Launch algorithm 1; arguments as the operator's in :mod:`scsigmoid.attention.ops`."""
    _check(q)
    q, k, v = (_inner_contiguous(x) for x in (q, k, v))
    out = _empty(q, gaps)
    if out.numel() == 0:
        return out
    chosen = _configuration("forward", q)
    blocks = _blocks(longest_q, chosen.block_q)
    with _device(q):
        forward_kernel[(len(starts_q) * blocks, q.shape[1])](
            q,
            k,
            v,
            out,
            starts_q,
            ends_q,
            starts_k,
            ends_k,
            bias,
            *_strides(q, k, v, out),
            scale,
            blocks,
            **_options(chosen, q, bias, accurate),
        )
    return out


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    ends_q: Tensor,
    starts_k: Tensor,
    ends_k: Tensor,
    bias: Tensor | None,
    longest_q: int,
    longest_k: int,
    scale: float,
    accurate: bool,
    gaps: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch algorithms 2 and 3; arguments as the operator's."""
    grad, q, k, v = (_inner_contiguous(x) for x in (grad, q, k, v))
    dq, dk, dv = (_empty(x, gaps) for x in (q, k, v))
    bounds = (starts_q, ends_q, starts_k, ends_k, bias)
    with _device(q):
        if dq.numel():
            chosen = _configuration("dq", q)
            blocks = _blocks(longest_q, chosen.block_q)
            dq_kernel[(len(starts_q) * blocks, q.shape[1])](
                grad,
                q,
                k,
                v,
                dq,
                *bounds,
                *_strides(grad, q, k, v, dq),
                scale,
                blocks,
                **_options(chosen, q, bias, accurate),
            )
        if dk.numel():
            chosen = _configuration("dkdv", q)
            blocks = _blocks(longest_k, chosen.block_k)
            dkdv_kernel[(len(starts_k) * blocks, q.shape[1])](
                grad,
                q,
                k,
                v,
                dk,
                dv,
                *bounds,
                *_strides(grad, q, k, v, dk, dv),
                scale,
                blocks,
                **_options(chosen, q, bias, accurate),
            )
    return dq, dk, dv
