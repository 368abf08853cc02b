"""The reference and softmax attention of PyTorch, compared with the formula in float64."""

import pytest
import torch
from cases import check, check_bias_gradient, check_key_bias, compute, inputs
from oracle import attention, cumulative, relative_error

from scsigmoid.attention import benchmark, reference, score_max, softmax_attention
from scsigmoid.attention.flex import BLOCK, attend, document_mask
from scsigmoid.attention.problem import make_packed_problem

LENGTHS = [5, 0, 33, 1, 16]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
@pytest.mark.parametrize("bias", [None, -1.1, torch.linspace(-3, 1, len(LENGTHS))])
def test_sigmoid(dtype, tolerance, bias):
    tensors = inputs(sum(LENGTHS), dtype, 8)
    check(tensors, LENGTHS, tolerance=tolerance, bias=bias, backend="reference")


@pytest.mark.parametrize("bias", [torch.tensor(-1.5), torch.linspace(-3, 1, len(LENGTHS))])
def test_gradient_of_the_bias(bias):
    tensors = inputs(sum(LENGTHS), torch.float64, 8)
    check_bias_gradient(tensors, LENGTHS, bias, tolerance=1e-7, backend="reference")


@pytest.mark.parametrize("block", [1, 2**24])
@pytest.mark.parametrize("keys", [None, [7, 3, 0, 40, 16]])
def test_causal_mask(block, keys, monkeypatch):
    monkeypatch.setattr(reference, "BLOCK_ELEMENTS", block)
    tensors = inputs(sum(LENGTHS), torch.float64, 8, key_tokens=sum(keys or LENGTHS))
    options = {"is_causal": True, "backend": "reference"}
    check(tensors, LENGTHS, keys, tolerance=1e-14, **options)
    bias = torch.tensor(-1.5)
    check_bias_gradient(tensors, LENGTHS, bias, keys, tolerance=1e-7, **options)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("keys", [None, [7, 3, 0, 40, 16]])
def test_bias_of_each_key(keys, is_causal):
    tensors = inputs(sum(LENGTHS), torch.float64, 8, key_tokens=sum(keys or LENGTHS))
    options = {"is_causal": is_causal, "backend": "reference"}
    check_key_bias(tensors, LENGTHS, keys, tolerance=1e-6, **options)


def test_queries_and_keys_of_different_lengths():
    keys = [7, 3, 0, 40, 16]
    tensors = inputs(sum(LENGTHS), torch.float64, 8, key_tokens=sum(keys))
    check(tensors, LENGTHS, keys, tolerance=1e-14, scale=0.7, backend="reference")
    # The third sequence has queries but no keys.
    assert (compute(*tensors, LENGTHS, keys, backend="reference")[0][5:38] == 0).all()


@pytest.mark.parametrize("backend", ["reference", "sdpa", "auto"])
@pytest.mark.parametrize("scale", [None, 0.4])
def test_softmax(backend, scale):
    tensors = inputs(sum(LENGTHS), torch.float32, 8)
    options = {"kind": "softmax", "function": softmax_attention, "backend": backend}
    check(tensors, LENGTHS, tolerance=2e-6, scale=scale, **options)


@pytest.mark.parametrize("kind", ["sigmoid", "softmax"])
def test_blocks_of_rows_do_not_change_the_result(kind, monkeypatch):
    q, k, v, upstream = inputs(33, torch.float64, 8)
    arguments = (q, k, v, make_packed_problem(cumulative([33]), 33, 0.3, kind))
    whole = reference.forward(*arguments), *reference.backward(upstream, *arguments)[:3]
    monkeypatch.setattr(reference, "BLOCK_ELEMENTS", 33 * 2 * 4)
    parts = reference.forward(*arguments), *reference.backward(upstream, *arguments)[:3]
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-15)


def test_large_scores_stay_finite():
    tensors = inputs(8, torch.float32, 8, spread=1e4)
    assert all(x.isfinite().all() for x in compute(*tensors, [8], backend="reference"))


def test_score_max():
    lengths = [4, 0, 9, 1]
    q, k, _, _ = inputs(sum(lengths), torch.float32, 8)
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
    padded = torch.zeros(blocks * BLOCK, blocks * BLOCK, dtype=torch.bool)
    padded[:tokens, :tokens] = pairs
    tiles = padded.unflatten(0, (blocks, BLOCK)).unflatten(2, (blocks, BLOCK))
    is_full = tiles.all(dim=3).all(dim=1)
    is_partial = tiles.any(dim=3).any(dim=1) & ~is_full
    mask = document_mask(cumulative(lengths), tokens)

    def selected(counts, indices):
        """Return a matrix (blocks, blocks) that is True for the first ``counts`` indices."""
        matrix = torch.zeros(blocks, blocks, dtype=torch.bool)
        for row in range(blocks):
            matrix[row, indices[0, 0, row, : counts[0, 0, row]].long()] = True
        return matrix

    assert torch.equal(selected(mask.full_kv_num_blocks, mask.full_kv_indices), is_full)
    assert torch.equal(selected(mask.kv_num_blocks, mask.kv_indices), is_partial)


def test_flex_under_torch_compile():
    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in ([300, 5, 0, 140], [64, 64, 300]):
        q, k, v, _ = inputs(sum(lengths), torch.float32, 8)
        wanted = attention(q, k, v, lengths, kind="softmax", scale=0.3)
        assert relative_error(compiled([q, k, v], cumulative(lengths), 300, 0.3), wanted) < 2e-6


def test_the_benchmark_needs_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert benchmark.main() == 1
    assert "needs a CUDA GPU" in capsys.readouterr().err
