"""Inputs and results shared by the tests on a GPU."""

import pytest
import torch
from oracle import cumulative

from scsigmoid.attention import BACKENDS as BACKENDS_OF
from scsigmoid.attention import choose_backend, sigmoid_attention
from scsigmoid.errors import UserError
from scsigmoid.kernels import version_of

#: Sigmoid backends, which must pass the same tests.
BACKENDS = ("triton", "hopper")
JAGGED = [777, 1, 130, 0, 512, 63, 1200]
#: Largest relative error: rounding of P and of the results to the dtype of the inputs.
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 4e-3, torch.float32: 1e-5}


def usable(backend, attention="sigmoid"):
    """Return the name of a backend.

    Skip the test if the backend does not support this GPU or its optional package is not
    installed, and fail it if the backend does not run for another reason.
    """
    properties = BACKENDS_OF[attention][backend]
    capability = torch.cuda.get_device_capability()
    if properties.needs_exact_capability and capability != properties.capability:
        pytest.skip(f"{backend} does not support GPUs of compute capability {capability}")
    if properties.package and not version_of(properties.package):
        pytest.skip(f"{properties.package} is not installed")
    try:
        return choose_backend(attention, backend, torch.device("cuda"))
    except UserError as error:
        pytest.fail(str(error))


def inputs(tokens, dtype, dimension, *, heads=2, mean=0.0, spread=1.0, seed=0):
    """Return q, k, v and an upstream gradient; ``spread`` is the standard deviation of scores."""
    generator = torch.Generator("cuda").manual_seed(seed)
    q, k, v, upstream = (
        torch.randn(tokens, heads, dimension, device="cuda", generator=generator) for _ in range(4)
    )
    return [x.to(dtype) for x in (q * spread, k, v + mean, upstream)]


def outcome(q, k, v, upstream, lengths, function=sigmoid_attention, **options):
    """Return the result and the gradients of q, k and v."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    bounds = cumulative(lengths, "cuda")
    out = function(*leaves, bounds, max(lengths), **options)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]
