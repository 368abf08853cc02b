"""Inputs, results and comparisons with the formula, for the tests of all backends."""

import torch
from oracle import attention, bias_gradient, cumulative, gradients, relative_error

from scsigmoid.attention import (
    sigmoid_attention,
    sigmoid_attention_padded,
    sigmoid_attention_qkv,
    softmax_attention_qkv,
)

NAMES = ("out", "dq", "dk", "dv")


def inputs(
    tokens,
    dtype,
    dimension,
    *,
    key_tokens=None,
    heads=2,
    mean=0.0,
    spread=1.0,
    seed=0,
    device="cpu",
):
    """Return q, k, v and an upstream gradient. Scores have standard deviation ``spread``."""
    generator = torch.Generator(device).manual_seed(seed)
    key_tokens = tokens if key_tokens is None else key_tokens
    q, k, v, upstream = (
        torch.randn(n, heads, dimension, device=device, generator=generator)
        for n in (tokens, key_tokens, key_tokens, tokens)
    )
    return [x.to(dtype) for x in (q * spread, k, v + mean, upstream)]


def fused_sigmoid(q, k, v, *arguments, **options):
    """:func:`sigmoid_attention_qkv` of three tensors."""
    return sigmoid_attention_qkv(torch.stack((q, k, v), dim=1), *arguments, **options)


def fused_softmax(q, k, v, *arguments, **options):
    """:func:`softmax_attention_qkv` of three tensors."""
    return softmax_attention_qkv(torch.stack((q, k, v), dim=1), *arguments, **options)


def key_options(lengths_k, device):
    """Return the arguments for the lengths of keys, or {} if ``lengths_k`` is None."""
    if lengths_k is None:
        return {}
    return {"cu_seqlens_k": cumulative(lengths_k, device), "max_seqlen_k": max(lengths_k)}


def compute(q, k, v, upstream, lengths, lengths_k=None, *, function=sigmoid_attention, **options):
    """Compute attention and the gradients of q, k and v."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    options |= key_options(lengths_k, q.device)
    out = function(*leaves, cumulative(lengths, q.device), max(lengths), **options)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]


def assert_close(got, wanted, tolerance):
    """Compare the result and the gradients of q, k and v."""
    for name, value, expected in zip(NAMES, got, wanted, strict=True):
        assert value.isfinite().all(), name
        assert relative_error(value, expected) < tolerance, name


def check(
    tensors,
    lengths,
    lengths_k=None,
    *,
    tolerance,
    kind="sigmoid",
    bias=None,
    scale=None,
    is_causal=False,
    **options,
):
    """Compare attention and its gradients with the formula."""
    biases = [bias] * len(lengths) if isinstance(bias, float) else bias
    if kind == "sigmoid":
        options |= {"bias": bias, "is_causal": is_causal}
    got = compute(*tensors, lengths, lengths_k, scale=scale, **options)
    assert {x.dtype for x in got} == {tensors[0].dtype}
    formula = {"kind": kind, "bias": biases, "scale": scale, "is_causal": is_causal}
    wanted = gradients(*tensors, lengths, lengths_k, **formula)
    assert_close(got, wanted, tolerance)


def check_isolation(tensors, lengths, *, tolerance, **options):
    """Fill all sequences but the second with NaN, and check the second sequence."""
    part = slice(lengths[0], lengths[0] + lengths[1])
    wanted = gradients(*(x[part] for x in tensors), lengths[1:2])
    for x in tensors:
        x[: part.start] = x[part.stop :] = float("nan")
    got = compute(*tensors, lengths, **options)
    assert_close([x[part] for x in got], wanted, tolerance)


def check_padded(tensors, lengths, lengths_k=None, *, tolerance, backend, is_causal=False):
    """Fill the padding of q, k, v and the upstream gradient with NaN, and check attention."""
    device = tensors[0].device
    counts = torch.tensor(lengths, device=device)
    counts_k = None if lengths_k is None else torch.tensor(lengths_k, device=device)

    def is_valid(tensor, counts):
        """Return a mask (sequences, length) that is False in the padding of ``tensor``."""
        return torch.arange(tensor.shape[1], device=device) < counts[:, None]

    valid_q = is_valid(tensors[0], counts)
    valid_k = is_valid(tensors[1], counts if counts_k is None else counts_k)
    masks = valid_q, valid_k, valid_k, valid_q  # of q, k, v and the upstream gradient
    packed = [x[mask] for x, mask in zip(tensors, masks, strict=True)]
    wanted = gradients(*packed, lengths, lengths_k, is_causal=is_causal)
    for x, mask in zip(tensors, masks, strict=True):
        x[~mask] = float("nan")
    leaves = [x.requires_grad_() for x in tensors[:3]]
    options = {"backend": backend, "is_causal": is_causal}
    out = sigmoid_attention_padded(*leaves, counts, counts_k, **options)
    got = [out, *torch.autograd.grad(out, leaves, tensors[3])]
    masks = valid_q, valid_q, valid_k, valid_k  # of the result and the gradients of q, k and v
    assert_close([x[mask] for x, mask in zip(got, masks, strict=True)], wanted, tolerance)
    for x, mask in zip(got, masks, strict=True):
        assert (x[~mask] == 0).all()


def check_bias_gradient(
    tensors, lengths, bias, lengths_k=None, *, tolerance, function=sigmoid_attention, **options
):
    """Check the gradient of a scalar bias, or of one bias per sequence."""
    q, k, v, upstream = tensors
    leaf = bias.detach().requires_grad_()
    options |= key_options(lengths_k, q.device)
    out = function(q, k, v, cumulative(lengths, q.device), max(lengths), bias=leaf, **options)
    (got,) = torch.autograd.grad(out, leaf, upstream)
    formula = {"bias": bias.expand(len(lengths)), "is_causal": options.get("is_causal", False)}
    wanted = bias_gradient(*tensors, lengths, lengths_k, **formula)
    assert relative_error(got, wanted if bias.dim() else wanted.sum()) < tolerance


def check_key_bias(
    tensors,
    lengths,
    lengths_k=None,
    *,
    tolerance,
    is_causal=False,
    function=sigmoid_attention,
    **options,
):
    """Check attention with a bias of each key, and all gradients."""
    *leaves, upstream = tensors
    key_bias = torch.linspace(-3, 2, len(leaves[1]), device=upstream.device)
    leaves = [x.detach().requires_grad_() for x in (*leaves, key_bias)]
    options |= {"is_causal": is_causal, **key_options(lengths_k, upstream.device)}
    arguments = cumulative(lengths, upstream.device), max(lengths)
    out = function(*leaves[:3], *arguments, key_bias=leaves[3], **options)
    got = [out, *torch.autograd.grad(out, leaves, upstream)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    formula = {"is_causal": is_causal, "key_bias": exact[3]}
    wanted = attention(*exact[:3], lengths, lengths_k, **formula)
    wanted = [wanted, *torch.autograd.grad(wanted, exact, upstream.double())]
    for name, value, expected in zip((*NAMES, "dkey_bias"), got, wanted, strict=True):
        assert relative_error(value, expected) < tolerance, name


def packed(tokens=6):
    return inputs(tokens, torch.float32, 8)[:3]
