"""The kernels on a GPU: isolation, determinism, torch.compile, CUDA graphs, memory."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cases import (
    NAMES,
    check,
    check_bias_gradient,
    check_isolation,
    check_key_bias,
    check_padded,
    compute,
    fused_sigmoid,
    fused_softmax,
)
from gpu_cases import BACKENDS, JAGGED, TOLERANCE, inputs, require
from oracle import cumulative, relative_error

from scsigmoid.attention import (
    benchmark,
    choose_backend,
    launching,
    sdpa,
    sigmoid_attention,
    sigmoid_attention_padded,
    softmax_attention,
)
from scsigmoid.attention.problem import CAUSAL, KEY_BIAS
from scsigmoid.kernels import version_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


#: The portable kernels are always deterministic.
DETERMINISM = pytest.mark.parametrize(
    ("backend", "deterministic"), [("triton", False), ("hopper", False), ("hopper", True)]
)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return require(request.param)


def random_lengths(seed, sequences=60):
    """Return lengths of a jagged batch, some of them 0 or a multiple of a block."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 900, (sequences,), generator=generator)
    lengths[::7] = 0
    lengths[3::7] = 128
    return lengths.tolist()


def assert_repeated(results, others, backend, deterministic):
    """Check that results are bit-identical, except dQ of ``hopper`` if not ``deterministic``."""
    for name, one, other in zip(NAMES, results, others, strict=True):
        if deterministic or backend == "triton" or name != "dq":
            assert torch.equal(one, other), name
        else:
            assert relative_error(one, other.double()) < 1e-3


@DETERMINISM
@pytest.mark.parametrize("dimension", [64, 128])
@pytest.mark.parametrize("function", [sigmoid_attention, fused_sigmoid])
def test_results_repeat(backend, dimension, deterministic, function):
    require(backend)
    lengths = random_lengths(0)
    tensors = inputs(sum(lengths), torch.bfloat16, dimension, heads=4)
    options = {"backend": backend, "deterministic": deterministic}
    first = compute(*tensors, lengths, **options)
    for _ in range(20):
        # Freed memory is reused, so elements that a race leaves unwritten are NaN.
        poison = [torch.full_like(x, float("nan")) for x in tensors]
        del poison
        again = compute(*tensors, lengths, function=function, **options)
        assert_repeated(first, again, backend, deterministic)


def test_determinism_follows_the_setting_of_torch(backend):
    tensors = inputs(sum(JAGGED), torch.bfloat16, 64)
    torch.use_deterministic_algorithms(True)
    try:
        got = compute(*tensors, JAGGED, backend=backend)
    finally:
        torch.use_deterministic_algorithms(False)
    wanted = compute(*tensors, JAGGED, backend=backend, deterministic=True)
    assert all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True))


@pytest.mark.parametrize("dimension", [64, 128])
def test_sequences_do_not_depend_on_each_other(backend, dimension):
    lengths = random_lengths(1, 40)
    tensors = inputs(sum(lengths), torch.bfloat16, dimension)
    options = {"backend": backend, "deterministic": True}
    packed = compute(*tensors, lengths, **options)
    start = 0
    for length in lengths:
        rows = slice(start, start + length)
        start += length
        if length:
            alone = compute(*(x[rows].contiguous() for x in tensors), [length], **options)
            for one, other in zip(packed, alone, strict=True):
                if backend == "triton":
                    assert torch.equal(one[rows], other)
                # The Hopper kernels divide a small batch into other blocks.
                assert relative_error(one[rows], other.double()) < 3e-3


@pytest.mark.parametrize("dimension", [64, 128])
def test_other_sequences_are_never_read(backend, dimension):
    tensors = inputs(1122, torch.bfloat16, dimension)
    check_isolation(tensors, [300, 777, 45], tolerance=TOLERANCE[torch.bfloat16], backend=backend)


@pytest.mark.parametrize("lengths_k", [None, [0, 300, 77, 129]])
@pytest.mark.parametrize("dimension", [64, 128])
def test_padding_is_never_read_and_results_there_are_zero(backend, dimension, lengths_k):
    tensors = [x.unflatten(0, (4, 500)) for x in inputs(2000, torch.bfloat16, dimension)]
    options = {"tolerance": TOLERANCE[torch.bfloat16], "backend": backend}
    check_padded(tensors, [500, 0, 129, 77], lengths_k, **options)


