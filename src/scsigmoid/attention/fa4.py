"""Softmax attention by FlashAttention-4 (optional package ``flash-attn-4``), used on Hopper.

Registers operators for the package's forward and backward pass, because torch.compile does not
support the package's own functions.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from scsigmoid.attention.ops import register


@functools.cache
def _passes() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Import the package's functions of the forward and backward pass."""
    from flash_attn.cute import interface

    return interface._flash_attn_fwd, interface._flash_attn_bwd


def unavailable() -> str:
    """Return why the package cannot be imported, or "" if it can."""
    try:
        _passes()
    # AttributeError: a version of nvidia-cutlass-dsl lacks a name. OSError: a library is missing.
    except (ImportError, AttributeError, OSError) as error:
        return f"flash-attn-4 cannot be imported ({error})"
    return ""


def _separate(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return q, k and v from [q, k, v] or from one tensor, (tokens, 3, heads, dim)."""
    return tensors if len(tensors) == 3 else tensors[0].unbind(1)


def _length_arguments(cu_seqlens: Tensor, max_seqlen: int) -> dict[str, Any]:
    """Return the package's arguments for the lengths, which are equal for queries and keys."""
    return {
        "cu_seqlens_q": cu_seqlens,
        "cu_seqlens_k": cu_seqlens,
        "max_seqlen_q": max_seqlen,
        "max_seqlen_k": max_seqlen,
    }


def _forward(
    tensors: Sequence[Tensor], cu_seqlens: Tensor, max_seqlen: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Compute the result, and the log-sum-exp (lse) of each query's scores, (heads, tokens)."""
    run_forward, _ = _passes()
    options = _length_arguments(cu_seqlens, max_seqlen)
    return run_forward(*_separate(tensors), softmax_scale=scale, return_lse=True, **options)[:2]


def _forward_fake(tensors: Sequence[Tensor], *arguments: object) -> tuple[Tensor, Tensor]:
    tokens, heads, dimension = _separate(tensors)[0].shape
    lse = tensors[0].new_empty(heads, tokens, dtype=torch.float32)
    return tensors[0].new_empty(tokens, heads, dimension), lse


def _backward(
    grad: Tensor,
    tensors: Sequence[Tensor],
    cu_seqlens: Tensor,
    out: Tensor,
    lse: Tensor,
    max_seqlen: int,
    scale: float,
) -> list[Tensor]:
    """Compute the gradients of ``tensors``, contiguous. ``lse``: see :func:`_forward`."""
    gradients = [x.new_empty(x.shape) for x in tensors]  # the package writes into them
    options = _length_arguments(cu_seqlens, max_seqlen)
    options["dq"], options["dk"], options["dv"] = _separate(gradients)
    options["deterministic"] = torch.are_deterministic_algorithms_enabled()
    _passes()[1](*_separate(tensors), out, grad, lse, scale, **options)
    return gradients


def _backward_fake(grad: Tensor, tensors: Sequence[Tensor], *arguments: object) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in tensors]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tensors, cu_seqlens, *ctx.options = inputs
    ctx.save_for_backward(cu_seqlens, *output, *tensors)
    ctx.mark_non_differentiable(output[1])


def _differentiate(
    backward: Callable[..., list[Tensor]], ctx: Any, grad: Tensor, _: Tensor
) -> tuple[Any, ...]:
    cu_seqlens, out, lse, *tensors = ctx.saved_tensors
    return backward(grad, tensors, cu_seqlens, out, lse, *ctx.options), None, None, None


forward, _ = register(
    "fa4", (_forward, _backward), (_forward_fake, _backward_fake), _save, _differentiate
)


def attend(
    tensors: Sequence[Tensor],
    cu_seqlens: Tensor,
    max_seqlen: int,
    scale: float,
    mask: object = None,
) -> Tensor:
    """Compute :func:`softmax_attention` of packed [q, k, v] or [qkv]. Ignores ``mask``."""
    return forward(list(tensors), cu_seqlens, max_seqlen, scale)[0]
