"""Each kernel with its arguments in place, on the CPU; absent packages are stood in for.

The stand-ins compute attention from the arguments that the packages take.
"""

import math
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.attention import sigmoid_attention, softmax_attention
from scsigmoid.benchmarks import sigmoid_kernels, softmax_kernels
from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.sigmoid_kernels import Kernel, Unavailable

CPU = torch.device("cpu")
EQUAL = Case("paper", 8, 2, 12, (12, 12, 12))
UNEQUAL = Case("paper", 8, 2, 12, (9, 12, 7), 0.5)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU pass for a GPU."""
    monkeypatch.setattr(sigmoid_kernels, "needs_gpu", lambda inputs: None)
    monkeypatch.setattr(softmax_kernels, "needs_gpu", lambda inputs: None)


def error(kernel: Kernel, attention: str, layout: str, inputs: Inputs) -> float:
    """The largest relative error of output and gradients."""
    q, k, v, gradient = inputs.in_layout(layout)
    output = kernel(q, k, v)
    gradients = torch.autograd.grad(output, (q, k, v), gradient)
    return inputs.largest_error(attention, layout, output, gradients)[0]


def install(monkeypatch: pytest.MonkeyPatch, name: str, **functions: object) -> None:
    """Put a package's stand-in where it is imported from."""
    module = ModuleType(name)
    for key, function in functions.items():
        setattr(module, key, function)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("case", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    ("prepare", "attention"),
    [
        (sigmoid_kernels.standard_sigmoid, "sigmoid"),
        (softmax_kernels.standard_softmax, "softmax"),
    ],
)
def test_plain_pytorch(prepare: Callable[[Inputs], Kernel], attention: str, case: Case) -> None:
    inputs = Inputs(case, CPU, torch.float32)
    assert error(prepare(inputs), attention, "heads", inputs) < 1e-5