@pytest.mark.parametrize(("dimension", "dtype"), [(64, torch.bfloat16), (128, torch.float16)])
def test_gradient_of_the_bias(backend, dimension, dtype):
    lengths = random_lengths(2, 20)
    bias = torch.linspace(-7, -3, len(lengths), device="cuda")
    tensors = inputs(sum(lengths), dtype, dimension)
    check_bias_gradient(tensors, lengths, bias, tolerance=TOLERANCE[dtype], backend=backend)


@pytest.mark.parametrize(
    ("dtype", "dimension"),
    [
        *itertools.product([torch.bfloat16], [32, 64, 96, 128, 256]),
        (torch.float16, 128),
        (torch.float32, 64),
    ],
)
@pytest.mark.parametrize("lengths_k", [None, [64, 900, 130, 5, 512, 0, 1300]])
def test_causal_mask(dtype, dimension, lengths_k):
    key_tokens = sum(lengths_k or JAGGED)
    tensors = inputs(sum(JAGGED), dtype, dimension, key_tokens=key_tokens)
    for backend in ("triton", "auto"):
        options = {"tolerance": TOLERANCE[dtype], "backend": backend, "is_causal": True}
        check(tensors, JAGGED, lengths_k, **options)


def test_padded_batch_with_a_causal_mask():
    tensors = [x.unflatten(0, (4, 500)) for x in inputs(2000, torch.bfloat16, 64)]
    options = {"tolerance": TOLERANCE[torch.bfloat16], "backend": "triton", "is_causal": True}
    check_padded(tensors, [500, 0, 129, 77], **options)


def test_gradient_of_the_bias_with_a_causal_mask():
    bias = torch.linspace(-7, -3, len(JAGGED), device="cuda")
    tensors = inputs(sum(JAGGED), torch.bfloat16, 64)
    options = {"tolerance": TOLERANCE[torch.bfloat16], "backend": "auto", "is_causal": True}
    check_bias_gradient(tensors, JAGGED, bias, **options)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dimension", [64, 128])
@pytest.mark.parametrize("lengths_k", [None, [64, 900, 130, 5, 512, 0, 1300]])
def test_bias_of_each_key(dimension, is_causal, lengths_k):
    key_tokens = sum(lengths_k or JAGGED)
    tensors = inputs(sum(JAGGED), torch.bfloat16, dimension, key_tokens=key_tokens)
    options = {"tolerance": TOLERANCE[torch.bfloat16], "backend": "auto", "is_causal": is_causal}
    check_key_bias(tensors, JAGGED, lengths_k, **options)


def test_grouped_heads(backend):
    q, k, v, upstream = inputs(1200, torch.bfloat16, 64, heads=4)
    grouped = [x[:, :2].clone().requires_grad_() for x in (k, v)]
    bounds = cumulative([700, 500], "cuda")
    out = sigmoid_attention(q, *grouped, bounds, 700, backend=backend)
    repeated = [x.detach().repeat_interleave(2, dim=1).requires_grad_() for x in grouped]
    expected = sigmoid_attention(q, *repeated, bounds, 700, backend=backend)
    assert torch.equal(out, expected)
    got = torch.autograd.grad(out, grouped, upstream)
    wanted = torch.autograd.grad(expected, repeated, upstream)
    for one, other in zip(got, wanted, strict=True):
        assert relative_error(one, other.double().unflatten(1, (2, 2)).sum(2)) < 6e-3


def test_launches_after_the_first(backend):
    """Later launches reuse parameters. Change addresses, strides, streams and threads."""
    lengths, options = [300, 400], {"backend": backend, "deterministic": False}
    batches = [inputs(700, torch.bfloat16, 64, seed=seed) for seed in range(3)]
    wide = inputs(700, torch.bfloat16, 128, seed=3)
    batches.append([x[..., 64:] for x in wide])  # other strides
    functions = (sigmoid_attention, fused_sigmoid)
    cases = list(itertools.product(batches, functions))
    expected = [compute(*tensors, lengths, **options) for tensors, _ in cases]

    def check_all():
        with torch.cuda.stream(torch.cuda.Stream()):
            for (tensors, function), wanted in zip(cases, expected, strict=True):
                got = compute(*tensors, lengths, function=function, **options)
                assert_repeated(wanted, got, backend, False)
        torch.cuda.synchronize()

    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        for result in [pool.submit(check_all) for _ in range(4)]:
            result.result()


