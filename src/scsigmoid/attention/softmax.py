"""Softmax attention of packed sequences: the baseline's entry point."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scsigmoid.attention import ops
from scsigmoid.attention.arguments import (
    check_boundaries,
    check_cumulative,
    check_longest,
    check_tensors,
    resolve_scale,
    under_autocast,
)
from scsigmoid.attention.backends import choose_backend
from scsigmoid.attention.flex import flex_attention_packed
from scsigmoid.attention.sdpa import sdpa_attention

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


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
        q, k, v: (tokens, heads, dim), one dtype.
        cu_seqlens: (sequences + 1,) int32, cumulative lengths from 0 to ``tokens``.
        max_seqlen: length of the longest sequence, or more.
        scale: factor of the scores; 1 / sqrt(dim) by default.
        backend: ``auto``, ``sdpa``, ``flex`` or ``reference``.
        mask: for ``flex``, the batch's :func:`scsigmoid.attention.flex.document_mask` if the caller
            made it already; other backends ignore it.
        check: as in :func:`scsigmoid.attention.sigmoid_attention`.

    Returns:
        Shape and dtype of ``q``.

    Raises:
        TypeError, ValueError: for an argument of wrong type, shape, device or value; names it.
        UserError: if the device cannot run the backend.
    """
    check_tensors(q, k, v, dimensions=3)
    if k.shape[0] != q.shape[0]:
        raise ValueError(f"k: {k.shape[0]} tokens where q has {q.shape[0]}")
    check_boundaries("cu_seqlens", cu_seqlens, q)
    check_longest("max_seqlen", max_seqlen)
    if (check or q.device.type == "cpu") and not torch.compiler.is_compiling():
        check_cumulative("cu_seqlens", cu_seqlens, q.shape[0], max_seqlen)
    backend = choose_backend("softmax", backend, q.device)
    q, k, v = under_autocast(q, k, v)
    factor = resolve_scale(scale, q.shape[-1])
    if backend == "flex":
        return flex_attention_packed(q, k, v, cu_seqlens, factor, mask)
    if backend == "sdpa":
        return sdpa_attention(q, k, v, cu_seqlens, max_seqlen, factor)
    # An operator's first call loads torch's compiler: a second that an evaluation need not spend.
    plain = ops.eager(q, k, v) and not torch.is_grad_enabled()
    attend = ops.compute_softmax if plain else ops.softmax
    return attend(q, k, v, cu_seqlens[:-1], cu_seqlens[1:], factor)
