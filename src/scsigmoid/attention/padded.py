"""Sigmoid attention of padded sequences, the paper's layout."""

from typing import Literal, overload

import torch
from torch import Tensor

from scsigmoid.attention import ops
from scsigmoid.attention.arguments import (
    check_lengths,
    check_tensor,
    check_tensors,
    resolve_scale,
    under_autocast,
)
from scsigmoid.attention.backends import choose_backend, hopper_misfit
from scsigmoid.attention.sigmoid import per_sequence


def _check_lengths(name: str, lengths: Tensor, like: Tensor, capacity: int, values: bool) -> None:
    check_tensor(name, lengths)
    if lengths.shape != (like.shape[0],):
        raise ValueError(f"{name}: must have shape ({like.shape[0]},), has {tuple(lengths.shape)}")
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: must be int32 or int64, is {lengths.dtype}")
    if lengths.device != like.device:
        raise ValueError(f"{name}: lies on {lengths.device}, q on {like.device}")
    if values and not torch.compiler.is_compiling():
        check_lengths(name, lengths, capacity)


@overload
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
    score_max: Literal[False] = False,
    check: bool = False,
) -> Tensor: ...


@overload
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
    score_max: Literal[True],
    check: bool = False,
) -> tuple[Tensor, Tensor]: ...


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
    score_max: bool = False,
    check: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Sigmoid attention of padded sequences: the interface of the paper's algorithms 1 to 3.

    The padded batch is read as a packed one with gaps, by the same kernel: blocks of padding cost
    nothing, padding is never read (it may hold NaN), and outputs and gradients there are exactly
    zero.  Inputs are not copied where the first two dimensions can be viewed as one.

    Args:
        q: (sequences, length, heads, dim).
        k, v: (sequences, key length, heads, dim).
        lengths_q: (sequences,) int32 or int64, valid tokens of each sequence.
        lengths_k: valid keys of each sequence; ``lengths_q`` by default.
        scale, bias, backend, accurate, deterministic, score_max, check: as in
            :func:`sigmoid_attention`; the longest sequence counts as one without padding.

    Returns:
        Shape and dtype of ``q``, contiguous; with ``score_max`` a pair, as there.

    Raises:
        TypeError, ValueError, NotImplementedError, UserError: as :func:`sigmoid_attention`.
    """
    check_tensors(q, k, v, dimensions=4)
    if lengths_k is None and k.shape[1] != q.shape[1]:
        raise ValueError(f"k: length {k.shape[1]} where q has {q.shape[1]}; pass lengths_k")
    values = check or q.device.type == "cpu"
    _check_lengths("lengths_q", lengths_q, q, q.shape[1], values)
    if lengths_k is not None:
        _check_lengths("lengths_k", lengths_k, q, k.shape[1], values)
    q, k, v = under_autocast(q, k, v)
    backend = choose_backend("sigmoid", backend, q.device, hopper_misfit(q))
    sequences = torch.arange(q.shape[0], dtype=torch.int32, device=q.device)
    starts_q = sequences * q.shape[1]
    ends_q = starts_q + lengths_q.to(torch.int32)
    if lengths_k is None:
        starts_k, ends_k = starts_q, ends_q
    else:
        starts_k = sequences * k.shape[1]
        ends_k = starts_k + lengths_k.to(torch.int32)
    out, largest = ops.attend(
        q.flatten(0, 1),
        k.flatten(0, 1),
        v.flatten(0, 1),
        starts_q,
        ends_q,
        starts_k,
        ends_k,
        per_sequence(bias, q.shape[0], q),
        q.shape[1],
        k.shape[1],
        resolve_scale(scale, q.shape[-1]),
        accurate,
        True,
        deterministic,
        backend,
        score_max,
    )
    out = out.unflatten(0, (q.shape[0], q.shape[1]))
    return (out, largest) if score_max else out