@pytest.mark.parametrize("case", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_cudnn_with_torchs_own_backend_in_its_place(
    monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    real = softmax_kernels.sdpa_with
    asked = []

    def instead(backend: str, mask: Tensor | None) -> Kernel:
        asked.append(backend)
        return real("MATH", mask)

    monkeypatch.setattr(softmax_kernels, "sdpa_with", instead)
    inputs = Inputs(case, CPU, torch.float32)
    assert error(softmax_kernels.cudnn(inputs), "softmax", "heads", inputs) < 1e-5
    assert asked == ["CUDNN_ATTENTION"]


@pytest.mark.parametrize("tuple_too", [False, True])
def test_flash_attention_3_and_4(monkeypatch: pytest.MonkeyPatch, tuple_too: bool) -> None:
    def varlen(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int = 12,
        max_seqlen_k: int = 12,
    ) -> Tensor | tuple[Tensor, None]:
        assert cu_seqlens_q is cu_seqlens_k
        assert max_seqlen_q == max_seqlen_k == 12
        found = softmax_attention(q, k, v, cu_seqlens_q, max_seqlen_q, backend="reference")
        return (found, None) if tuple_too else found

    inputs = Inputs(UNEQUAL, CPU, torch.float32)
    for name, prepare in (
        ("flash_attn_interface", softmax_kernels.flash_3),
        ("flash_attn.cute", softmax_kernels.flash_4),
    ):
        with pytest.raises(Unavailable, match=f"{name} is not installed"):
            prepare(inputs)
        install(monkeypatch, name, flash_attn_varlen_func=varlen)
        assert error(prepare(inputs), "softmax", "packed", inputs) < 1e-5


def padded_sigmoid(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, bias: Tensor) -> Tensor:
    """Sigmoid attention of (sequences, length, heads, dim)."""
    scores = torch.einsum("zqhd,zkhd->zhqk", q, k) * q.shape[-1] ** -0.5
    scores = scores + bias[:, None, None, None]
    outside = torch.arange(k.shape[1])[None, :] >= lengths[:, None]
    weights = torch.sigmoid(scores.masked_fill(outside[:, None, None], -math.inf))
    return torch.einsum("zhqk,zkhd->zqhd", weights, v)


@pytest.mark.parametrize("capturing", [False, True])
def test_triton_sigmoid(monkeypatch: pytest.MonkeyPatch, capturing: bool) -> None:
    """Its public functions, and while a graph is captured the operators behind them."""
    called = []

    def padded(q, k, v, seq_lens_k, seq_lens_q):  # type: ignore[no-untyped-def]
        called.append("padded")
        return padded_sigmoid(q, k, v, seq_lens_k, -torch.log(seq_lens_k.float()))

    def dense(q, k, v):  # type: ignore[no-untyped-def]
        called.append("dense")
        lengths = torch.full((len(q),), q.shape[1])
        return padded_sigmoid(q, k, v, lengths, -torch.log(lengths.float()))

    def padded_op(q, k, v, keys, queries, bias, score_mod, scale, causal):  # type: ignore[no-untyped-def]
        called.append("padded operator")
        assert (score_mod, causal, scale.item()) == (None, False, pytest.approx(8**-0.5))
        return padded_sigmoid(q, k, v, keys, bias)

    def dense_op(q, k, v, bias, score_mod, scale, causal):  # type: ignore[no-untyped-def]
        called.append("dense operator")
        assert (score_mod, causal, scale.item()) == (None, False, pytest.approx(8**-0.5))
        return padded_sigmoid(q, k, v, torch.full((len(q),), q.shape[1]), bias)

    name = "triton_sigmoid"
    install(monkeypatch, name, sigmoid_attention=dense, sigmoid_attention_padded=padded)
    install(monkeypatch, f"{name}.sigmoid_triton_dense", sigmoid_attention_fwd_op=dense_op)
    install(monkeypatch, f"{name}.sigmoid_triton_padded", sigmoid_attn_padded_fwd_op=padded_op)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    for case in (EQUAL, UNEQUAL):
        inputs = Inputs(case, CPU, torch.float32)
        kernel = sigmoid_kernels.triton_sigmoid(inputs)
        assert error(kernel, "sigmoid", "padded", inputs) < 1e-5
    ending = " operator" if capturing else ""
    assert called == [f"dense{ending}", f"padded{ending}"]


def test_flash_sigmoid(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, sigmoid_bias: float) -> Tensor:
        lengths = torch.full((len(q),), q.shape[1])
        return padded_sigmoid(q, k, v, lengths, torch.full((len(q),), sigmoid_bias))

    install(monkeypatch, "flash_sigmoid", flash_attn_func=attend)
    inputs = Inputs(EQUAL, CPU, torch.float32)
    kernel = sigmoid_kernels.flash_sigmoid(inputs)
    assert error(kernel, "sigmoid", "padded", inputs) < 1e-5
    with pytest.raises(Unavailable, match="takes no padding"):
        sigmoid_kernels.flash_sigmoid(Inputs(UNEQUAL, CPU, torch.float32))


@pytest.mark.parametrize("accurate", [False, True])
def test_ours_asks_for_its_path(monkeypatch: pytest.MonkeyPatch, accurate: bool) -> None:
    """The path and the sigmoid are those asked for, whatever the defaults are."""
    inputs = Inputs(UNEQUAL, CPU, torch.float32)
    kernel = sigmoid_kernels.ours("reference", accurate=accurate)(inputs)
    asked: dict[str, object] = {}

    def attend(*tensors: Tensor, **options: object) -> Tensor:
        asked.update(options)
        return sigmoid_attention(*tensors, **options)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(sigmoid_kernels, "sigmoid_attention", attend)
    assert error(kernel, "sigmoid", "packed", inputs) < 1e-5
    assert asked == {"backend": "reference", "accurate": accurate}


def test_a_path_that_the_device_lacks() -> None:
    inputs = Inputs(UNEQUAL, CPU, torch.float32)
    with pytest.raises(Unavailable, match="needs a CUDA GPU"):
        sigmoid_kernels.ours("triton")(inputs)
    with pytest.raises(Unavailable, match="hopper"):
        sigmoid_kernels.ours_padded("hopper")(inputs)


def test_scaled_dot_product_attention_is_told_the_mask() -> None:
    """Padding changes nothing in what is read, and what torch's own mask gives."""
    inputs = Inputs(UNEQUAL, CPU, torch.float32)
    q, k, v, _ = inputs.in_layout("heads")
    mask = inputs.valid[:, None, None, :]
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    found = softmax_kernels.standard_softmax(inputs)(q, k, v)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
