"""Sigmoid attention of packed sequences: the entry point."""

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


def per_sequence(bias: float | Tensor | None, sequences: int, like: Tensor) -> Tensor | None:
    """The bias as a float32 tensor (sequences,); None stays None."""
    if bias is None:
        return None
    if not isinstance(bias, Tensor):
        return torch.full((sequences,), float(bias), dtype=torch.float32, device=like.device)
    if bias.requires_grad:
        raise NotImplementedError("bias: its gradient is not implemented; pass bias.detach()")
    if bias.shape not in ((), (sequences,)):
        raise ValueError(f"bias: must be a number or have shape ({sequences},), has {bias.shape}")
    if bias.device != like.device:
        raise ValueError(f"bias: lies on {bias.device}, q on {like.device}")
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return bias.to(dtype).expand(sequences).contiguous()


def sigmoid_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    *,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_k: int | None = None,
    scale: float | None = None,
    bias: float | Tensor | None = None,
    backend: str = "auto",
    accurate: bool = False,
    check: bool = False,
) -> Tensor:
    """Sigmoid attention, O = sigmoid(Q K^T * scale + b) V, of packed sequences.

    Section "Background on Sigmoid Attention" and algorithms 1 to 3 of the paper.  Every token
    attends to all tokens of its own sequence.  Differentiable once in ``q``, ``k`` and ``v``;
    gradients do not depend on the order in which the GPU runs its blocks.  Under autocast the
    inputs are cast as those of a matrix product.

    Args:
        q: (tokens, heads, dim), bfloat16, float16 or float32 (``reference`` also float64); any
            strides along tokens and heads, such as a slice of a fused projection.
        k, v: (key tokens, heads, dim), the dtype of ``q``.
        cu_seqlens: (sequences + 1,) int32, cumulative lengths from 0 to ``tokens``.
        max_seqlen: length of the longest sequence, or more.
        cu_seqlens_k: cumulative lengths of the keys where they differ from the queries'.
        max_seqlen_k: length of the longest sequence of keys, or more.
        scale: factor of the scores; 1 / sqrt(dim) by default.
        bias: b, a number or (sequences,) without gradient; by default -log(n), n the sequence's own
            number of keys.
        backend: ``auto``, ``triton`` or ``reference``.
        accurate: exact sigmoid instead of the hardware's approximate tanh; float32 inputs always
            get it.  For tables that must not depend on the approximation, and for sequences far
            beyond 4,096 tokens, where the approximation shows in the last bits of bfloat16.
        check: check the values of ``cu_seqlens`` on a GPU too, which waits for it; on the CPU they
            are checked always.

    Returns:
        Shape and dtype of ``q``, contiguous; zeros for a sequence without keys.

    Raises:
        TypeError, ValueError: for an argument of wrong type, shape, device or value; names it.
        NotImplementedError: for a bias that requires a gradient, and for second derivatives.
        UserError: if the device cannot run the backend.
    """
    check_tensors(q, k, v, dimensions=3)
    check_boundaries("cu_seqlens", cu_seqlens, q)
    check_longest("max_seqlen", max_seqlen)
    if cu_seqlens_k is None:
        if max_seqlen_k is not None:
            raise ValueError("max_seqlen_k: given without cu_seqlens_k")
        if k.shape[0] != q.shape[0]:
            raise ValueError(f"k: {k.shape[0]} tokens where q has {q.shape[0]}; pass cu_seqlens_k")
        cu_seqlens_k, max_seqlen_k = cu_seqlens, max_seqlen
    else:
        check_boundaries("cu_seqlens_k", cu_seqlens_k, q)
        if max_seqlen_k is None:
            raise ValueError("max_seqlen_k: must be given with cu_seqlens_k")
        check_longest("max_seqlen_k", max_seqlen_k)
        if cu_seqlens_k.shape != cu_seqlens.shape:
            raise ValueError(
                f"cu_seqlens_k: {cu_seqlens_k.shape[0] - 1} sequences, cu_seqlens has "
                f"{cu_seqlens.shape[0] - 1}"
            )
    if (check or q.device.type == "cpu") and not torch.compiler.is_compiling():
        check_cumulative("cu_seqlens", cu_seqlens, q.shape[0], max_seqlen)
        check_cumulative("cu_seqlens_k", cu_seqlens_k, k.shape[0], max_seqlen_k)
    backend = choose_backend("sigmoid", backend, q.device)
    q, k, v = under_autocast(q, k, v)
    attend = ops.compute_sigmoid if ops.bypassed(q) else ops.sigmoid
    return attend(
        q,
        k,
        v,
        cu_seqlens[:-1],
        cu_seqlens[1:],
        cu_seqlens_k[:-1],
        cu_seqlens_k[1:],
        per_sequence(bias, cu_seqlens.shape[0] - 1, q),
        max_seqlen,
        max_seqlen_k,
        resolve_scale(scale, q.shape[-1]),
        backend,
        accurate,
        False,
    )