def test_hopper_kernels_are_launched_by_the_driver():
    """If the driver or Triton is not as expected, launches are correct but slow."""
    require("hopper")
    compute(*inputs(700, torch.bfloat16, 64), [300, 400], backend="hopper")
    prepared = [prepared for _, prepared in launching._compiled.values()]
    assert prepared
    assert all(x is not None for x in prepared)


def peak_memory(function, *arguments):
    """Return the result of a second call, and the peak of the bytes that this call allocates."""
    function(*arguments)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = function(*arguments)
    return result, torch.cuda.max_memory_allocated() - before


def test_fused_projection_and_memory(backend):
    tokens, heads, dimension = 8192, 8, 128
    fused = torch.randn(tokens, 3, heads, dimension, device="cuda", dtype=torch.bfloat16)
    q, k, v = fused.unbind(1)
    bounds = cumulative([5000, 3192], "cuda")

    def attend(*tensors):
        return sigmoid_attention(*tensors, bounds, 5000, backend=backend, deterministic=True)

    out, allocated = peak_memory(attend, q, k, v)
    # The result and a small workspace: no copies of slices, no matrix of scores.
    assert allocated < 1.5 * out.nbytes
    assert torch.equal(out, attend(*(x.contiguous() for x in (q, k, v))))

    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attend(*leaves)
    upstream = torch.randn_like(out)
    _, allocated = peak_memory(
        lambda: torch.autograd.grad(out, leaves, upstream, retain_graph=True)
    )
    # Three gradients, and at most dQ in float32 in addition.
    assert allocated < 5.5 * out.nbytes


def test_padded_inputs_are_not_copied(backend):
    q, k, v = (x.unflatten(0, (4, 2048)) for x in inputs(8192, torch.bfloat16, 64, heads=8)[:3])
    lengths = torch.tensor([2048, 1500, 3, 1800], device="cuda")
    out, allocated = peak_memory(
        lambda: sigmoid_attention_padded(q, k, v, lengths, backend=backend)
    )
    assert allocated < 1.5 * out.nbytes


def test_unaligned_tensors(backend):
    # Rows of 65 elements start at addresses that tensor descriptors do not support.
    wide = inputs(700, torch.bfloat16, 65)
    tensors = [x[..., 1:] for x in wide]
    check(tensors, [300, 400], tolerance=TOLERANCE[torch.bfloat16], backend=backend)


def test_more_than_two_to_the_31_elements(backend):
    # The only sequence is at the end, so that its offset is large.
    tokens, heads, dimension = 2**31 // 1024 + 256, 8, 128
    if torch.cuda.mem_get_info()[0] < 10 * tokens * heads * dimension * 2:
        pytest.skip("needs 43 GB of GPU memory")
    bounds = torch.tensor([tokens - 200, tokens], device="cuda", dtype=torch.int32)
    last = torch.randn(200, heads, dimension, device="cuda", dtype=torch.bfloat16)
    q = torch.zeros(tokens, heads, dimension, device="cuda", dtype=torch.bfloat16)
    q[-200:] = last
    results = []
    for x, boundaries in ((q, bounds), (last, cumulative([200], "cuda"))):
        leaf = x.requires_grad_()
        out = sigmoid_attention(
            *(leaf, leaf, leaf, boundaries, 200), backend=backend, deterministic=True
        )
        (grad,) = torch.autograd.grad(out, leaf, torch.ones_like(out))
        results.append((out[-200:], grad[-200:]))
        del out, grad
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_empty_batches(backend):
    for lengths in ([], [0, 0], [0, 5, 0]):
        tensors = inputs(sum(lengths), torch.bfloat16, 64)
        leaves = [x.requires_grad_() for x in tensors[:3]]
        bounds = cumulative(lengths, "cuda")
        out = sigmoid_attention(*leaves, bounds, max(lengths, default=0), backend=backend)
        for grad in torch.autograd.grad(out.sum(), leaves):
            assert grad.isfinite().all()


def test_lengths_are_checked_on_request():
    q, k, v, _ = inputs(100, torch.bfloat16, 64)
    with pytest.raises(ValueError, match="must end with the number of tokens"):
        sigmoid_attention(q, k, v, cumulative([99], "cuda"), 99, check=True)


