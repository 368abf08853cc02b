"""Inputs and outcomes that the tests on a GPU share."""

import pytest
import torch
from oracle import cumulative

from scsigmoid.attention import BACKENDS as BACKENDS_OF
from scsigmoid.attention import choose_backend, sigmoid_attention
from scsigmoid.errors import UserError
from scsigmoid.kernels import version_of

#: Backends that are held to the same tests.
BACKENDS = ("triton", "hopper")
JAGGED = [777, 1, 130, 0, 512, 63, 1200]
#: Largest relative error allowed: rounding of inputs' type in P and in the results.
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 4e-3, torch.float32: 1e-5}


def usable(backend, attention="sigmoid"):
    """The backend; skips the test on a GPU that it is not for, or where its optional package is
    not installed; fails where it should run."""
    known = BACKENDS_OF[attention][backend]
    if known.only and torch.cuda.get_device_capability() != known.needs:
        pytest.skip(f"{backend} is for GPUs of capability 9.0")
    if known.package and not version_of(known.package):
        pytest.skip(f"{known.package} is not installed")
    try:
        return choose_backend(attention, backend, torch.device("cuda"))
    except UserError as error:
        pytest.fail(str(error))


def inputs(tokens, dtype, dimension, *, heads=2, mean=0.0, spread=1.0, seed=0):
    """q, k, v and the upstream gradient; ``spread`` is the scores' standard deviation."""
    generator = torch.Generator("cuda").manual_seed(seed)
    q, k, v, upstream = (
        torch.randn(tokens, heads, dimension, device="cuda", generator=generator) for _ in range(4)
    )
    return [x.to(dtype) for x in (q * spread, k, v + mean, upstream)]


def outcome(q, k, v, upstream, lengths, function=sigmoid_attention, **options):
    """The result and the gradients of q, k and v."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    bounds = cumulative(lengths, "cuda")
    out = function(*leaves, bounds, max(lengths), **options)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]
