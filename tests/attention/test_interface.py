"""Arguments and errors of attention, choice of a backend, and support of PyTorch features."""

import subprocess
import sys
import warnings

import pytest
import torch
from cases import check, check_bias_gradient, check_padded, fused_sigmoid, inputs, packed
from oracle import cumulative
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from scsigmoid.attention import (
    backends,
    choose_backend,
    ops,
    score_max,
    sigmoid_attention,
    sigmoid_attention_padded,
    sigmoid_attention_qkv,
    softmax_attention,
    softmax_attention_qkv,
)
from scsigmoid.attention.arguments import are_valid
from scsigmoid.attention.problem import Problem, make_packed_problem
from scsigmoid.errors import UserError

EACH = pytest.mark.parametrize("function", [sigmoid_attention, fused_sigmoid, softmax_attention])


def nested(like):
    """Return a nested tensor of sequences."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        return torch.nested.nested_tensor([like[:4], like[4:]])


Q = torch.zeros(6, 2, 8)
INVALID = (
    ("q: must have shape", ValueError, {"q": Q[0]}),
    ("q: must be a tensor, is list", TypeError, {"q": [1.0]}),
    ("q: dtype torch.int64", TypeError, {"q": Q.long()}),
    ("q: its last dimension, dim, is 0", ValueError, dict.fromkeys("qkv", torch.zeros(6, 2, 0))),
    ("k: dtype torch.float16 differs", TypeError, {"k": Q.half()}),
    ("k: heads and dim", ValueError, {"k": Q[..., :4]}),
    ("k: must be a dense tensor, is a sparse_coo tensor", TypeError, {"k": Q.to_sparse()}),
    ("k: 5 tokens but q has 6", ValueError, {"k": Q[:5], "v": Q[:5]}),
    ("v: shape", ValueError, {"v": Q[:5]}),
    ("v: must be a dense tensor, is a nested tensor", TypeError, {"v": nested(Q)}),
    ("cu_seqlens: must be a tensor, is NoneType", TypeError, {"cu_seqlens": None}),
    ("cu_seqlens: must be int32", TypeError, {"cu_seqlens": torch.tensor([0, 6])}),
    ("cu_seqlens: must have shape", ValueError, {"cu_seqlens": torch.zeros(2, 2).int()}),
    ("cu_seqlens: must start with 0", ValueError, {"cu_seqlens": cumulative([5])[1:]}),
    ("does at sequence 1", ValueError, {"cu_seqlens": cumulative([4, -1, 3])}),
    ("number of tokens, 6, not 5", ValueError, {"cu_seqlens": cumulative([5])}),
    ("a sequence has 4 tokens, more than", ValueError, {"max_seqlen": 3}),
    ("max_seqlen: must not be negative", ValueError, {"max_seqlen": -1}),
    ("max_seqlen: must be a whole number", TypeError, {"max_seqlen": 4.0}),
    ("scale: must be finite, is nan", ValueError, {"scale": float("nan")}),
    ("scale: must be a number, is Tensor", TypeError, {"scale": torch.tensor(1.0)}),
    ("check: must be True or False, is str", TypeError, {"check": "yes"}),
    (r"backend \['auto'\]: is not a string", UserError, {"backend": ["auto"]}),
    ("backend 'quick': does not compute", UserError, {"backend": "quick"}),
)
INVALID_SIGMOID = (
    ("accurate: must be True or False, is int", TypeError, {"accurate": 1}),
    ("deterministic: must be True or False", TypeError, {"deterministic": torch.tensor(True)}),
    ("is_causal: must be True or False, is int", TypeError, {"is_causal": 1}),
    ("key_bias: must be a tensor, is float", TypeError, {"key_bias": 1.0}),
    ("key_bias: dtype torch.complex64 is not real", TypeError, {"key_bias": torch.zeros(6) * 1j}),
    ("key_bias: dtype torch.bool is not real", TypeError, {"key_bias": torch.ones(6).bool()}),
    (r"one element per key, 6 in all, has shape \(2,\)", ValueError, {"key_bias": torch.zeros(2)}),
    ("max_seqlen_k: must not be passed without", ValueError, {"max_seqlen_k": 3}),
    ("max_seqlen_k: must be passed", ValueError, {"cu_seqlens_k": cumulative([4, 2])}),
    ("1 sequences", ValueError, {"cu_seqlens_k": cumulative([6]), "max_seqlen_k": 6}),
    ("cu_seqlens_k: a seq", ValueError, {"cu_seqlens_k": cumulative([4, 2]), "max_seqlen_k": 3}),
    ("bias: must be a number, is list", TypeError, {"bias": [0.0, 0.0]}),
    ("bias: dtype torch.complex64 is not real", TypeError, {"bias": torch.zeros(2) * 1j}),
    ("k: its 3 heads do not divide q's 2", ValueError, dict.fromkeys("kv", torch.zeros(6, 3, 8))),
    ("k: its 0 heads do not divide q's 2", ValueError, dict.fromkeys("kv", Q[:, :0])),
    (r"v: shape \(6, 2, 8\) differs", ValueError, {"k": Q[:, :1]}),
    (r"bias: must be .* shape \(2,\), has \(3,\)", ValueError, {"bias": torch.zeros(3)}),
)
INVALID_PADDED = (
    ("lengths_q: must be between 0 and 6, contains 7", ValueError, {"lengths_q": [7, 0]}),
    ("lengths_q: must be between 0 and 6, contains -1", ValueError, {"lengths_q": [0, -1]}),
    ("lengths_q: must have shape", ValueError, {"lengths_q": [1]}),
    ("lengths_q: must be int32", TypeError, {"lengths_q": [1.0, 1.0]}),
    (r"key_bias: must have shape \(2, 6\)", ValueError, {"key_bias": torch.zeros(12)}),
    ("lengths_k: must be between 0 and 6", ValueError, {"lengths_k": [7, 0]}),
    (
        "length 5 but q has 6; pass lengths_k",
        ValueError,
        dict.fromkeys("kv", torch.stack([Q, Q])[:, :5]),
    ),
    ("k: 1 sequences but q has 2", ValueError, dict.fromkeys("kv", Q[None])),
    (r"q: must have shape \(sequences, length", ValueError, {"q": Q}),
)


def test_invalid_arguments():
    valid = {**dict.fromkeys("qkv", Q), "cu_seqlens": cumulative([4, 2]), "max_seqlen": 4}
    cases = [(sigmoid_attention, valid, case) for case in INVALID + INVALID_SIGMOID]
    cases += [(softmax_attention, valid, case) for case in INVALID]
    valid = {**dict.fromkeys("qkv", torch.stack([Q, Q])), "lengths_q": torch.tensor([6, 3])}
    cases += [(sigmoid_attention_padded, valid, case) for case in INVALID_PADDED]
    valid = {"qkv": torch.zeros(6, 3, 2, 8), "cu_seqlens": cumulative([4, 2]), "max_seqlen": 4}
    message = r"qkv: must have shape \(tokens, 3, heads, dim\)"
    cases.append((sigmoid_attention_qkv, valid, (message, ValueError, {"qkv": Q})))
    cases.append((sigmoid_attention_qkv, valid, INVALID_SIGMOID[0]))
    valid = {"q": Q, "k": Q, "cu_seqlens": cumulative([4, 2])}
    cases.append((score_max, valid, ("k: 5 tokens but q has 6", ValueError, {"k": Q[:5]})))
    cases.append((score_max, valid, ("must end", ValueError, {"cu_seqlens": cumulative([5])})))
    for function, arguments, (message, error, changes) in cases:
        changes = {k: torch.tensor(v) if "lengths" in k else v for k, v in changes.items()}
        with pytest.raises(error, match=message):
            function(**{**arguments, **changes})


@pytest.mark.parametrize("is_fused", [False, True])
def test_the_quick_check_accepts_only_what_all_checks_accept(is_fused):
    """The quick check is for GPUs. Tensors on the device meta pass and fail it alike."""

    def move(value):
        return (
            value.to("meta") if isinstance(value, torch.Tensor) and not value.is_nested else value
        )

    def is_valid(q, k, v, cu_seqlens, max_seqlen, check=False, **ignored):
        tensors = (
            (move(torch.stack((q, k, v), dim=1)),) if is_fused else tuple(map(move, (q, k, v)))
        )
        return are_valid(tensors, 3 + is_fused, move(cu_seqlens), max_seqlen, check)

    valid = {**dict.fromkeys("qkv", Q), "cu_seqlens": cumulative([4, 2]), "max_seqlen": 4}
    assert is_valid(**valid)
    assert not are_valid((Q, Q, Q), 3, valid["cu_seqlens"], 4, False)
    assert not is_valid(**valid, check=True)
    # Whether values are right is not known on a GPU. `_attend` checks scale and backend.
    skipped = ("cu_seqlens: must start", "does at sequence", "number of tokens", "a sequence has")
    skipped += ("scale", r"backend ")
    for message, _, changes in INVALID:
        if message.startswith(skipped) or (is_fused and set(changes) & set("qkv")):
            continue
        assert not is_valid(**{**valid, **changes}), message
    with torch.autocast("cpu", torch.bfloat16):
        assert is_valid(**valid)  # the device meta has no autocast


def test_choice_on_the_cpu(capsys, monkeypatch):
    assert choose_backend("sigmoid", "auto", "cpu") == "reference"
    assert choose_backend("softmax", "auto", torch.device("cpu")) == "sdpa"
    choose_backend("sigmoid", "auto", "cpu")
    assert capsys.readouterr().err.count("sigmoid attention") <= 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for attention, backend, device, message in (
        ("sigmoid", "triton", "cpu", "use 'reference' or 'auto'"),
        ("sigmoid", "hopper", "cpu", "needs a CUDA GPU .* use 'reference' or 'auto'"),
        ("softmax", "flex", "cpu", "use 'sdpa' or 'auto'"),
        ("linear", "auto", "cpu", "use one of sigmoid, softmax"),
        ("sigmoid", "auto", "cuda:7", "device 'cuda:7': torch sees no CUDA GPU"),
    ):
        with pytest.raises(UserError, match=message):
            choose_backend(attention, backend, device)


def test_hopper_is_chosen_if_supported(gpu):
    assert gpu.choose() == gpu.choose("hopper") == "hopper"
    assert gpu.choose(unsupported="it does not compute causal masks") == "triton"
    assert gpu.choose(attention="softmax") == "sdpa"
    gpu.capability = (10, 0)
    assert gpu.choose() == "triton"
    gpu.capability = (7, 5)
    assert gpu.choose() == "reference"


@pytest.mark.parametrize(
    ("dimension", "dtype", "reason"),
    [
        (64, torch.bfloat16, ""),
        (128, torch.float16, ""),
        (96, torch.float16, ""),
        (32, torch.float16, "it computes head dimensions 64, 96 and 128 only"),
        (64, torch.float32, "it computes bfloat16 and float16 only"),
    ],
)
def test_shapes_that_hopper_supports(dimension, dtype, reason):
    q = torch.zeros(1, 1, dimension, dtype=dtype)
    assert backends.find_unsupported("sigmoid", q) == reason
    assert backends.find_unsupported("sigmoid", q, "causal masks") == (
        reason or "it does not compute causal masks"
    )
    assert (backends.find_unsupported("softmax", q) == "") == (not reason and dimension != 96)


def test_warning_if_hopper_kernels_are_missing(gpu):
    gpu.missing = "triton 3.9 lacks something"
    with pytest.warns(UserWarning, match="hopper is not available: triton 3.9 lacks something"):
        assert gpu.choose() == "triton"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_backend("sigmoid", "auto", torch.device("cuda", 0)) == "triton"


def test_hopper_is_refused_if_not_supported(gpu):
    gpu.missing = "triton is too old"
    with pytest.raises(UserError, match="triton is too old; use 'triton' or 'auto'"):
        gpu.choose("hopper")
    gpu.capability = (8, 0)
    with pytest.raises(UserError, match="this GPU has 8"):
        gpu.choose("hopper")


def test_padded_is_packed_with_gaps():
    tensors = [x.unflatten(0, (4, 7)) for x in inputs(28, torch.float64, 8)]
    check_padded(tensors, [3, 0, 7, 5], tolerance=1e-14, backend="reference")


@pytest.mark.parametrize("function", [sigmoid_attention, fused_sigmoid])
def test_slices_of_a_projection(function):
    *tensors, upstream = inputs(6, torch.float64, 8)
    slices = torch.stack(tensors, dim=1).unbind(1)
    bias = torch.tensor([-1.0, 0.5], dtype=torch.float64)
    options = {"function": function, "backend": "reference", "tolerance": 1e-14}
    check((*slices, upstream), [4, 2], bias=bias, scale=0.7, **options)
    check_bias_gradient((*slices, upstream), [4, 2], bias, **options)


@pytest.mark.parametrize("is_padded", [False, True])
def test_grouped_heads(is_padded):
    q, k, v = (torch.randn(6, heads, 8, dtype=torch.float64) for heads in (6, 2, 2))

    def attend(q, k, v):
        if is_padded:
            padded = (x.unflatten(0, (2, 3)) for x in (q, k, v))
            return sigmoid_attention_padded(*padded, torch.tensor([3, 3])).flatten(0, 1)
        return sigmoid_attention(q, k, v, cumulative([3, 3]), 3)

    heads = [attend(q[:, h : h + 1], *(x[:, h // 3, None] for x in (k, v))) for h in range(6)]
    torch.testing.assert_close(attend(q, k, v), torch.cat(heads, dim=1))
    assert torch.autograd.gradcheck(attend, [x.requires_grad_() for x in (q, k, v)])


def test_softmax_refuses_grouped_heads():
    with pytest.raises(ValueError, match="k: heads and dim"):
        softmax_attention(Q, Q[:, :1], Q[:, :1], cumulative([4, 2]), 4)


def test_export():
    class Attention(torch.nn.Module):
        def forward(self, q, k, v, cu_seqlens):
            return sigmoid_attention(q, k, v, cu_seqlens, 6)

    arguments = (*packed(), cumulative([4, 2]))
    program = torch.export.export(Attention(), arguments)
    assert "scsigmoid.attention" in str(program.graph)
    for lengths in ([4, 2], [3, 3]):
        arguments = (*packed(), cumulative(lengths))
        assert torch.equal(program.module()(*arguments), Attention()(*arguments))


def test_autocast_casts_as_for_a_matrix_product():
    with torch.autocast("cpu", torch.bfloat16):
        out = sigmoid_attention(*packed(), cumulative([4, 2]), 4, bias=torch.zeros(2))
    assert out.dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        double = [x.double() for x in packed()]
        assert (double[0] @ double[0].mT).dtype == torch.float64
        assert sigmoid_attention(*double, cumulative([4, 2]), 4).dtype == torch.float64


@EACH
def test_vmap(function):
    batch = torch.stack([torch.stack(packed()), 2 * torch.stack(packed())]).double()
    leaf = batch.requires_grad_()

    def attend(qkv):
        return function(*qkv, cumulative([4, 2]), 4, backend="reference")

    got = torch.func.vmap(attend)(leaf)
    wanted = torch.stack([attend(qkv) for qkv in batch])
    torch.testing.assert_close(got, wanted)
    upstream = torch.randn_like(got)
    (grad,), (expected,) = (torch.autograd.grad(x, leaf, upstream) for x in (got, wanted))
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    def loss(q, k, v):
        out = sigmoid_attention(q, k, v, cumulative([4, 2]), 4, backend="reference")
        return out.square().sum()

    leaves = [x.requires_grad_() for x in packed()]
    value = checkpoint(loss, *leaves, use_reentrant=reentrant)
    value.backward()
    wanted = torch.autograd.grad(loss(*leaves), leaves)
    for leaf, expected in zip(leaves, wanted, strict=True):
        assert torch.equal(leaf.grad, expected)


@pytest.mark.parametrize(
    ("accurate", "longest", "resolved"),
    [(None, 8192, False), (None, 8193, True), (True, 1, True), (False, 20_000, False)],
)
def test_default_of_accurate(accurate, longest, resolved):
    problem = (
        make_packed_problem(cumulative([1]), longest, 1.0)._replace(accurate=accurate).resolve()
    )
    assert problem.accurate == resolved


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("kind", ["sigmoid", "softmax"])
def test_operator_is_well_formed(is_fused, kind):
    tensors = [x.requires_grad_() for x in packed()]
    if is_fused:
        tensors = [torch.stack(packed(), dim=1).requires_grad_(), None, None]
    bounds = cumulative([4, 2])[:-1], cumulative([4, 2])[1:]
    biases = [torch.zeros(n, requires_grad=True) for n in (2, 6)]
    for bias, key_bias in ((None, None), biases):
        problem = Problem(
            *bounds, *bounds, bias, key_bias, 4, 4, 0.3, None, False, None, kind, True
        )
        torch.library.opcheck(ops.attention, (*tensors, *problem, "reference"))
        if kind == "softmax":
            break


class Seen(TorchDispatchMode):
    """Records the names of the called operators."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names = [*getattr(self, "names", []), function.name()]
        return function(*args, **(kwargs or {}))


