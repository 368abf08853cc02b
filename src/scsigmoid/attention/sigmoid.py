"""Sigmoid attention: the entry points, packed and padded, and the largest score."""

from itertools import pairwise

import torch
from torch import Tensor

from scsigmoid.attention import ops
from scsigmoid.attention.arguments import (
    can_read,
    cast_for_autocast,
    check_booleans,
    check_boundaries,
    check_cumulative_values,
    check_fused,
    check_lengths,
    check_max_length,
    check_tensor,
    check_tensors,
    describe_devices,
    resolve_scale,
    to_float,
)
from scsigmoid.attention.backends import choose_backend, hopper_misfit
from scsigmoid.attention.problem import Problem, compute_dtype
from scsigmoid.attention.reference import largest_scores


def expand_bias(bias: float | Tensor | None, sequences: int, like: Tensor) -> Tensor | None:
    """The bias as a tensor (sequences,), float32 or, where ``like`` is, float64."""
    if bias is None:
        return None
    dtype = compute_dtype(like)
    if not isinstance(bias, Tensor):
        return torch.full((sequences,), to_float("bias", bias), dtype=dtype, device=like.device)
    check_tensor("bias", bias)
    if bias.is_complex():
        raise TypeError(f"bias: dtype {bias.dtype} is not real")
    if bias.shape not in ((), (sequences,)):
        raise ValueError(
            f"bias: must be a number or have shape ({sequences},), has {tuple(bias.shape)}"
        )
    if bias.device != like.device:
        raise ValueError(describe_devices("bias", bias, like))
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
    accurate: bool | None = None,
    deterministic: bool | None = None,
    check: bool = False,
) -> Tensor:
    """Sigmoid attention, O = sigmoid(Q K^T * scale + b) V, of packed sequences.

    Section "Background on Sigmoid Attention" and algorithms 1 to 3 of the paper.  Every token
    attends to all tokens of its own sequence.  Differentiable once in ``q``, ``k``, ``v``
    and ``bias``.  Under autocast ``q``, ``k`` and ``v`` are cast as those of a matrix product.

    Args:
        q: (tokens, heads, dim), bfloat16, float16 or float32 (``reference`` also float64, and a
            dim over 128); any strides, such as a slice of a fused projection.
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
            and exact beyond.  float32 inputs always get the exact one.  In bfloat16 ``hopper``'s
            exact one is as good as its results can tell (docs/assumptions.md).
        deterministic: the same bits from run to run, gradients too, which costs ``hopper`` some
            speed; by default what :func:`torch.use_deterministic_algorithms` is set to.  ``triton``
            and ``reference`` always are.
        check: check the values of ``cu_seqlens`` on a GPU too, which waits for it; on the CPU they
            are checked always.

    Returns:
        Shape and dtype of ``q``, contiguous; zeros for a sequence without keys.

    Raises:
        TypeError, ValueError: for an argument of wrong type, shape, device or value; names it.
        NotImplementedError: for second derivatives and derivatives in forward mode.
        RuntimeError: for derivatives by :func:`torch.func.grad`, ``vjp`` and ``jacrev``.
        UserError: if the device cannot run the backend.
    """
    check_tensors(q, k, v, dimensions=3)
    check_booleans(check, accurate=accurate, deterministic=deterministic)
    check_boundaries("cu_seqlens", cu_seqlens, q)
    check_max_length("max_seqlen", max_seqlen)
    if cu_seqlens_k is None:
        if max_seqlen_k is not None:
            raise ValueError("max_seqlen_k: must not be passed without cu_seqlens_k")
        if k.shape[0] != q.shape[0]:
            raise ValueError(f"k: {k.shape[0]} tokens but q has {q.shape[0]}; pass cu_seqlens_k")
        cu_seqlens_k, max_seqlen_k = cu_seqlens, max_seqlen
    else:
        check_boundaries("cu_seqlens_k", cu_seqlens_k, q)
        if max_seqlen_k is None:
            raise ValueError("max_seqlen_k: must be passed with cu_seqlens_k")
        check_max_length("max_seqlen_k", max_seqlen_k)
        if cu_seqlens_k.shape != cu_seqlens.shape:
            raise ValueError(
                f"cu_seqlens_k: {cu_seqlens_k.shape[0] - 1} sequences, cu_seqlens has "
                f"{cu_seqlens.shape[0] - 1}"
            )
    if can_read(cu_seqlens, check):
        check_cumulative_values("cu_seqlens", cu_seqlens, q.shape[0], max_seqlen)
        check_cumulative_values("cu_seqlens_k", cu_seqlens_k, k.shape[0], max_seqlen_k)
    q, k, v = cast_for_autocast(q, k, v)
    backend = choose_backend("sigmoid", backend, q.device, hopper_misfit(q))
    problem = Problem(
        starts_q=cu_seqlens[:-1],
        ends_q=cu_seqlens[1:],
        starts_k=cu_seqlens_k[:-1],
        ends_k=cu_seqlens_k[1:],
        bias=expand_bias(bias, cu_seqlens.shape[0] - 1, q),
        longest_q=max_seqlen,
        longest_k=max_seqlen_k,
        scale=resolve_scale(scale, q.shape[-1]),
        accurate=accurate,
        has_gaps=False,
        deterministic=deterministic,
    )
    return ops.attend(q, k, v, problem, backend)


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
        cu_seqlens, max_seqlen, scale, bias, backend, accurate, deterministic, check: as in
            :func:`sigmoid_attention`.

    Returns:
        (tokens, heads, dim), the dtype of ``qkv``, contiguous.

    Raises:
        TypeError, ValueError, NotImplementedError, UserError: as :func:`sigmoid_attention`.
    """
    check_fused(qkv, cu_seqlens, max_seqlen, check)
    check_booleans(check, accurate=accurate, deterministic=deterministic)
    (qkv,) = cast_for_autocast(qkv)
    q = qkv.select(1, 0)
    backend = choose_backend("sigmoid", backend, qkv.device, hopper_misfit(q))
    starts, ends = cu_seqlens[:-1], cu_seqlens[1:]
    problem = Problem(
        starts_q=starts,
        ends_q=ends,
        starts_k=starts,
        ends_k=ends,
        bias=expand_bias(bias, cu_seqlens.shape[0] - 1, q),
        longest_q=max_seqlen,
        longest_k=max_seqlen,
        scale=resolve_scale(scale, q.shape[-1]),
        accurate=accurate,
        has_gaps=False,
        deterministic=deterministic,
    )
    return ops.attend(qkv, None, None, problem, backend)


def _check_lengths(name: str, lengths: Tensor, like: Tensor, capacity: int, check: bool) -> None:
    check_tensor(name, lengths)
    if lengths.shape != (like.shape[0],):
        raise ValueError(f"{name}: must have shape ({like.shape[0]},), has {tuple(lengths.shape)}")
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: must be int32 or int64, is {lengths.dtype}")
    if lengths.device != like.device:
        raise ValueError(describe_devices(name, lengths, like))
    if can_read(lengths, check):
        check_lengths(name, lengths, capacity)


def sigmoid_attention_padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths_q: Tensor,
    lengths_k: Tensor | None = None,
    *,
    scale: float | None = None,
    bias: float | Tensor | None = None,
    backend: str = "auto",
    accurate: bool | None = None,
    deterministic: bool | None = None,
    check: bool = False,
) -> Tensor:
    """Sigmoid attention of padded sequences: the interface of the paper's algorithms 1 to 3.

    The padded batch is read as a packed one with gaps, by the same kernel: blocks of padding cost
    nothing, padding is never read (it may hold NaN), and outputs and gradients there are exactly
    zero.  Inputs are not copied where the first two dimensions can be viewed as one.

    Args:
        q: (sequences, length, heads, dim).
        k, v: (sequences, key length, heads, dim).
        lengths_q: (sequences,) int32 or int64, valid tokens of each sequence.
        lengths_k: valid keys of each sequence; ``lengths_q`` by default.
        scale, bias, backend, accurate, deterministic, check: as in :func:`sigmoid_attention`; the
            longest sequence counts as one without padding.

    Returns:
        Shape and dtype of ``q``, contiguous.

    Raises:
        TypeError, ValueError, NotImplementedError, UserError: as :func:`sigmoid_attention`.
    """
    check_tensors(q, k, v, dimensions=4)
    check_booleans(check, accurate=accurate, deterministic=deterministic)
    if lengths_k is None and k.shape[1] != q.shape[1]:
        raise ValueError(f"k: length {k.shape[1]} but q has {q.shape[1]}; pass lengths_k")
    _check_lengths("lengths_q", lengths_q, q, q.shape[1], check)
    if lengths_k is not None:
        _check_lengths("lengths_k", lengths_k, q, k.shape[1], check)
    q, k, v = cast_for_autocast(q, k, v)
    backend = choose_backend("sigmoid", backend, q.device, hopper_misfit(q))
    sequences = torch.arange(q.shape[0], dtype=torch.int32, device=q.device)
    starts_q = sequences * q.shape[1]
    ends_q = starts_q + lengths_q.to(torch.int32)
    if lengths_k is None:
        starts_k, ends_k = starts_q, ends_q
    else:
        starts_k = sequences * k.shape[1]
        ends_k = starts_k + lengths_k.to(torch.int32)
    problem = Problem(
        starts_q=starts_q,
        ends_q=ends_q,
        starts_k=starts_k,
        ends_k=ends_k,
        bias=expand_bias(bias, q.shape[0], q),
        longest_q=q.shape[1],
        longest_k=k.shape[1],
        scale=resolve_scale(scale, q.shape[-1]),
        accurate=accurate,
        has_gaps=True,
        deterministic=deterministic,
    )
    flat_q, flat_k, flat_v = (x.flatten(0, 1) for x in (q, k, v))
    out = ops.attend(flat_q, flat_k, flat_v, problem, backend)
    return out.unflatten(0, (q.shape[0], q.shape[1]))


@torch.no_grad()
def score_max(q: Tensor, k: Tensor, cu_seqlens: Tensor, scale: float | None = None) -> Tensor:
    """Largest ``|q . k * scale|`` over all heads and all pairs of tokens of one sequence.

    Computed in float32 block by block, so the memory does not grow with the square of the length.
    Reads ``cu_seqlens`` on the host, so a GPU is waited for.

    Args:
        q, k: (tokens, heads, dim), bfloat16, float16, float32 or float64.
        cu_seqlens: (sequences + 1,) int32.
        scale: factor of the scores; 1 / sqrt(dim) by default.

    Returns:
        A float32 scalar tensor on the device of ``q``; 0 without tokens.  NaN if a score is NaN.

    Raises:
        TypeError, ValueError: for an argument of wrong type, shape, device or value; names it.
    """
    check_tensors(q, k, k, dimensions=3)
    if k.shape[0] != q.shape[0]:
        raise ValueError(f"k: {k.shape[0]} tokens but q has {q.shape[0]}")
    check_boundaries("cu_seqlens", cu_seqlens, q)
    check_cumulative_values("cu_seqlens", cu_seqlens, q.shape[0], q.shape[0])
    spans = list(pairwise(cu_seqlens.tolist()))
    if not q.shape[1]:
        return torch.zeros((), dtype=torch.float32, device=q.device)
    return largest_scores(q, k, spans, spans, resolve_scale(scale, q.shape[-1])).amax()
