"""Inputs of attention that other attention functions accept."""

import contextlib
import re
import types

import numpy as np
import pytest
import torch
from cases import fused_sigmoid, packed
from oracle import cumulative
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.attention import (
    choose_backend,
    ops,
    sigmoid_attention,
    sigmoid_attention_padded,
    softmax_attention,
)
from scsigmoid.errors import UserError

LENGTHS = torch.tensor([0, 3, 8], dtype=torch.int32)
MIXED = [
    (torch.float32, torch.float32, torch.bfloat16),
    (torch.bfloat16, torch.float32, torch.float32),
    (torch.float16, torch.bfloat16, torch.float32),
]


def inputs(dtypes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(8, 2, 16, generator=generator).to(dtype) for dtype in dtypes]


@pytest.mark.parametrize("dtypes", MIXED)
@pytest.mark.parametrize("attention", [sigmoid_attention, softmax_attention])
def test_autocast_casts_inputs_of_several_dtypes(attention, dtypes):
    tensors = [x.requires_grad_() for x in inputs(dtypes)]
    expected = attention(*(x.bfloat16() for x in tensors), LENGTHS, 5)
    with torch.autocast("cpu", torch.bfloat16):
        result = attention(*tensors, LENGTHS, 5)
        (peer,) = scaled_dot_product_attention(*(x[None].transpose(1, 2) for x in tensors))
    assert result.dtype == peer.dtype == torch.bfloat16
    assert torch.equal(result, expected)
    result.sum().backward()
    assert [x.grad.dtype for x in tensors] == list(dtypes)


def test_autocast_casts_padded_inputs_of_several_dtypes():
    tensors, lengths = [x.unflatten(0, (2, 4)) for x in inputs(MIXED[0])], torch.tensor([4, 2])
    expected = sigmoid_attention_padded(*(x.bfloat16() for x in tensors), lengths)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(sigmoid_attention_padded(*tensors, lengths), expected)


def test_several_dtypes_without_autocast_are_an_error():
    with pytest.raises(TypeError, match="v: dtype"):
        sigmoid_attention(*inputs(MIXED[0]), LENGTHS, 5)


EACH = pytest.mark.parametrize("function", [sigmoid_attention, fused_sigmoid, softmax_attention])


def test_numpy_scalars():
    arguments = (*packed(), cumulative([4, 2]))
    expected = sigmoid_attention(*arguments, 4, scale=0.5, bias=-1.0)
    options = {"scale": np.float32(0.5), "bias": np.float64(-1.0)}
    assert torch.equal(sigmoid_attention(*arguments, np.int64(4), **options), expected)


@EACH
def test_tensors_without_values(function):
    """Fake tensors and tensors on the device ``meta`` have no values."""
    with FakeTensorMode():
        fake = [torch.empty(6, 2, 8, requires_grad=True) for _ in "qkv"]
        bounds = torch.empty(3, dtype=torch.int32)
        function(*fake, bounds, 4).sum().backward()
        assert all(x.grad.shape == x.shape for x in fake)
    meta = [torch.empty(6, 2, 8, device="meta", requires_grad=True) for _ in "qkv"]
    out = function(*meta, torch.empty(3, dtype=torch.int32, device="meta"), 4)
    out.sum().backward()
    assert out.is_meta
    assert out.shape == meta[0].grad.shape == (6, 2, 8)


def test_gradient_by_torch_func_is_refused():
    q, k, v = packed()

    def loss(x):
        return sigmoid_attention(x, k, v, cumulative([4, 2]), 4, backend="reference").sum()

    def per_sample(x):
        return torch.func.vmap(torch.func.grad(loss))(x[None])

    for gradient in (torch.func.grad(loss), torch.func.jacrev(loss), per_sample):
        with pytest.raises(RuntimeError, match="functorch transforms"):
            gradient(q)
    # Attention without a gradient is allowed in torch.func.grad.
    one = torch.func.grad(lambda x: loss(q) * x)(torch.ones(()))
    assert one == loss(q)


@pytest.mark.parametrize("index", [0, 1])
def test_kernels_are_launched_on_the_tensors_gpu(index, monkeypatch):
    current, used = [1], []

    @contextlib.contextmanager
    def device(number):
        current.append(number)
        yield
        current.pop()

    def run(*arguments):
        used.append(current[-1])
        return [None] * 4

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", device)
    module = types.SimpleNamespace(forward=run, backward=run)
    monkeypatch.setattr(ops, "launcher", lambda backend: module)
    q = types.SimpleNamespace(is_cuda=True, get_device=lambda: index, device=index)
    problem = types.SimpleNamespace(resolve=lambda: None)
    ops.compute(q, q, q, problem, "triton")
    ops.compute_gradients(q, q, q, q, problem, "triton", False)
    assert used == [index, index]


@EACH
def test_forward_mode_is_refused(function):
    q, k, v = packed()

    def out(x):
        return function(x, k, v, cumulative([4, 2]), 4, backend="reference")

    with pytest.raises(NotImplementedError, match="forward-mode derivatives of attention"):
        torch.func.jvp(out, (q,), (q,))
    with forward_ad.dual_level(), torch.no_grad():
        dual = forward_ad.make_dual(q, q)
        with pytest.raises(NotImplementedError, match="forward-mode derivatives of attention"):
            out(dual)
    # Attention of a constant is allowed in forward mode.
    one = torch.ones(())
    _, slope = torch.func.jvp(lambda x: out(q) * x, (one,), (one,))
    assert torch.equal(slope, out(q))


def test_a_number_as_bias_keeps_float64():
    tensors = [x.double() for x in packed()]
    cu_seqlens, number = cumulative([4, 2]), -1 / 3
    out = sigmoid_attention(*tensors, cu_seqlens, 4, bias=number)
    bias = torch.tensor(number, dtype=torch.float64)
    assert torch.equal(out, sigmoid_attention(*tensors, cu_seqlens, 4, bias=bias))


@pytest.mark.parametrize("value", ["yes", 1, torch.tensor(True)])
def test_switches_are_true_or_false(value):
    with pytest.raises(TypeError, match="True or False"):
        sigmoid_attention(*packed(), cumulative([4, 2]), 4, check=value)


@pytest.mark.parametrize("requested", ["hopper", "triton"])
def test_the_advised_backend_runs(requested):
    with pytest.raises(UserError, match="CUDA GPU") as error:
        choose_backend("sigmoid", requested, "cpu")
    advised = re.findall(r"'(\w+)'", str(error.value).rpartition(";")[2])
    assert set(advised) == {"reference", "auto"}
    for backend in advised:
        sigmoid_attention(*inputs([torch.float32] * 3), LENGTHS, 5, backend=backend)


def test_a_compiled_call_accepts_a_bias_for_any_number_of_sequences():
    """One sequence after other numbers of sequences was an error."""

    def attend(x, cu_seqlens, bias):
        return sigmoid_attention(x, x, x, cu_seqlens, 40, bias=bias)

    compiled = torch.compile(attend, fullgraph=True, backend="eager")
    for offsets in ([0, 20, 25, 51], [0, 20, 51], [0, 40]):
        x, bias = torch.randn(offsets[-1], 4, 16), torch.randn(len(offsets) - 1)
        arguments = x, torch.tensor(offsets, dtype=torch.int32), bias
        torch.testing.assert_close(compiled(*arguments), attend(*arguments))
