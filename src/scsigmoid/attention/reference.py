"""Attention in PyTorch, with which all other backends are compared.

It runs on any device, in float32 or, for float64 inputs, in float64. It loops over sequences and
blocks of query rows, so that no buffer grows with the square of the sequence length.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from scsigmoid.attention.problem import Kind, Problem, compute_dtype

Function = TypeVar("Function", bound=Callable[..., Any])
Span = tuple[int, int]  # first and one-past-last token of a sequence

#: Maximum number of elements of a block of scores, over all heads.
BLOCK_ELEMENTS = 1 << 24


def _without_autocast(function: Function) -> Function:
    """Disable autocast in a function of tensors: it would round matrix products to bfloat16."""

    @functools.wraps(function)
    def wrapped(first: Tensor, *rest: Any, **options: Any) -> Any:
        with torch.autocast(first.device.type, enabled=False):
            return function(first, *rest, **options)

    return cast(Function, wrapped)


def _spans(problem: Problem) -> tuple[list[Span], list[Span]]:
    """Copy the spans of queries and keys to the host."""
    return (
        list(zip(problem.starts_q.tolist(), problem.ends_q.tolist(), strict=True)),
        list(zip(problem.starts_k.tolist(), problem.ends_k.tolist(), strict=True)),
    )


def _by_head(tensor: Tensor) -> Tensor:
    """Convert (rows, heads, dim) to (heads, rows, dim) in float32, or float64 if it is float64."""
    return tensor.to(compute_dtype(tensor)).transpose(0, 1)


def _query_blocks(
    spans_q: Sequence[Span], spans_k: Sequence[Span], heads: int
) -> Iterator[tuple[int, slice, list[slice]]]:
    """Yield index, key rows and query blocks of each sequence that has queries and keys."""
    spans = zip(spans_q, spans_k, strict=True)
    for sequence, ((start_q, end_q), (start_k, end_k)) in enumerate(spans):
        if start_q < end_q and start_k < end_k:
            elements_per_row = max(1, (end_k - start_k) * heads)
            block_rows = max(1, BLOCK_ELEMENTS // elements_per_row)
            starts = range(start_q, end_q, block_rows)
            blocks = [slice(start, min(start + block_rows, end_q)) for start in starts]
            yield sequence, slice(start_k, end_k), blocks


def _bias(problem: Problem, sequence: int, key_rows: slice) -> Tensor | float:
    """Return the bias of all scores of a sequence, or (keys,) if keys have biases."""
    keys = key_rows.stop - key_rows.start
    bias = -math.log(keys) if problem.bias is None else problem.bias[sequence]
    return bias if problem.key_bias is None else bias + problem.key_bias[key_rows]


def _weights(
    kind: Kind,
    q: Tensor,
    k: Tensor,
    scale: float,
    bias: Tensor | float,
    causal_row: int | None = None,
) -> Tensor:
    """Compute attention weights (heads, queries, keys) of ``q`` (heads, queries, dim) and ``k``.

    ``causal_row``: index of the first query in its sequence, if a causal mask is applied.
    """
    scores = torch.matmul(q, k.mT).mul_(scale)
    if causal_row is not None:
        rows = torch.arange(causal_row, causal_row + q.shape[1], device=q.device)
        hidden = rows[:, None] < torch.arange(k.shape[1], device=q.device)
        scores.masked_fill_(hidden, -math.inf)
    if kind == "softmax":
        return torch.softmax(scores, dim=-1)
    return scores.add_(bias).sigmoid_()


def _causal_row(
    problem: Problem, rows: slice, spans_q: Sequence[Span], sequence: int
) -> int | None:
    return rows.start - spans_q[sequence][0] if problem.is_causal else None


@_without_autocast
def forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
    """Compute attention. Results are 0 outside sequences and in sequences without keys."""
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    spans_q, spans_k = _spans(problem)
    for sequence, key_rows, blocks in _query_blocks(spans_q, spans_k, q.shape[1]):
        keys, values = (_by_head(x[key_rows]) for x in (k, v))
        bias = _bias(problem, sequence, key_rows)
        for rows in blocks:
            row = _causal_row(problem, rows, spans_q, sequence)
            weights = _weights(problem.kind, _by_head(q[rows]), keys, problem.scale, bias, row)
            out[rows] = torch.matmul(weights, values).transpose(0, 1).to(out.dtype)
    return out


@_without_autocast
def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    problem: Problem,
    bias_grad: bool = False,
    into: tuple[Tensor, Tensor, Tensor] | None = None,
    key_bias_grad: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Compute gradients. Arguments and results are as in :func:`triton_launch.backward`.

    Recomputes the weights block by block, as in the paper's algorithms 2 and 3.
    """
    dtype, scale = compute_dtype(q), problem.scale
    dq, dk, dv = into or (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    for gradient in (dq, dk, dv):
        gradient.zero_()
    dbias = torch.zeros(problem.sequences, dtype=dtype, device=q.device) if bias_grad else None
    dkey_bias = torch.zeros(k.shape[0], dtype=dtype, device=q.device) if key_bias_grad else None
    spans_q, spans_k = _spans(problem)
    for sequence, key_rows, blocks in _query_blocks(spans_q, spans_k, q.shape[1]):
        keys, values = (_by_head(x[key_rows]) for x in (k, v))
        bias = _bias(problem, sequence, key_rows)
        dkeys, dvalues = (torch.zeros(keys.shape, dtype=dtype, device=q.device) for _ in range(2))
        for rows in blocks:
            queries, upstream = (_by_head(x[rows]) for x in (q, grad))
            row = _causal_row(problem, rows, spans_q, sequence)
            weights = _weights(problem.kind, queries, keys, scale, bias, row)
            dvalues += torch.matmul(weights.mT, upstream)
            dweights = torch.matmul(upstream, values.mT)
            if problem.kind == "softmax":
                dweights -= (dweights * weights).sum(dim=-1, keepdim=True)
                dscores = dweights.mul_(weights)
            else:
                dscores = dweights.mul_(weights).mul_(1 - weights)
            if dbias is not None:
                dbias[sequence] += dscores.sum()
            if dkey_bias is not None:
                dkey_bias[key_rows] += dscores.sum(dim=(0, 1))
            dq[rows] = torch.matmul(dscores, keys).mul_(scale).transpose(0, 1).to(dq.dtype)
            dkeys += torch.matmul(dscores.mT, queries)
        dk[key_rows] = dkeys.mul_(scale).transpose(0, 1).to(dk.dtype)
        dv[key_rows] = dvalues.transpose(0, 1).to(dv.dtype)
    return dq, dk, dv, dbias, dkey_bias


def weight_statistics(
    kind: str, q: Tensor, k: Tensor, v: Tensor, spans: Sequence[Span]
) -> dict[str, float]:
    """Compute statistics of the attention weights, with the default scale and bias.

    ``q``, ``k`` and ``v`` are (tokens, heads, dim). :class:`scsigmoid.training.journal.Layer`
    explains the results.
    """
    scale = 1 / math.sqrt(q.shape[-1])
    largest = torch.zeros((), dtype=compute_dtype(q), device=q.device)
    # `sums` and `key_counts` (effective numbers of keys) have an element per row of weights,
    # `value_ratios` an element per sequence and head: |mean of v|^2 / mean of |v|^2.
    sums, key_counts, value_ratios = [], [], []
    for _, key_rows, blocks in _query_blocks(spans, spans, q.shape[1]):
        keys, values = (_by_head(x[key_rows]) for x in (k, v))
        mean_square = values.square().sum(-1).mean(-1)
        value_ratios.append(values.mean(1).square().sum(-1) / mean_square)
        bias = -math.log(keys.shape[1])
        for rows in blocks:
            weights = _weights(cast(Kind, kind), _by_head(q[rows]), keys, scale, bias)
            largest = torch.maximum(largest, weights.amax())
            total = weights.sum(-1)
            # Entropy of p = w / T with T = sum(w): -sum(p log p) = log T - sum(w log w) / T
            entropy = total.log() + torch.special.entr(weights).sum(-1) / total
            sums.append(total.flatten())
            # A row whose weights are all 0 attends to 0 keys. Its entropy is NaN.
            key_counts.append(torch.where(total > 0, entropy.exp(), 0.0).flatten())
    low, middle, high = torch.cat(sums).quantile(
        torch.tensor([0.05, 0.5, 0.95], dtype=largest.dtype, device=q.device)
    )
    return {
        "score_max": float(largest_scores(q, k, spans, scale).amax()),
        "weight_max": float(largest),
        "row_sum_low": float(low),
        "row_sum": float(middle),
        "row_sum_high": float(high),
        "keys": float(torch.cat(key_counts).median()),
        "value_mean": float(torch.cat(value_ratios).mean()),
    }


@_without_autocast
def largest_scores(q: Tensor, k: Tensor, spans: Sequence[Span], scale: float) -> Tensor:
    """Compute the maximum of ``|q . k * scale|`` of each head over all pairs within sequences.

    Return (heads,) float32, 0 if there are no tokens, NaN if a score is NaN.
    """
    largest = torch.zeros(q.shape[1], dtype=compute_dtype(q), device=q.device)
    for _, key_rows, blocks in _query_blocks(spans, spans, q.shape[1]):
        keys = _by_head(k[key_rows])
        for rows in blocks:
            low, high = torch.matmul(_by_head(q[rows]), keys.mT).flatten(1).aminmax(dim=1)
            largest = torch.maximum(largest, torch.maximum(-low, high))
    return (largest * abs(scale)).float()
