"""Softmax attention of packed sequences: the baseline's entry point."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from scsigmoid.attention.arguments import (
    cast_for_autocast,
    check_fused,
    check_packing,
    check_tensors,
    resolve_scale,
)
from scsigmoid.attention.backends import choose_backend, hopper_misfit
from scsigmoid.kernels import BACKENDS

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def _import_function(path: str) -> Callable[..., Tensor]:
    """Import a function of this package by its path ``module:name``."""
    module, _, name = path.partition(":")
    function: Callable[..., Tensor] = getattr(
        importlib.import_module(f"scsigmoid.attention.{module}"), name
    )
    return function


#: What computes it, by backend; here, so that torch's compiler finds plain functions.
ATTEND = {name: _import_function(backend.attend) for name, backend in BACKENDS["softmax"].items()}


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    *,
    scale: float | None = None,
    backend: str = "auto",
    mask: "BlockMask | None" = None,
    check: bool = False,
) -> Tensor:
    """Softmax attention, O = softmax(Q K^T * scale) V, of packed sequences.

    Every token attends to all tokens of its own sequence.

    Args:
        q, k, v: (tokens, heads, dim), all bfloat16, float16, float32 or float64; ``fa4`` has the
            first two alone, and the dims 64 and 128.
        cu_seqlens: (sequences + 1,) int32, cumulative lengths from 0 to ``tokens``.
        max_seqlen: length of the longest sequence, or more.
        scale: factor of the scores; 1 / sqrt(dim) by default.
        backend: ``auto``, or a name in :data:`scsigmoid.kernels.BACKENDS`.
        mask: for ``flex``, the batch's :func:`scsigmoid.attention.flex.document_mask` if the caller
            made it already; other backends ignore it.
        check: as in :func:`scsigmoid.attention.sigmoid_attention`.

    Returns:
        Shape and dtype of ``q``.

    Raises:
        TypeError, ValueError: for an argument of wrong type, shape, device or value; names it.
        NotImplementedError, RuntimeError: for a derivative that the backend does not have.
        UserError: if the device cannot run the backend.
    """
    check_tensors(q, k, v, dimensions=3)
    if k.shape[0] != q.shape[0]:
        raise ValueError(f"k: {k.shape[0]} tokens but q has {q.shape[0]}")
    check_packing(q, cu_seqlens, max_seqlen, check)
    q, k, v = cast_for_autocast(q, k, v)
    attend = ATTEND[_choose(backend, q)]
    return attend([q, k, v], cu_seqlens, max_seqlen, resolve_scale(scale, q.shape[-1]), mask)


def softmax_attention_qkv(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    *,
    scale: float | None = None,
    backend: str = "auto",
    mask: "BlockMask | None" = None,
    check: bool = False,
) -> Tensor:
    """:func:`softmax_attention` of q, k and v that one projection made.

    The same numbers; where the backend can, the gradient is written as one tensor, as the
    projection's backward pass reads it.

    Args:
        qkv: (tokens, 3, heads, dim): q, k and v; any strides but along ``dim``.
        cu_seqlens, max_seqlen, scale, backend, mask, check: as in :func:`softmax_attention`.

    Returns:
        (tokens, heads, dim), the dtype of ``qkv``.

    Raises:
        TypeError, ValueError, NotImplementedError, UserError: as :func:`softmax_attention`.
    """
    check_fused(qkv, cu_seqlens, max_seqlen, check)
    (qkv,) = cast_for_autocast(qkv)
    backend = _choose(backend, qkv)
    tensors = [qkv] if BACKENDS["softmax"][backend].takes_qkv else qkv.unbind(1)
    factor = resolve_scale(scale, qkv.shape[-1])
    return ATTEND[backend](tensors, cu_seqlens, max_seqlen, factor, mask)


def _choose(backend: str, like: Tensor) -> str:
    return choose_backend("softmax", backend, like.device, hopper_misfit(like))
