"""Sigmoid attention of packed and of padded sequences, and the largest attention score."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from scsigmoid.attention import ops
from scsigmoid.attention.arguments import (
    are_valid,
    cast_for_autocast,
    check_booleans,
    check_device,
    check_fused,
    check_lengths,
    check_packing,
    check_real,
    check_tensor,
    check_tensors,
    resolve_scale,
    to_float,
)
from scsigmoid.attention.backends import (
    choose_backend,
    find_unsupported,
    tile_width,
)
from scsigmoid.attention.problem import CAUSAL, KEY_BIAS, Problem, compute_dtype
from scsigmoid.attention.reference import largest_scores


def expand_bias(bias: float | Tensor | None, sequences: int, like: Tensor) -> Tensor | None:
    """Return the bias as a tensor (sequences,), float64 if ``like`` is float64, else float32.

    None, the default -log(number of keys), stays None.
    """
    if bias is None:
        return None
    dtype = compute_dtype(like)
    if not isinstance(bias, Tensor):
        return torch.full((sequences,), to_float("bias", bias), dtype=dtype, device=like.device)
    check_tensor("bias", bias)
    check_real("bias", bias)
    # Compared by number, because torch.compile does not compare tuples of symbolic sizes.
    if bias.dim() > 1 or (bias.dim() == 1 and bias.shape[0] != sequences):
        raise ValueError(
            f"bias: must be a number or have shape ({sequences},), has {tuple(bias.shape)}"
        )
    check_device("bias", bias, like)
    return bias.to(dtype).expand(sequences).contiguous()


def convert_key_bias(key_bias: Tensor | None, k: Tensor) -> Tensor | None:
    """Return the biases of the tokens of ``k`` in the dtype of :func:`expand_bias`, contiguous."""
    if key_bias is None:
        return None
    check_tensor("key_bias", key_bias)
    check_real("key_bias", key_bias)
    if key_bias.shape != k.shape[:1]:
        raise ValueError(
            f"key_bias: must have one element per key, {k.shape[0]} in all, has shape "
            f"{tuple(key_bias.shape)}"
        )
    check_device("key_bias", key_bias, k)
    return key_bias.to(compute_dtype(k)).contiguous()


def _repeat_heads(tensor: Tensor, q: Tensor) -> Tensor:
    """Return keys or values with as many heads as ``q``: each head once for each of its queries."""
    groups = q.shape[-2] // max(1, tensor.shape[-2])
    return tensor if groups <= 1 else tensor.repeat_interleave(groups, dim=-2)


def _attend(
    tensors: Sequence[Tensor],
    spans: tuple[Tensor, Tensor, Tensor, Tensor],
    longest: tuple[int, int],
    scale: float | None,
    bias: float | Tensor | None,
    backend: str,
    accurate: bool | None,
    deterministic: bool | None,
    is_causal: bool,
    key_bias: Tensor | None,
    has_gaps: bool = False,
) -> Tensor:
    """Compute attention of checked tensors, [q, k, v] or [qkv].

    ``spans`` (``starts_q`` to ``ends_k``), ``longest`` (``longest_q``, ``longest_k``) and
    ``has_gaps`` are fields of :class:`Problem`. All other arguments are as in
    :func:`sigmoid_attention`.
    """
    check_booleans(accurate=accurate, deterministic=deterministic, is_causal=is_causal)
    # qkv has the dtype, device and last dimension of q.
    q_or_qkv, k, v = tensors if len(tensors) == 3 else (tensors[0], None, None)
    is_causal = bool(is_causal)
    option = CAUSAL if is_causal else KEY_BIAS if key_bias is not None else ""
    unsupported = find_unsupported("sigmoid", q_or_qkv, option)
    checked = tile_width(q_or_qkv.shape[-1])
    device = q_or_qkv.device
    backend = choose_backend("sigmoid", backend, device, unsupported, checked, option)
    problem = Problem(
        *spans,
        expand_bias(bias, spans[0].shape[0], q_or_qkv),
        convert_key_bias(key_bias, q_or_qkv if k is None else k),
        *longest,
        resolve_scale(scale, q_or_qkv.shape[-1]),
        accurate=accurate,
        has_gaps=has_gaps,
        deterministic=deterministic,
        is_causal=is_causal,
    )
    return ops.attend(q_or_qkv, k, v, problem, backend)


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
    is_causal: bool = False,
    key_bias: Tensor | None = None,
    check: bool = False,
) -> Tensor:
    """Compute sigmoid attention, O = sigmoid(Q K^T * scale + b) V, of packed sequences.

    Implements the paper's section "Background on Sigmoid Attention" and algorithms 1 to 3. Every
    token attends to all tokens of its sequence. Differentiable once in ``q``, ``k``, ``v`` and
    ``bias``. Under autocast ``q``, ``k`` and ``v`` are cast like the inputs of a matrix product.

    Args:
        q: (tokens, heads, dim), bfloat16, float16 or float32, dim up to 256. ``reference`` also
            supports float64 and larger dims. Any strides, for example of a slice of a projection.
        k, v: (key tokens, key heads, dim), the dtype of ``q``. If ``key heads`` is a divisor of
            ``heads`` (grouped-query attention), ``k`` and ``v`` are copied to all heads: head h of
            ``q`` attends to head h // (heads / key heads).
        cu_seqlens: (sequences + 1,) int32, cumulative lengths from 0 to ``tokens``.
        max_seqlen: length of the longest sequence, or more.
        cu_seqlens_k: cumulative lengths of the keys (default ``cu_seqlens``).
        max_seqlen_k: length of the longest sequence of keys, or more. Required with
            ``cu_seqlens_k``.
        scale: factor of the scores (default 1 / sqrt(dim)).
        bias: b, a number or a tensor () or (sequences,), which may require a gradient. Default:
            -log(n) with n the number of keys of the sequence.
        backend: ``auto``, ``hopper``, ``triton`` or ``reference``.
        accurate: compute weights to the precision of the inputs (True), or with the approximate
            tanh of the hardware (False). With True, the relative error of weights is about 1e-6, or
            with ``hopper`` in bfloat16 at most 2.4e-4. docs/assumptions.md has the exceptions.
            float32 inputs are always computed with True. Default: True if ``max_seqlen_k`` is above
            8,192. At 8,192 keys the approximation makes the error of bfloat16 results about 1.15
            times as large.
        deterministic: compute the same bits in each run, also for gradients. Makes ``hopper``
            slower. ``triton`` and ``reference`` are always deterministic. Default: the setting of
            :func:`torch.use_deterministic_algorithms`.
        is_causal: query i attends only to keys j <= i, both counted from the start of their
            sequence (default False). The default bias stays -log(n) with all n keys, as in
            TritonSigmoid. ``hopper`` does not compute it, and ``auto`` then chooses ``triton``.
        key_bias: (key tokens,), added to all scores of a key in addition to ``bias``. May require a
            gradient. ``hopper`` does not compute it, and ``auto`` then chooses ``triton``.
        check: also check the values of ``cu_seqlens`` on a GPU (default False). This waits for the
            GPU. On the CPU the values are always checked, but in compiled code on no device.

    Returns:
        Contiguous tensor of the shape and dtype of ``q``. 0 in sequences without keys.

    Raises:
        TypeError, ValueError: if an argument has a wrong type, shape, device or value.
        NotImplementedError: for second derivatives and derivatives in forward mode.
        RuntimeError: for derivatives by :func:`torch.func.grad`, ``vjp`` and ``jacrev``.
        UserError: if the backend does not run on the device.
    """
    has_own_keys = cu_seqlens_k is not None or max_seqlen_k is not None
    if has_own_keys or not are_valid((q, k, v), 3, cu_seqlens, max_seqlen, check):
        q, k, v = cast_for_autocast(q=q, k=k, v=v)
        check_tensors(q, k, v, dimensions=3, is_grouped=True)
        check_packing(q, cu_seqlens, max_seqlen, check)
        k, v = _repeat_heads(k, q), _repeat_heads(v, q)
    starts, ends = cu_seqlens[:-1], cu_seqlens[1:]
    if cu_seqlens_k is None:
        if max_seqlen_k is not None:
            raise ValueError("max_seqlen_k: must not be passed without cu_seqlens_k")
        if k.shape[0] != q.shape[0]:
            raise ValueError(f"k: {k.shape[0]} tokens but q has {q.shape[0]}; pass cu_seqlens_k")
        spans, longest = (starts, ends, starts, ends), (max_seqlen, max_seqlen)
    else:
        if max_seqlen_k is None:
            raise ValueError("max_seqlen_k: must be passed with cu_seqlens_k")
        check_packing(k, cu_seqlens_k, max_seqlen_k, check, "_k")
        if cu_seqlens_k.shape != cu_seqlens.shape:
            raise ValueError(
                f"cu_seqlens_k: {cu_seqlens_k.shape[0] - 1} sequences but cu_seqlens has "
                f"{cu_seqlens.shape[0] - 1}"
            )
        spans = (starts, ends, cu_seqlens_k[:-1], cu_seqlens_k[1:])
        longest = (max_seqlen, max_seqlen_k)
    options = (scale, bias, backend, accurate, deterministic, is_causal, key_bias)
    return _attend((q, k, v), spans, longest, *options)


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
    is_causal: bool = False,
    key_bias: Tensor | None = None,
    check: bool = False,
) -> Tensor:
    """Compute :func:`sigmoid_attention` of q, k and v in one tensor, the output of a projection.

    Equals :func:`sigmoid_attention` of the three slices, and raises the same errors. The kernels
    write one gradient, so three gradients need not be concatenated.

    Args:
        qkv: (tokens, 3, heads, dim): q, k and v. Any strides, but if the stride along ``dim`` is
            not 1, the kernels copy the tensor.
        cu_seqlens, max_seqlen, scale, bias, backend, accurate, deterministic, is_causal, key_bias,
            check: as in :func:`sigmoid_attention`.

    Returns:
        (tokens, heads, dim), contiguous, the dtype of ``qkv``.
    """
    is_valid = are_valid((qkv,), 4, cu_seqlens, max_seqlen, check) and qkv.shape[1] == 3
    if not is_valid:
        (qkv,) = cast_for_autocast(qkv=qkv)
        check_fused(qkv, cu_seqlens, max_seqlen, check)
    starts, ends = cu_seqlens[:-1], cu_seqlens[1:]
    options = (scale, bias, backend, accurate, deterministic, is_causal, key_bias)
    return _attend((qkv,), (starts, ends, starts, ends), (max_seqlen, max_seqlen), *options)


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
    is_causal: bool = False,
    key_bias: Tensor | None = None,
    check: bool = False,
) -> Tensor:
    """Compute sigmoid attention of padded sequences, the interface of the paper's algorithms.

    The kernels treat the batch as a packed batch with gaps. They do not read the padding, so it
    costs no time and may contain NaN. Results and gradients of the padding are 0. Inputs are not
    copied if their first two dimensions can be viewed as one. Raises the same errors as
    :func:`sigmoid_attention`.

    Args:
        q: (sequences, length, heads, dim).
        k, v: (sequences, key length, key heads, dim), as in :func:`sigmoid_attention`.
        lengths_q: (sequences,) int32 or int64, number of valid tokens of each sequence.
        lengths_k: number of valid keys of each sequence (default ``lengths_q``).
        key_bias: (sequences, key length), as in :func:`sigmoid_attention`.
        scale, bias, backend, accurate, deterministic, is_causal, check: as in
            :func:`sigmoid_attention`. ``key length`` replaces ``max_seqlen_k`` in the default of
            ``accurate``.

    Returns:
        Contiguous tensor of the shape and dtype of ``q``.
    """
    q, k, v = cast_for_autocast(q=q, k=k, v=v)
    check_tensors(q, k, v, dimensions=4, is_grouped=True)
    k, v = _repeat_heads(k, q), _repeat_heads(v, q)
    if lengths_k is None and k.shape[1] != q.shape[1]:
        raise ValueError(f"k: length {k.shape[1]} but q has {q.shape[1]}; pass lengths_k")
    check_lengths("lengths_q", lengths_q, q, check)
    sequences = torch.arange(q.shape[0], dtype=torch.int32, device=q.device)
    starts_q = sequences * q.shape[1]
    ends_q = starts_q + lengths_q.to(torch.int32)
    starts_k, ends_k = starts_q, ends_q
    if lengths_k is not None:
        check_lengths("lengths_k", lengths_k, k, check)
        starts_k = sequences * k.shape[1]
        ends_k = starts_k + lengths_k.to(torch.int32)
    tensors = tuple(x.flatten(0, 1) for x in (q, k, v))
    if key_bias is not None:
        check_tensor("key_bias", key_bias)
        if key_bias.shape != k.shape[:2]:
            raise ValueError(
                f"key_bias: must have shape {tuple(k.shape[:2])}, has {tuple(key_bias.shape)}"
            )
        key_bias = key_bias.flatten()
    options = (scale, bias, backend, accurate, deterministic, is_causal, key_bias)
    longest = (q.shape[1], k.shape[1])
    out = _attend(tensors, (starts_q, ends_q, starts_k, ends_k), longest, *options, has_gaps=True)
    return out.unflatten(0, q.shape[:2])


@torch.no_grad()
def score_max(q: Tensor, k: Tensor, cu_seqlens: Tensor, scale: float | None = None) -> Tensor:
    """Compute the maximum of ``|q . k * scale|`` over heads and over all pairs within sequences.

    Computes in float32 block by block, so memory does not grow with the square of the length.
    Reads ``cu_seqlens`` on the host and therefore waits for a GPU.

    Args:
        q, k: (tokens, heads, dim), bfloat16, float16, float32 or float64.
        cu_seqlens: (sequences + 1,) int32.
        scale: factor of the scores (default 1 / sqrt(dim)).

    Returns:
        Scalar float32 tensor on the device of ``q``: 0 without scores, NaN if a score is NaN.

    Raises:
        TypeError, ValueError: if an argument has a wrong type, shape, device or value.
    """
    for name, tensor in (("q", q), ("k", k)):
        check_tensor(name, tensor)
    check_tensors(q, k, k, dimensions=3)
    if k.shape[0] != q.shape[0]:
        raise ValueError(f"k: {k.shape[0]} tokens but q has {q.shape[0]}")
    check_packing(q, cu_seqlens, q.shape[0], check=True)
    if not q.shape[1]:  # without heads
        return torch.zeros((), dtype=torch.float32, device=q.device)
    spans = list(pairwise(cu_seqlens.tolist()))
    return largest_scores(q, k, spans, resolve_scale(scale, q.shape[-1])).amax()
