"""Sigmoid attention of packed sequences: the entry point."""

from typing import Literal, overload

import torch
from torch import Tensor

from scsigmoid.attention import ops, qkv_ops
from scsigmoid.attention.arguments import (
    as_number,
    check_boundaries,
    check_cumulative,
    check_fused,
    check_longest,
    check_tensor,
    check_tensors,
    resolve_scale,
    under_autocast,
)
from scsigmoid.attention.backends import choose_backend, hopper_misfit


def per_sequence(bias: float | Tensor | None, sequences: int, like: Tensor) -> Tensor | None:
    """The bias as a tensor (sequences,), float32 or, where ``like`` is, float64."""
    if bias is None:
        return None
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    if not isinstance(bias, Tensor):
        return torch.full((sequences,), as_number("bias", bias), dtype=dtype, device=like.device)
    check_tensor("bias", bias)
    if bias.is_complex():
        raise TypeError(f"bias: dtype {bias.dtype} is not a real one")
    if bias.shape not in ((), (sequences,)):
        raise ValueError(f"bias: must be a number or have shape ({sequences},), has {bias.shape}")
    if bias.device != like.device:
        raise ValueError(f"bias: lies on {bias.device}, q on {like.device}")
    return bias.to(dtype).expand(sequences).contiguous()


@overload
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
    accurate: bool | None = None,
    deterministic: bool | None = None,
    score_max: Literal[False] = False,
    check: bool = False,
) -> Tensor: ...


@overload
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
    accurate: bool | None = None,
    deterministic: bool | None = None,
    score_max: Literal[True],
    check: bool = False,
) -> tuple[Tensor, Tensor]: ...


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
    accurate: bool | None = None,
    deterministic: bool | None = None,
    score_max: bool = False,
    check: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Sigmoid attention, O = sigmoid(Q K^T * scale + b) V, of packed sequences.

    Section "Background on Sigmoid Attention" and algorithms 1 to 3 of the paper.  Every token
    attends to all tokens of its own sequence.  Differentiable once in ``q``, ``k``, ``v``
    and ``bias``.  Under autocast ``q``, ``k`` and ``v`` are cast as those of a matrix product.

    Args:
        q: (tokens, heads, dim), bfloat16, float16 or float32 (``reference`` also float64); any
            strides along tokens and heads, such as a slice of a fused projection.
        k, v: (key tokens, heads, dim), the dtype of ``q``.
        cu_seqlens: (sequences + 1,) int32, cumulative lengths from 0 to ``tokens``.
        max_seqlen: length of the longest sequence, or more.
        cu_seqlens_k: cumulative lengths of the keys where they differ from the queries'.
        max_seqlen_k: length of the longest sequence of keys, or more.
        scale: factor of the scores; 1 / sqrt(dim) by default.
        bias: b, a number, or a tensor () or (sequences,), which may require a gradient; by default
            -log(n), n the sequence's own number of keys.
        backend: ``auto``, ``hopper``, ``triton`` or ``reference``.
        accurate: exact sigmoid (True) or the hardware's approximate tanh (False).  By default tanh
            up to 8,192 keys (``max_seqlen_k``), where its error drowns in the rounding of bfloat16,
            and exact beyond.  float32 inputs always get the exact one.
        deterministic: the same bits from run to run, gradients too, which costs ``hopper`` some
            speed; by default what :func:`torch.use_deterministic_algorithms` is set to.  ``triton``
            and ``reference`` always are.
        score_max: also return the largest absolute score of each head.
        check: check the values of ``cu_seqlens`` on a GPU too, which waits for it; on the CPU they
            are checked always.

    Returns:
        Shape and dtype of ``q``, contiguous; zeros for a sequence without keys.  With ``score_max``
        a pair: this, and the largest ``|q . k * scale|`` of each head over all pairs of tokens of
        one sequence, (heads,) float32, without gradient; 0 without tokens, NaN if a score is NaN.

    Raises:
        TypeError, ValueError: for an argument of wrong type, shape, device or value; names it.
        NotImplementedError: for second derivatives.
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
    q, k, v = under_autocast(q, k, v)
    backend = choose_backend("sigmoid", backend, q.device, hopper_misfit(q))
    out, largest = ops.attend(
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
        accurate,
        False,
        deterministic,
        backend,
        score_max,
    )
    return (out, largest) if score_max else out


def sigmoid_attention_qkv(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    *,
    scale: float | None = None,
    bias: float | Tensor | None = None,
    backend: str = "auto",
    accurate: bool | None = None,
    deterministic: bool | None = None,
    check: bool = False,
) -> Tensor:
    """:func:`sigmoid_attention` of q, k and v that one projection made.

    The same numbers as from its three slices.  The gradient is written as one tensor, as the
    projection's backward pass reads it; that of three slices would have to be copied together.

    Args:
        qkv: (tokens, 3, heads, dim): q, k and v; any strides but along ``dim``.
        cu_seqlens to check: as in :func:`sigmoid_attention`.

    Returns:
        (tokens, heads, dim), the dtype of ``qkv``, contiguous.

    Raises:
        TypeError, ValueError, NotImplementedError, UserError: as :func:`sigmoid_attention`.
    """
    check_fused(qkv, cu_seqlens, max_seqlen, check)
    (qkv,) = under_autocast(qkv)
    q = qkv.select(1, 0)
    return qkv_ops.attend(
        qkv,
        cu_seqlens[:-1],
        cu_seqlens[1:],
        per_sequence(bias, cu_seqlens.shape[0] - 1, q),
        max_seqlen,
        resolve_scale(scale, q.shape[-1]),
        accurate,
        deterministic,
        choose_backend("sigmoid", backend, qkv.device, hopper_misfit(q)),
    )
