"""Attention by its formula in float64, one sequence at a time."""

import math

import torch


def attention(
    q,
    k,
    v,
    lengths_q,
    lengths_k=None,
    *,
    kind="sigmoid",
    scale=None,
    bias=None,
    is_causal=False,
    key_bias=None,
):
    """Compute attention of packed q, k and v (tokens, heads, dim) of any dtype, differentiable."""
    lengths_k = lengths_q if lengths_k is None else lengths_k
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    outputs, row, column = [], 0, 0
    for sequence, (n_q, n_k) in enumerate(zip(lengths_q, lengths_k, strict=True)):
        queries = q[row : row + n_q].double().transpose(0, 1)
        keys, values = (x[column : column + n_k].double().transpose(0, 1) for x in (k, v))
        scores = queries @ keys.mT * scale
        if kind == "softmax":
            weights = torch.softmax(scores, dim=-1)
        else:
            b = -math.log(max(n_k, 1)) if bias is None else bias[sequence]
            if key_bias is not None:
                scores = scores + key_bias[column : column + n_k].double()
            weights = torch.sigmoid(scores + b)
        if is_causal:
            weights = torch.tril(weights)
        outputs.append((weights @ values).transpose(0, 1))
        row, column = row + n_q, column + n_k
    return torch.cat(outputs)


def gradients(q, k, v, upstream, lengths_q, lengths_k=None, **options):
    """Return the result and the gradients of q, k and v by autograd through the formula."""
    inputs = [x.detach().double().requires_grad_() for x in (q, k, v)]
    out = attention(*inputs, lengths_q, lengths_k, **options)
    return [out.detach(), *torch.autograd.grad(out, inputs, upstream.double())]


def bias_gradient(q, k, v, upstream, lengths_q, lengths_k=None, *, bias, **options):
    """Return the gradient of one bias per sequence, (sequences,)."""
    leaf = bias.detach().double().requires_grad_()
    inputs = [x.detach().double() for x in (q, k, v)]
    out = attention(*inputs, lengths_q, lengths_k, bias=leaf, **options)
    return torch.autograd.grad(out, leaf, upstream.double())[0]


def cumulative(lengths, device="cpu"):
    """Return cumulative lengths, (sequences + 1,) int32."""
    return torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)


def relative_error(value, expected):
    """Return the norm of the error divided by the norm of the expected tensor."""
    return ((value.double() - expected).norm() / expected.norm().clamp_min(1e-30)).item()