def test_dispatch_modes_see_operators():
    leaves = [x.requires_grad_() for x in packed()]
    arguments = cumulative([4, 2]), 4

    def loss(q, k, v):
        return sigmoid_attention(q, k, v, *arguments).square().sum()

    with Seen() as seen:
        got = torch.autograd.grad(loss(*leaves), leaves)
    assert "scsigmoid::attention" in seen.names
    assert "scsigmoid::attention_backward" in seen.names
    direct = torch.autograd.grad(loss(*leaves), leaves)
    assert all(torch.equal(one, other) for one, other in zip(got, direct, strict=True))


@EACH
def test_second_derivative_is_refused(function):
    q, k, v = (x.requires_grad_() for x in packed())
    out = function(q, k, v, cumulative([6]), 6, backend="reference")
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative of attention"):
        grad.sum().backward()


@pytest.mark.parametrize("function", [sigmoid_attention_qkv, softmax_attention_qkv])
def test_gradient_of_an_empty_batch(function):
    qkv = torch.zeros(0, 3, 2, 8, requires_grad=True)
    function(qkv, cumulative([]), 0).sum().backward()
    assert qkv.grad.shape == qkv.shape


@EACH
def test_compiles_once_for_all_lengths(function):
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()

    def loss(q, k, v, bias, cu_seqlens, longest):
        is_softmax = function is softmax_attention
        options = {"backend": "reference"} if is_softmax else {"bias": bias, "backend": "auto"}
        # Softmax attention has no bias. `0 * bias` makes its gradient 0 instead of an error.
        return (function(q, k, v, cu_seqlens, longest, **options) + 0 * bias).square().sum()

    compiled = torch.compile(loss, backend=counter, fullgraph=True, dynamic=True)
    # With the last length the sigmoid is exact.
    for lengths, longest in (([4, 2], 4), ([3, 9, 5], 9), ([2, 2, 2, 11], 12), ([5, 3], 9000)):
        leaves = [x.requires_grad_() for x in (*packed(sum(lengths)), torch.tensor(-3.0))]
        arguments = cumulative(lengths), longest
        got = torch.autograd.grad(compiled(*leaves, *arguments), leaves)
        wanted = torch.autograd.grad(loss(*leaves, *arguments), leaves)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other)
    assert counter.frame_count == 1


def test_backends_are_imported_on_first_use():
    """Also if the first use is the one that torch.compile traces."""
    program = """
import sys, torch
from scsigmoid.attention import softmax_attention

def loaded():
    modules = {name.rpartition(".")[2] for name in sys.modules if "scsigmoid.attention." in name}
    return modules & {"fa4", "flex", "sdpa", "selfcheck", "hopper_launch", "triton_launch"}

assert not loaded()
q, k, v = torch.randn(3, 7, 2, 16)
arguments = torch.tensor([0, 3, 7], dtype=torch.int32), 4
compiled = torch.compile(softmax_attention, fullgraph=True, backend="eager")
results = [compiled(q, k, v, *arguments, backend="reference")]
assert not loaded()
results += [softmax_attention(q, k, v, *arguments, backend=name) for name in ("auto", "reference")]
assert loaded() == {"sdpa"}
for result in results[1:]:
    torch.testing.assert_close(result, results[0])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
