"""The reference and softmax attention of PyTorch, compared with the formula in float64."""

import pytest
import torch
from oracle import attention, bias_gradient, cumulative, gradients, relative_error

from scsigmoid.attention import reference, score_max, sigmoid_attention, softmax_attention
from scsigmoid.attention.flex import BLOCK, attend, document_mask
from scsigmoid.attention.problem import of_packed

LENGTHS = [5, 0, 33, 1, 16]


def inputs(dtype, tokens, key_tokens=None, heads=2, dimension=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    key_tokens = tokens if key_tokens is None else key_tokens
    return [
        torch.randn(n, heads, dimension, generator=generator).to(dtype).requires_grad_(needed)
        for n, needed in ((tokens, True), (key_tokens, True), (key_tokens, True), (tokens, False))
    ]


def outcome(function, q, k, v, upstream, *arguments, **options):
    out = function(q, k, v, *arguments, **options)
    return [out, *torch.autograd.grad(out, (q, k, v), upstream)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
@pytest.mark.parametrize("bias", [None, -1.5, "each"])
def test_sigmoid(dtype, tolerance, bias):
    tensors = inputs(dtype, sum(LENGTHS))
    each = torch.linspace(-3, 1, len(LENGTHS))
    argument = each if bias == "each" else bias
    of_sequences = each if bias == "each" else None if bias is None else [bias] * len(LENGTHS)
    got = outcome(
        sigmoid_attention, *tensors, cumulative(LENGTHS), 33, backend="reference", bias=argument
    )
    for value, expected in zip(got, gradients(*tensors, LENGTHS, bias=of_sequences), strict=True):
        assert value.dtype == dtype
        assert relative_error(value, expected) < tolerance


@pytest.mark.parametrize("one", [False, True])
def test_gradient_of_the_bias(one):
    q, k, v, upstream = (x.detach() for x in inputs(torch.float64, sum(LENGTHS)))
    bias = torch.tensor(-1.5) if one else torch.linspace(-3, 1, len(LENGTHS))
    arguments = q, k, v, cumulative(LENGTHS), 33
    out = sigmoid_attention(*arguments, bias=bias.requires_grad_(), backend="reference")
    (got,) = torch.autograd.grad(out, bias, upstream)
    wanted = bias_gradient(q, k, v, upstream, LENGTHS, bias=bias.expand(len(LENGTHS)))
    assert relative_error(got, wanted.sum() if one else wanted) < 1e-7


def test_queries_and_keys_of_different_lengths():
    keys = [7, 3, 0, 40, 16]
    tensors = inputs(torch.float64, sum(LENGTHS), sum(keys))
    options = {"cu_seqlens_k": cumulative(keys), "max_seqlen_k": 40, "backend": "reference"}
    got = outcome(sigmoid_attention, *tensors, cumulative(LENGTHS), 33, scale=0.7, **options)
    for value, expected in zip(got, gradients(*tensors, LENGTHS, keys, scale=0.7), strict=True):
        assert relative_error(value, expected) < 1e-14
    # The third sequence has queries but no keys.
    assert (got[0][5:38] == 0).all()


@pytest.mark.parametrize("backend", ["reference", "sdpa", "auto"])
@pytest.mark.parametrize("scale", [None, 0.4])
def test_softmax(backend, scale):
    tensors = inputs(torch.float32, sum(LENGTHS))
    options = {"backend": backend, "scale": scale}
    got = outcome(softmax_attention, *tensors, cumulative(LENGTHS), 33, **options)
    wanted = gradients(*tensors, LENGTHS, kind="softmax", scale=scale)
    for value, expected in zip(got, wanted, strict=True):
        assert relative_error(value, expected) < 2e-6


@pytest.mark.parametrize("kind", ["sigmoid", "softmax"])
def test_blocks_of_rows_do_not_change_the_result(kind, monkeypatch):
    q, k, v, upstream = (x.detach() for x in inputs(torch.float64, 33))
    arguments = (q, k, v, of_packed(cumulative([33]), 33, 0.3, kind))
    whole = reference.forward(*arguments), *reference.backward(upstream, *arguments)[:3]
    monkeypatch.setattr(reference, "BLOCK_ELEMENTS", 33 * 2 * 4)
    parts = reference.forward(*arguments), *reference.backward(upstream, *arguments)[:3]
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-15)


def test_large_scores_stay_finite():
    q, k, v, upstream = inputs(torch.float32, 8)
    tensors = [(q * 1e4).detach().requires_grad_(), k, v, upstream]
    for value in outcome(sigmoid_attention, *tensors, cumulative([8]), 8, backend="reference"):
        assert value.isfinite().all()


def test_score_max():
    lengths = [4, 0, 9, 1]
    q, k, _, _ = (x.detach() for x in inputs(torch.float32, sum(lengths)))
    sequences = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))
    scores = torch.einsum("ihd,jhd->hij", q.double(), k.double()).abs() * 0.25
    largest = scores[:, sequences[:, None] == sequences].max().item()
    assert score_max(q, k, cumulative(lengths), 0.25).item() == pytest.approx(largest, rel=1e-6)
    assert score_max(q[:0], k[:0], cumulative([0])).item() == 0.0
    q[5, 0, 0] = float("nan")
    assert score_max(q, k, cumulative(lengths)).isnan()


@pytest.mark.parametrize("lengths", [[300], [5, 0, 250, 1, 128], [128, 128], [100, 28, 384]])
def test_document_mask_equals_the_mask_of_all_pairs(lengths):
    tokens = sum(lengths)
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    pairs = document[:, None] == document[None, :]
    blocks = -(-tokens // BLOCK)
    full = torch.zeros(blocks * BLOCK, blocks * BLOCK, dtype=torch.bool)
    full[:tokens, :tokens] = pairs
    tiles = full.unflatten(0, (blocks, BLOCK)).unflatten(2, (blocks, BLOCK))
    some, every = tiles.any(dim=3).any(dim=1), tiles.all(dim=3).all(dim=1)
    mask = document_mask(cumulative(lengths), tokens)

    def visited(counts, indices):
        seen = torch.zeros(blocks, blocks, dtype=torch.bool)
        for row in range(blocks):
            seen[row, indices[0, 0, row, : counts[0, 0, row]].long()] = True
        return seen

    assert torch.equal(visited(mask.full_kv_num_blocks, mask.full_kv_indices), every)
    assert torch.equal(visited(mask.kv_num_blocks, mask.kv_indices), some & ~every)


def test_flex_under_torch_compile():
    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in ([300, 5, 0, 140], [64, 64, 300]):
        q, k, v, _ = (x.detach() for x in inputs(torch.float32, sum(lengths)))
        wanted = attention(q, k, v, lengths, kind="softmax", scale=0.3)
        assert relative_error(compiled([q, k, v], cumulative(lengths), 300, 0.3), wanted) < 2e-6
