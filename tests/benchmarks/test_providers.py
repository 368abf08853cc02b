"""Each kernel with its arguments in place, on the CPU; absent packages are stood in for.

The stand-ins compute attention from the arguments that the packages take.
"""

import functools
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from scsigmoid.attention import sigmoid_attention, sigmoid_attention_padded
from scsigmoid.benchmarks import flash_sigmoid, providers
from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.providers import PROVIDERS, Kernel, Unavailable
from scsigmoid.benchmarks.variants import VARIANTS
from scsigmoid.kernels import LABELS

CPU = torch.device("cpu")
EQUAL = Case("paper", 8, 2, 12, (12, 12, 12))
UNEQUAL = Case("paper", 8, 2, 12, (9, 12, 7), 0.5)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the CPU as a GPU."""
    monkeypatch.setattr(providers, "require_gpu", lambda inputs: None)


def error(kernel: Kernel, attention: str, layout: str, inputs: Inputs) -> float:
    """The largest relative error of output and gradients."""
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
@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_plain_pytorch(attention: str, case: Case) -> None:
    inputs = Inputs(case, CPU, torch.float32)
    assert error(providers.prepare_plain(attention)(inputs), attention, "heads", inputs) < 1e-5


@pytest.mark.parametrize("case", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_torchs_sdpa(case: Case) -> None:
    inputs = Inputs(case, CPU, torch.float32)
    assert error(providers.prepare_sdpa("MATH")(inputs), "softmax", "heads", inputs) < 1e-5


def test_backends_of_softmax_models() -> None:
    inputs = Inputs(UNEQUAL, CPU, torch.float32)
    kernel = providers.prepare_backend("softmax", "sdpa")(inputs)
    assert error(kernel, "softmax", "packed", inputs) < 1e-5
    with pytest.raises(Unavailable, match="'fa4' for softmax attention: it needs a CUDA GPU"):
        providers.prepare_backend("softmax", "fa4")(inputs)
    assert "fa4" in [provider.name for provider in PROVIDERS]
    assert "fa4 packed" in [variant.name for variant in VARIANTS]


def test_every_kernel_has_a_label() -> None:
    """And every label belongs to a kernel that is timed."""
    timed = {provider.name for provider in PROVIDERS} | {variant.kernel for variant in VARIANTS}
    assert timed == set(LABELS)


@pytest.mark.parametrize("is_capturing", [False, True])
def test_triton_sigmoid(monkeypatch: pytest.MonkeyPatch, is_capturing: bool) -> None:
    """Its public functions, and during a capture the operators behind them."""
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
        inputs = Inputs(case, CPU, torch.float32)
        kernel = providers.triton_sigmoid(inputs)
        assert error(kernel, "sigmoid", "padded", inputs) < 1e-5
    ending = " operator" if is_capturing else ""
    assert calls == [f"dense{ending}", f"padded{ending}"]


#: FlashSigmoid's interface in C, for float32 on the CPU, in place of its kernels.
STAND_IN = """
#include <math.h>
#define AT(x, i, d) x[((z * n + i) * heads + h) * dim + d]
static const char *run(float *q, float *k, float *v, float *out, int count, int n, int heads,
                       int dim, float scale, float bias, float *g, float *dq, float *dk, float *dv,
                       float *sums) {
  if (sums) sums[(long)count * ((n + 127) / 128 * 128) * heads * dim - 1] = 0;
  for (int z = 0; z < count; z++) for (int h = 0; h < heads; h++) for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      float score = 0, through = 0;
      for (int d = 0; d < dim; d++) score += AT(q, i, d) * AT(k, j, d);
      float p = 1 / (1 + expf(-score * scale - bias));
      if (!g) {
        for (int d = 0; d < dim; d++) AT(out, i, d) = AT(v, j, d) * p + (j ? AT(out, i, d) : 0);
        continue;
      }
      for (int d = 0; d < dim; d++) through += AT(g, i, d) * AT(v, j, d);
      float slope = p * (1 - p) * through * scale;
      for (int d = 0; d < dim; d++) {
        AT(dq, i, d) = slope * AT(k, j, d) + (j ? AT(dq, i, d) : 0);
        AT(dk, j, d) = slope * AT(q, i, d) + (i ? AT(dk, j, d) : 0);
        AT(dv, j, d) = p * AT(g, i, d) + (i ? AT(dv, j, d) : 0);
      }
    }
  return n == 13 ? "thirteen" : 0;
}
const char *flash_sigmoid_forward(void *q, void *k, void *v, void *out, int count, int n, int heads,
                                  int dim, float scale, float bias, void *stream) {
  return run(q, k, v, out, count, n, heads, dim, scale, bias, 0, 0, 0, 0, 0);
}
const char *flash_sigmoid_backward(void *q, void *k, void *v, void *out, int count, int n,
                                   int heads, int dim, float scale, float bias, void *stream,
                                   void *g, void *dq, void *dk, void *dv, void *sums) {
  return run(q, k, v, out, count, n, heads, dim, scale, bias, g, dq, dk, dv, sums);
}
"""


def test_flash_sigmoid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library gets its arguments in the right order, and its errors are raised."""
    source, library = tmp_path / "stand_in.c", tmp_path / "stand_in.so"
    source.write_text(STAND_IN)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
    monkeypatch.setattr(flash_sigmoid, "stream", lambda: 0)
    inputs = Inputs(replace(EQUAL, head_dimension=64), CPU, torch.float32)
    monkeypatch.delenv(flash_sigmoid.VARIABLE, raising=False)
    with pytest.raises(Unavailable, match="SCSIGMOID_FLASH_SIGMOID names no library"):
        providers.flash_sigmoid(inputs)
    monkeypatch.setenv(flash_sigmoid.VARIABLE, str(tmp_path / "none.so"))
    with pytest.raises(Unavailable, match=r"none\.so"):
        providers.flash_sigmoid(inputs)
    monkeypatch.setenv(flash_sigmoid.VARIABLE, str(library))
    kernel = providers.flash_sigmoid(inputs)
    assert error(kernel, "sigmoid", "padded", inputs) < 1e-5
    thirteen = torch.zeros(1, 13, 1, 64)
    with pytest.raises(RuntimeError, match="FlashSigmoid: thirteen"):
        kernel(thirteen, thirteen, thirteen)
    with pytest.raises(Unavailable, match="takes no padding"):
        providers.flash_sigmoid(Inputs(UNEQUAL, CPU, torch.float32))


@pytest.mark.parametrize("accurate", [False, True])
def test_the_backend_and_the_sigmoid_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, accurate: bool
) -> None:
    inputs = Inputs(UNEQUAL, CPU, torch.float32)
    options: dict[str, object] = {}

    def attend(*tensors: Tensor, **given: object) -> Tensor:
        options.update(given)
        return sigmoid_attention(*tensors, **given)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(providers, "sigmoid_attention", attend)
    kernel = providers.prepare_backend("sigmoid", "reference", accurate=accurate)(inputs)
    assert error(kernel, "sigmoid", "packed", inputs) < 1e-5
    assert options == {"backend": "reference", "accurate": accurate}


def test_a_backend_that_does_not_run_here_is_unavailable() -> None:
    inputs = Inputs(UNEQUAL, CPU, torch.float32)
    with pytest.raises(Unavailable, match="needs a CUDA GPU"):
        providers.prepare_backend("sigmoid", "triton")(inputs)
