"""The backend FlashAttention-4: operators, with a replacement of the package, and its choice."""

import sys
from types import ModuleType

import pytest
import torch
from cases import check, fused_softmax, inputs
from oracle import cumulative

from scsigmoid.attention import backends, fa4, reference, softmax_attention
from scsigmoid.attention.problem import make_packed_problem
from scsigmoid.errors import UserError

LENGTHS = [5, 0, 33, 1, 16]


def forward(q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **options):
    """Replace the package's forward pass: result, logarithms of sums, and unused values."""
    assert cu_seqlens_q is cu_seqlens_k
    assert max_seqlen_q == max_seqlen_k == 33
    assert options.pop("return_lse")
    scale = options.pop("softmax_scale")
    assert not options
    sums = q.new_full((q.shape[1], q.shape[0]), 7.0, dtype=torch.float32)
    out = reference.forward(q, k, v, make_packed_problem(cu_seqlens_q, 33, scale, "softmax"))
    return out, sums, None, None, None


def backward(q, k, v, out, grad, sums, scale, *, dq, dk, dv, cu_seqlens_q, **options):
    """Replace the package's backward pass, which writes into its arguments."""
    assert sums.shape == (q.shape[1], q.shape[0])
    assert options.pop("deterministic") == torch.are_deterministic_algorithms_enabled()
    assert options.pop("cu_seqlens_k") is cu_seqlens_q
    assert options.pop("max_seqlen_q") == options.pop("max_seqlen_k") == 33
    assert not options
    problem = make_packed_problem(cu_seqlens_q, 33, scale, "softmax")
    reference.backward(grad, q, k, v, problem, into=(dq, dk, dv))


@pytest.fixture
def package(monkeypatch):
    """Replace the package, and let its backend run on the CPU."""
    interface = ModuleType("flash_attn.cute.interface")
    interface._flash_attn_fwd, interface._flash_attn_bwd = forward, backward
    cute = ModuleType("flash_attn.cute")
    cute.interface = interface
    for name, module in (("flash_attn", ModuleType("flash_attn")), (cute.__name__, cute)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(backends, "_find_obstacle", lambda *_: "")
    for cached in (fa4._passes, backends._choose):
        cached.cache_clear()
    yield
    for cached in (fa4._passes, backends._choose):
        cached.cache_clear()


@pytest.mark.parametrize("function", [softmax_attention, fused_softmax])
def test_result_and_gradients(package, function):
    tensors = inputs(sum(LENGTHS), torch.float64, 8)
    options = {"kind": "softmax", "function": function, "backend": "fa4"}
    check(tensors, LENGTHS, tolerance=1e-12, scale=0.3, **options)
    q, k, v, _ = tensors
    out = function(q.requires_grad_(), k, v, cumulative(LENGTHS), 33, backend="fa4")
    (first,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        first.sum().backward()


@pytest.mark.parametrize("count", [1, 3])
def test_operators_are_well_formed(package, count):
    tensors = inputs(sum(LENGTHS), torch.float32, 8)[:3]
    if count == 1:
        tensors = [torch.stack(tensors, dim=1)]
    arguments = ([x.requires_grad_() for x in tensors], cumulative(LENGTHS), 33, 0.3)
    torch.library.opcheck(fa4.forward, arguments)


def test_torch_compile(package):
    compiled = torch.compile(fused_softmax, fullgraph=True, dynamic=True, backend="aot_eager")
    options = {"kind": "softmax", "function": compiled, "backend": "fa4"}
    for lengths in (LENGTHS, [33, 3]):
        check(inputs(sum(lengths), torch.float32, 8), lengths, tolerance=1e-6, **options)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import flash_attn_missing", "No module named 'flash_attn_missing'"),
        ("import ctypes; ctypes.CDLL('libmissing.so')", "libmissing.so: cannot open"),
        ("_flash_attn_fwd = None", "has no attribute '_flash_attn_bwd'"),
    ],
)
def test_package_that_cannot_be_imported(source, reason, tmp_path, monkeypatch):
    module = tmp_path / "flash_attn" / "cute" / "interface.py"
    module.parent.mkdir(parents=True)
    module.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    fa4._passes.cache_clear()
    try:
        message = fa4.unavailable()
    finally:
        for name in [name for name in sys.modules if name.startswith("flash_attn")]:
            del sys.modules[name]
    assert message.startswith("flash-attn-4 cannot be imported (")
    assert reason in message


def test_choice_of_fa4(gpu, monkeypatch):
    installed, missing = [], [""]
    monkeypatch.setattr(backends, "version_of", lambda package: "4" if package in installed else "")
    monkeypatch.setattr(fa4, "unavailable", lambda: missing[0])
    assert gpu.choose(attention="softmax") == "sdpa"
    with pytest.raises(UserError, match=r"flash-attn-4 is not installed \(pip install --pre"):
        gpu.choose("fa4", attention="softmax")
    installed.append("flash-attn-4")
    assert gpu.choose(attention="softmax") == gpu.choose("fa4", attention="softmax") == "fa4"
    assert gpu.choose(attention="softmax", unsupported="it computes ...") == "sdpa"
    missing[0] = "no compiler"
    with pytest.warns(UserWarning, match="backend fa4 is not available: no compiler; a slower"):
        assert gpu.choose(attention="softmax") == "sdpa"
    gpu.capability = (10, 0)
    assert gpu.choose(attention="softmax") == "sdpa"
