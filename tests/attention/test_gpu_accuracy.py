"""Errors of the kernels on a GPU, compared with float64 on the same inputs."""

import itertools
import math

import pytest
import torch
from cases import NAMES, assert_close, compute
from gpu_cases import BACKENDS, JAGGED, TOLERANCE, inputs, require
from oracle import gradients, relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
#: Largest systematic error: a quarter of the largest rounding error of a bfloat16 number.
SYSTEMATIC = 2.0**-11


@pytest.fixture(params=BACKENDS)
def backend(request):
    return require(request.param)


def compute_with_torch(q, k, v, upstream, length):
    """Compute attention and gradients of sequences of equal length by torch alone.

    Operands of products and results are rounded to the dtype of the inputs, all other numbers are
    float32. The errors are several times smaller than with all tensors in the dtype of the inputs.
    """

    def rounded(x):
        return x.to(q.dtype).float()

    rows = [x.unflatten(0, (-1, length)).transpose(1, 2).float() for x in (q, k, v, upstream)]
    queries, keys, values, grad = rows
    scale = q.shape[-1] ** -0.5
    weights = torch.sigmoid(queries @ keys.mT * scale - math.log(length))
    dscores = rounded(weights * (1 - weights) * (grad @ values.mT))
    weights = rounded(weights)
    results = (
        weights @ values,
        dscores @ keys * scale,
        dscores.mT @ queries * scale,
        weights.mT @ grad,
    )
    return [rounded(x).transpose(1, 2).flatten(0, 1) for x in results]


def systematic_error(value, expected):
    """Return the factor by which a result is too large on average, minus 1."""
    expected = expected.flatten()
    return ((value.double().flatten() - expected) @ expected / (expected @ expected)).item()


@pytest.mark.parametrize("dimension", [64, 128])
@pytest.mark.parametrize("length", [1, 64, 777, 4096, 8192, 16_384])
@pytest.mark.parametrize(("mean", "spread"), [(0.0, 1.0), (1.0, 1.0), (0.0, 10.0)])
def test_errors_do_not_exceed_the_errors_of_torch(dimension, length, mean, spread):
    if length > 8192:
        torch.cuda.empty_cache()
        if spread > 1 or torch.cuda.mem_get_info()[0] < 8 * 8 * length**2:
            pytest.skip("the longest sequences need moderate scores and memory for float64")
    # Many short sequences, so that no single rounding decides.
    lengths = [length] * max(1, 512 // length)
    tensors = inputs(sum(lengths), torch.bfloat16, dimension, heads=1, mean=mean, spread=spread)
    wanted = gradients(*tensors, lengths)
    of_torch = compute_with_torch(*tensors, length)
    for backend in BACKENDS:
        if backend == "hopper" and torch.cuda.get_device_capability() != (9, 0):
            continue
        require(backend)
        for accurate, factor in ((None, 1.5), (True, 1.2)):
            ours = compute(*tensors, lengths, accurate=accurate, backend=backend)
            for name, value, other, expected in zip(NAMES, ours, of_torch, wanted, strict=True):
                about = f"{name}, {backend}, accurate={accurate}"
                assert value.isfinite().all(), about
                allowed = factor * relative_error(other, expected) + 1e-4
                assert relative_error(value, expected) <= allowed, about
                allowed = abs(systematic_error(other, expected)) + SYSTEMATIC
                assert abs(systematic_error(value, expected)) <= allowed, about


@pytest.mark.parametrize(
    ("dtype", "dimension", "accurate"),
    [
        *itertools.product([torch.bfloat16], [64, 128], [False, True]),
        (torch.float16, 64, True),
        (torch.float16, 128, False),
        # On Hopper, tiles have more columns than these dimensions.
        *itertools.product([torch.bfloat16], [32, 96], [False, True]),
        (torch.float16, 96, False),
        # Dimensions and dtypes of the portable kernels alone. 48 is not a power of two.
        (torch.bfloat16, 16, False),
        (torch.bfloat16, 48, False),
        (torch.bfloat16, 256, False),
        *itertools.product([torch.float32], [64, 96, 128, 256], [True]),
    ],
)
def test_jagged_batches(dtype, dimension, accurate):
    tensors = inputs(sum(JAGGED), dtype, dimension)
    wanted = gradients(*tensors, JAGGED)
    for backend in ("triton", "auto"):
        got = compute(*tensors, JAGGED, accurate=accurate, backend=backend)
        assert_close(got, wanted, TOLERANCE[dtype])


# From 512 keys on the exact sigmoid of the Hopper kernels has another form.
@pytest.mark.parametrize("longest", [400, 700])
@pytest.mark.parametrize("dimension", [64, 128])
@pytest.mark.parametrize("accurate", [False, True])
def test_finite_scores_never_give_nan(backend, dimension, accurate, longest):
    q, k, v, upstream = inputs(300 + longest, torch.bfloat16, dimension)
    lengths = [300, longest]
    for size in (1e2, 1e4, 1e30):
        for value in compute(q * size, k, v, upstream, lengths, accurate=accurate, backend=backend):
            assert value.isfinite().all(), size


@pytest.mark.parametrize(("length", "accurate"), [(700, False), (300, True), (700, True)])
def test_nan_stays_visible(backend, length, accurate):
    q, k, v, upstream = inputs(length, torch.bfloat16, 64)
    q[7, 0, 3] = float("nan")
    out, *_ = compute(q, k, v, upstream, [length], accurate=accurate, backend=backend)
    assert out[7, 0].isnan().all()
    assert out[:, 1].isfinite().all()
