"""The shipped configurations on a GPU: accuracy, determinism, isolation, torch.compile, memory."""

import pytest
import torch
from oracle import cumulative, gradients, relative_error

from scsigmoid.attention import (
    choose_backend,
    sigmoid_attention,
    sigmoid_attention_padded,
    softmax_attention,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
JAGGED = [777, 1, 130, 0, 512, 63, 1200]
#: Largest relative error allowed: rounding of inputs' type in P and in the results.
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 4e-3, torch.float32: 1e-5}


def inputs(tokens, dtype, dimension, *, heads=2, mean=0.0, spread=1.0, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    q, k, v, upstream = (
        torch.randn(tokens, heads, dimension, device="cuda", generator=generator) for _ in range(4)
    )
    return [x.to(dtype) for x in (q * spread, k, v + mean, upstream)]


def outcome(q, k, v, upstream, lengths, function=sigmoid_attention, **options):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    bounds = cumulative(lengths, "cuda")
    out = function(*leaves, bounds, max(lengths), **options)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]


def plain(q, k, v, upstream, lengths):
    """Errors that plain torch makes in the same precision, with an exact sigmoid."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    parts, start = [], 0
    for n in lengths:
        rows = [x[start : start + n].transpose(0, 1) for x in leaves]
        scores = (rows[0] @ rows[1].mT) * q.shape[-1] ** -0.5
        bias = -torch.log(torch.tensor(float(max(n, 1)), device="cuda"))
        parts.append((torch.sigmoid(scores + bias.to(q.dtype)) @ rows[2]).transpose(0, 1))
        start += n
    out = torch.cat(parts)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("dimension", [16, 32, 64, 96, 128])
@pytest.mark.parametrize("accurate", [False, True])
def test_accuracy_on_jagged_batches(dtype, dimension, accurate):
    tensors = inputs(sum(JAGGED), dtype, dimension)
    got = outcome(*tensors, JAGGED, accurate=accurate, backend="triton")
    for value, expected in zip(got, gradients(*tensors, JAGGED), strict=True):
        assert value.isfinite().all()
        assert relative_error(value, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dimension", [64, 128])
@pytest.mark.parametrize("length", [1, 64, 100, 2048, 4096])
@pytest.mark.parametrize(("mean", "spread"), [(0.0, 1.0), (1.0, 1.0), (0.0, 3.0)])
def test_errors_are_within_those_of_plain_torch(dimension, length, mean, spread):
    tensors = inputs(length, torch.bfloat16, dimension, heads=1, mean=mean, spread=spread)
    wanted = gradients(*tensors, [length])
    theirs = plain(*tensors, [length])
    for accurate, factor in ((False, 1.5), (True, 1.2)):
        ours = outcome(*tensors, [length], accurate=accurate, backend="triton")
        for value, other, expected in zip(ours, theirs, wanted, strict=True):
            allowed = factor * relative_error(other, expected) + 1e-4
            assert relative_error(value, expected) < allowed


def test_results_repeat_bit_for_bit():
    tensors = inputs(sum(JAGGED), torch.bfloat16, 64, heads=4)
    first = outcome(*tensors, JAGGED, backend="triton")
    for _ in range(20):
        again = outcome(*tensors, JAGGED, backend="triton")
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("dimension", [64, 128])
def test_other_sequences_are_never_read(dimension):
    lengths = [300, 777, 45]
    tensors = inputs(sum(lengths), torch.bfloat16, dimension)
    for x in tensors:
        x[:300] = x[1077:] = float("nan")
    got = outcome(*tensors, lengths, backend="triton")
    wanted = gradients(*(x[300:1077] for x in tensors), [777])
    for value, expected in zip(got, wanted, strict=True):
        assert relative_error(value[300:1077], expected) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("dimension", [64, 128])
def test_padding_is_never_read_and_gets_zeros(dimension):
    lengths = torch.tensor([500, 0, 129, 77], device="cuda")
    valid = torch.arange(500, device="cuda")[None, :] < lengths[:, None]
    tensors = [x.unflatten(0, (4, 500)) for x in inputs(2000, torch.bfloat16, dimension)]
    wanted = gradients(*(x[valid] for x in tensors), lengths.tolist())
    for x in tensors:
        x[~valid] = float("nan")
    leaves = [x.requires_grad_() for x in tensors[:3]]
    out = sigmoid_attention_padded(*leaves, lengths, backend="triton")
    got = [out, *torch.autograd.grad(out, leaves, tensors[3])]
    for value, expected in zip(got, wanted, strict=True):
        assert relative_error(value[valid], expected) < TOLERANCE[torch.bfloat16]
        assert (value[~valid] == 0).all()


def test_fused_projection_and_memory():
    tokens, heads, dimension = 8192, 8, 64
    fused = torch.randn(tokens, 3, heads, dimension, device="cuda", dtype=torch.bfloat16)
    q, k, v = fused.unbind(1)
    bounds = cumulative([tokens], "cuda")
    sigmoid_attention(q, k, v, bounds, tokens)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = sigmoid_attention(q, k, v, bounds, tokens)
    # The result alone: no copy of the slices, nothing that grows with the square of the length.
    assert torch.cuda.max_memory_allocated() - before <= out.nbytes + 4096
    dense = sigmoid_attention(*(x.contiguous() for x in (q, k, v)), bounds, tokens)
    assert torch.equal(out, dense)


def test_more_than_two_to_the_31_elements():
    # Only the last sequence is worked on; what lies before it makes its offset large.
    tokens, heads, dimension = 2**31 // 1024 + 256, 8, 128
    if torch.cuda.mem_get_info()[0] < 6 * tokens * heads * dimension * 2:
        pytest.skip("needs 26 GB of GPU memory")
    bounds = torch.tensor([tokens - 200, tokens], device="cuda", dtype=torch.int32)
    q = torch.zeros(tokens, heads, dimension, device="cuda", dtype=torch.bfloat16)
    last = torch.randn(200, heads, dimension, device="cuda", dtype=torch.bfloat16)
    q[-200:] = last
    out = sigmoid_attention(q, q, q, bounds, 200, backend="triton")[-200:]
    alone = sigmoid_attention(last, last, last, cumulative([200], "cuda"), 200, backend="triton")
    assert torch.equal(out, alone)


def test_values_are_checked_on_request():
    q, k, v, _ = inputs(100, torch.bfloat16, 64)
    with pytest.raises(ValueError, match="must end with the number of tokens"):
        sigmoid_attention(q, k, v, cumulative([99], "cuda"), 99, check=True)


@pytest.mark.parametrize(
    ("function", "backend"),
    [(sigmoid_attention, "triton"), (softmax_attention, "flex"), (softmax_attention, "sdpa")],
)
def test_torch_compile(function, backend):
    def loss(q, k, v, bounds, longest):
        return function(q, k, v, bounds, longest, backend=backend).float().square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True)
    for lengths in (JAGGED, [900, 400], [5, 640, 333]):
        q, k, v, _ = inputs(sum(lengths), torch.bfloat16, 64)
        leaves = [x.requires_grad_() for x in (q, k, v)]
        bounds = cumulative(lengths, "cuda")
        got = torch.autograd.grad(compiled(*leaves, bounds, max(lengths)), leaves)
        wanted = torch.autograd.grad(loss(*leaves, bounds, max(lengths)), leaves)
        for one, other in zip(got, wanted, strict=True):
            assert relative_error(one, other.double()) < 1e-2


def test_cuda_graph():
    q, k, v, _ = inputs(700, torch.bfloat16, 64)
    bounds = cumulative([300, 400], "cuda")
    sigmoid_attention(q, k, v, bounds, 400)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = sigmoid_attention(q, k, v, bounds, 400)
    fresh = inputs(700, torch.bfloat16, 64, seed=5)
    for place, value in zip((q, k, v), fresh, strict=False):
        place.copy_(value)
    graph.replay()
    assert torch.equal(out, sigmoid_attention(q, k, v, bounds, 400))


@pytest.mark.parametrize("backend", ["flex", "sdpa"])
@pytest.mark.parametrize("dimension", [64, 128])
def test_softmax(backend, dimension):
    tensors = inputs(sum(JAGGED), torch.bfloat16, dimension)
    got = outcome(*tensors, JAGGED, softmax_attention, backend=backend)
    for value, expected in zip(got, gradients(*tensors, JAGGED, kind="softmax"), strict=True):
        assert relative_error(value, expected) < 1e-2


def test_automatic_backends():
    assert choose_backend("sigmoid", "auto", torch.device("cuda")) == "triton"
    assert choose_backend("softmax", "auto", torch.device("cuda")) == "sdpa"
