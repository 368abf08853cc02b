"""Each kernel on the CPU. Stand-ins for packages that are not installed check their arguments."""

import ctypes
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from benchmarks import sigmoid_formula
from torch import Tensor

from scsigmoid.attention import sigmoid_attention, sigmoid_attention_padded
from scsigmoid.benchmarks import flash_sigmoid, providers
from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.providers import PROVIDERS, Kernel
from scsigmoid.benchmarks.variants import VARIANTS
from scsigmoid.errors import UserError
from scsigmoid.kernels import LABELS

CPU = torch.device("cpu")
EQUAL = Case("paper", 8, 2, 12, (12, 12, 12))
UNEQUAL = Case("paper", 8, 2, 12, (9, 12, 7), 0.5)


def error_of(kernel: Kernel, attention: str, layout: str, inputs: Inputs) -> float:
    """Return the largest relative error of output and gradients."""
    q, k, v, gradient = inputs.in_layout(layout)
    output = kernel(q, k, v)
    gradients = torch.autograd.grad(output, (q, k, v), gradient)
    return inputs.largest_error(attention, layout, output, gradients)[0]


def install(monkeypatch: pytest.MonkeyPatch, name: str, **functions: object) -> None:
    """Install a stand-in for a package."""
    module = ModuleType(name)
    for key, function in functions.items():
        setattr(module, key, function)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("case", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_torch_sdpa(case: Case) -> None:
    inputs = Inputs(case, CPU)
    assert error_of(providers.torch_sdpa("MATH", inputs), "softmax", "heads", inputs) < 1e-5


def test_sigmoid_by_flex_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    inputs = Inputs(EQUAL, CPU)
    q, k, v, _ = inputs.in_layout("heads")
    output = providers.flex_sigmoid(inputs)(q.detach(), k.detach(), v.detach())
    expected = torch.sigmoid(q @ k.mT * 8**-0.5 - math.log(12)) @ v
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


def test_backends_of_softmax_models() -> None:
    inputs = Inputs(UNEQUAL, CPU)
    kernel = providers.model_backend("softmax", "sdpa", inputs)
    assert error_of(kernel, "softmax", "packed", inputs) < 1e-5
    with pytest.raises(UserError, match="'fa4' for softmax attention: it needs a CUDA GPU"):
        providers.model_backend("softmax", "fa4", inputs)
    assert "fa4" in [provider.name for provider in PROVIDERS]
    assert "fa4 packed" in [variant.name for variant in VARIANTS]


def test_every_kernel_has_a_label() -> None:
    timed = {provider.name for provider in PROVIDERS} | {variant.kernel for variant in VARIANTS}
    assert timed == set(LABELS)


@pytest.mark.parametrize("is_capturing", [False, True])
def test_triton_sigmoid(monkeypatch: pytest.MonkeyPatch, is_capturing: bool) -> None:
    """The package's functions are called, or their operators during a capture."""
    calls = []

    def attend(name: str, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        calls.append(name)
        lengths = torch.full((len(q),), q.shape[1]) if lengths is None else lengths
        bias = -torch.log(lengths.float())
        return sigmoid_attention_padded(q, k, v, lengths, bias=bias, backend="reference")

    def padded(q, k, v, seq_lens_k, seq_lens_q):  # type: ignore[no-untyped-def]
        return attend("padded", q, k, v, seq_lens_k)

    def dense_op(q, k, v, bias, score_mod, scale, causal):  # type: ignore[no-untyped-def]
        assert (score_mod, causal, scale.item()) == (None, False, pytest.approx(8**-0.5))
        torch.testing.assert_close(bias, torch.full((3,), -math.log(12)))
        return attend("dense operator", q, k, v)

    def padded_op(q, k, v, keys, queries, bias, score_mod, scale, causal):  # type: ignore[no-untyped-def]
        assert (score_mod, causal, scale.item()) == (None, False, pytest.approx(8**-0.5))
        torch.testing.assert_close(bias, -torch.log(keys.float()))
        return attend("padded operator", q, k, v, keys)

    name, dense = "triton_sigmoid", functools.partial(attend, "dense")
    install(monkeypatch, name, sigmoid_attention=dense, sigmoid_attention_padded=padded)
    install(monkeypatch, f"{name}.sigmoid_triton_dense", sigmoid_attention_fwd_op=dense_op)
    install(monkeypatch, f"{name}.sigmoid_triton_padded", sigmoid_attn_padded_fwd_op=padded_op)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_capturing)
    for case in (EQUAL, UNEQUAL):
        inputs = Inputs(case, CPU)
        kernel = providers.triton_sigmoid(inputs)
        assert error_of(kernel, "sigmoid", "padded", inputs) < 1e-5
    ending = " operator" if is_capturing else ""
    assert calls == [f"dense{ending}", f"padded{ending}"]


def float32(address: int, *shape: int) -> Tensor:
    """Return the tensor at an address."""
    buffer = (ctypes.c_float * math.prod(shape)).from_address(address)
    return torch.frombuffer(buffer, dtype=torch.float32).view(shape)


class Library:
    """FlashSigmoid's interface in C, for float32 on the CPU, in place of its kernels."""

    def __init__(self, path: str) -> None:
        if not path.endswith("flash.so"):
            raise OSError(f"{path}: cannot open shared object file")
        for function in (self.forward, self.backward):
            setattr(self, f"flash_sigmoid_{function.__name__}", with_types(function))

    def forward(self, q, k, v, out, count, n, heads, dim, scale, bias, stream):  # type: ignore[no-untyped-def]
        q, k, v, out = (float32(x, count, n, heads, dim) for x in (q, k, v, out))
        out.copy_(sigmoid_formula.attend(q, k, v, torch.full((count,), bias), scale)[0])
        return b"thirteen" if n == 13 else None

    def backward(self, q, k, v, out, count, n, heads, dim, scale, bias, stream, grad, *written):  # type: ignore[no-untyped-def]
        q, k, v, out, grad = (float32(x, count, n, heads, dim) for x in (q, k, v, out, grad))
        expected, weights = sigmoid_formula.attend(q, k, v, torch.full((count,), bias), scale)
        torch.testing.assert_close(out, expected)
        *addresses, workspace = written
        gradients = sigmoid_formula.gradients(q, k, v, grad, weights, scale)
        for address, gradient in zip(addresses, gradients, strict=True):
            float32(address, count, n, heads, dim).copy_(gradient)
        float32(workspace, count, 128, heads, dim).zero_()


def with_types(function: Callable[..., Any]) -> Any:
    """Return a function that converts its arguments to the types in its ``argtypes``."""

    def call(*arguments: object) -> Any:
        types = call.argtypes  # type: ignore[attr-defined]
        pairs = zip(types, arguments, strict=True)
        return function(*(kind(value).value for kind, value in pairs))

    return call


def test_flash_sigmoid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library gets its arguments in the right order, and its errors are raised."""
    monkeypatch.setattr(flash_sigmoid, "stream", lambda: 0)
    monkeypatch.setattr(ctypes, "CDLL", Library)
    inputs = Inputs(replace(EQUAL, head_dimension=64), CPU)
    monkeypatch.delenv(flash_sigmoid.VARIABLE, raising=False)
    with pytest.raises(UserError, match="SCSIGMOID_FLASH_SIGMOID names no library"):
        providers.flash_sigmoid(inputs)
    monkeypatch.setenv(flash_sigmoid.VARIABLE, "none.so")
    with pytest.raises(UserError, match=r"none\.so"):
        providers.flash_sigmoid(inputs)
    monkeypatch.setenv(flash_sigmoid.VARIABLE, "flash.so")
    kernel = providers.flash_sigmoid(inputs)
    assert error_of(kernel, "sigmoid", "padded", inputs) < 1e-5
    thirteen = torch.zeros(1, 13, 1, 64)
    with pytest.raises(RuntimeError, match="FlashSigmoid: thirteen"):
        kernel(thirteen, thirteen, thirteen)
    with pytest.raises(UserError, match="takes no padding"):
        providers.flash_sigmoid(Inputs(UNEQUAL, CPU))


@pytest.mark.parametrize("accurate", [False, True])
def test_the_backend_and_the_sigmoid_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, accurate: bool
) -> None:
    inputs = Inputs(UNEQUAL, CPU)
    attend = MagicMock(wraps=sigmoid_attention)
    monkeypatch.setattr(providers, "sigmoid_attention", attend)
    kernel = providers.model_backend("sigmoid", "reference", inputs, accurate=accurate)
    assert error_of(kernel, "sigmoid", "packed", inputs) < 1e-5
    assert attend.call_args.kwargs == {"backend": "reference", "accurate": accurate}