@pytest.mark.parametrize(
    ("function", "backend"),
    [
        (sigmoid_attention, "triton"),
        (sigmoid_attention, "hopper"),
        (softmax_attention, "flex"),
        (softmax_attention, "sdpa"),
    ],
)
def test_torch_compile(function, backend):
    from torch._dynamo.testing import CompileCounterWithBackend

    if function is sigmoid_attention:
        require(backend)

    def loss(q, k, v, bounds, longest):
        return function(q, k, v, bounds, longest, backend=backend).float().square().sum()

    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(loss, backend=counter, fullgraph=True, dynamic=True)
    for lengths in (JAGGED, [900, 400], [5, 640, 333], [512, 512]):
        q, k, v, _ = inputs(sum(lengths), torch.bfloat16, 64)
        leaves = [x.requires_grad_() for x in (q, k, v)]
        bounds = cumulative(lengths, "cuda")
        got = torch.autograd.grad(compiled(*leaves, bounds, max(lengths)), leaves)
        wanted = torch.autograd.grad(loss(*leaves, bounds, max(lengths)), leaves)
        for one, other in zip(got, wanted, strict=True):
            assert relative_error(one, other.double()) < 1e-2
    assert counter.frame_count == 1


def test_cuda_graph(backend):
    q, k, v, upstream = inputs(700, torch.bfloat16, 64)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    bounds = cumulative([300, 400], "cuda")

    def step():
        out = sigmoid_attention(*(*leaves, bounds, 400), backend=backend, deterministic=True)
        return [out, *torch.autograd.grad(out, leaves, upstream)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    fresh = inputs(700, torch.bfloat16, 64, seed=5)
    with torch.no_grad():
        for place, value in zip((q, k, v, upstream), fresh, strict=True):
            place.copy_(value)
        # The same number of sequences with other lengths, not above the maximum.
        bounds.copy_(cumulative([390, 310], "cuda"))
    for _ in range(3):
        graph.replay()
        for one, other in zip(results, step(), strict=True):
            assert torch.equal(one, other)


def test_fa4_follows_the_determinism_of_torch():
    require("fa4", "softmax")
    lengths = random_lengths(0)
    tensors = inputs(sum(lengths), torch.bfloat16, 64)
    torch.use_deterministic_algorithms(True)
    try:
        first, again = (
            compute(*tensors, lengths, function=softmax_attention, backend="fa4") for _ in range(2)
        )
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


@pytest.mark.parametrize(
    ("backend", "dimension", "function"),
    [
        ("flex", 128, softmax_attention),
        ("sdpa", 128, softmax_attention),
        *itertools.product(["fa4"], [64, 128], [softmax_attention, fused_softmax]),
    ],
)
def test_softmax(backend, dimension, function):
    require(backend, "softmax")
    tensors = inputs(sum(JAGGED), torch.bfloat16, dimension)
    options = {"kind": "softmax", "function": function, "backend": backend}
    check(tensors, JAGGED, tolerance=1e-2, **options)


@pytest.mark.parametrize("backend", [*BACKENDS, "sdpa"])
def test_kernels_pass_the_check_for_other_versions(backend, monkeypatch, tmp_path):
    import triton

    from scsigmoid.attention import selfcheck

    require(backend, "softmax" if backend == "sdpa" else "sigmoid")
    for tested in ("TRITON", "TORCH"):
        monkeypatch.setattr(selfcheck, tested, ())
    selfcheck.find_failure.cache_clear()
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        cases = [(width, "") for width in (64, 128)]
        if backend == "triton":
            cases += [(256, ""), (64, CAUSAL), (64, KEY_BIAS)]
        for case in cases:
            assert selfcheck.find_failure(backend, torch.device("cuda"), *case) == ""
    verdicts = list((tmp_path / "scsigmoid").iterdir())
    assert [path.read_text() for path in verdicts] == [""] * len(cases)
    selfcheck.find_failure.cache_clear()


def test_the_kernel_behind_sdpa_is_known():
    assert sdpa.kernel_of(torch.device("cuda")).partition(" ")[0] in ("cuDNN", "FlashAttention-2")


def test_automatic_backends():
    hopper = torch.cuda.get_device_capability() == (9, 0)
    fastest = "hopper" if hopper else "triton"
    assert choose_backend("sigmoid", "auto", torch.device("cuda")) == fastest
    softmax = "fa4" if hopper and version_of("flash-attn-4") else "sdpa"
    assert choose_backend("softmax", "auto", torch.device("cuda")) == softmax


def test_the_benchmark_of_the_kernel_alone():
    speeds = benchmark.measure(benchmark.kernels(), 64, [512] * 8)
    assert len(speeds) >= 2
    assert all(0 < tflops < 1000 for pair in speeds.values() for tflops in pair)
