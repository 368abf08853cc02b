"""Attention as torch operators: opaque to ``torch.compile``, differentiable once.

``scsigmoid::sigmoid_attention`` and ``scsigmoid::packed_softmax_attention`` take each sequence's
first and one-past-last token instead of a layout, so packed and padded batches share one operator
and one kernel.  The boundaries stay on the device; nothing here waits for it.

Calling an operator from Python takes longer than attention of a short batch, so :func:`attend`
bypasses the operator unless a compiler, tracer, dispatch mode or functorch transform is active.
"""

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd.forward_ad import unpack_dual
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from scsigmoid.attention import reference
from scsigmoid.attention.problem import Problem, nothing, precision
from scsigmoid.kernels import BACKENDS

_SECOND_DERIVATIVE = (
    "the second derivative of attention is not implemented; the gradient of a gradient (for "
    "example autograd.grad(..., create_graph=True) differentiated again) cannot be computed"
)


_FORWARD_MODE = (
    "forward-mode derivatives of attention (torch.func.jvp, jacfwd) are not implemented; take the "
    "gradient of backward()"
)

_TRANSFORM = (
    "torch.func.grad, vjp and jacrev of attention are not implemented; take the gradient of "
    "backward()"
)


def refuse(ctx: object, *grads: Tensor) -> tuple[None, ...]:
    """In place of a gradient's gradient.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(_SECOND_DERIVATIVE)


def check_reverse(*tensors: Tensor | None) -> None:
    """Refuse tensors with a tangent, which an operator would drop without a word, and those that a
    transform of ``torch.func`` takes a gradient of, which it refuses with an obscure one.

    Raises:
        NotImplementedError: for such a tensor.
    """
    if torch.compiler.is_compiling():
        return
    for x in tensors:
        if x is None:
            continue
        if unpack_dual(x).tangent is not None:
            raise NotImplementedError(_FORWARD_MODE)
        while _functorch.is_functorch_wrapped_tensor(x):
            if _functorch.is_gradtrackingtensor(x) and x.requires_grad:
                raise NotImplementedError(_TRANSFORM)
            x = _functorch.get_unwrapped(x)


def eager(*tensors: Tensor) -> bool:
    """Whether PyTorch runs plain Python: no compiler, tracer, mode, transform or kind of tensor of
    its own must see an operator to know what is computed."""
    return not (
        torch.compiler.is_compiling()
        or is_in_torch_dispatch_mode()
        or torch._C._are_functorch_transforms_active()
        or torch.jit.is_tracing()
        or any(type(x) not in (Tensor, torch.nn.Parameter) or x.is_meta for x in tensors)
    )


@functools.cache
def launcher(backend: str) -> ModuleType:
    """The module whose ``forward`` and ``backward`` launch a GPU's kernels."""
    return importlib.import_module(f"scsigmoid.attention.{BACKENDS['sigmoid'][backend].launcher}")


# A problem's fields as an operator takes them: tensors, which autograd saves, then options.
_PROBLEM = (
    "Tensor starts_q, Tensor ends_q, Tensor starts_k, Tensor ends_k, Tensor? bias, "
    "SymInt longest_q, SymInt longest_k, float scale, bool? accurate, bool gaps, "
    "bool? deterministic"
)
_FIELDS, _TENSORS = len(Problem._fields), 5
_NO_GRADIENTS: Any = Problem(*[None] * _FIELDS)  # type: ignore[arg-type]
_BIAS = Problem._fields.index("bias")


def compute_sigmoid(
    q: Tensor, k: Tensor, v: Tensor, problem: Problem, backend: str, score_max: bool
) -> tuple[Tensor, Tensor]:
    """Sigmoid attention of ``q`` (tokens, heads, dim).

    Args:
        q, k, v: (tokens, heads, dim).
        problem: where sequences lie and how to compute.
        backend: ``reference``, ``triton`` or ``hopper``.
        score_max: whether to find the largest scores.

    Returns:
        The result, and the largest absolute scaled score of each head, (heads,) float32; empty if
        it is not asked for.
    """
    if backend == "reference":
        spans = _spans(problem)
        out = reference.forward("sigmoid", q, k, v, *spans, problem.bias, problem.scale)
        if not score_max:
            return out, nothing(q)
        return out, reference.largest_scores(q, k, *spans, problem.scale)
    out, largest = launcher(backend).forward(q, k, v, problem.settled(), score_max)
    return out, nothing(q) if largest is None else largest


def _spans(problem: Problem) -> tuple[list[reference.Span], list[reference.Span]]:
    """First and one-past-last token of each sequence, among queries and among keys."""
    return (
        reference.spans(problem.starts_q, problem.ends_q),
        reference.spans(problem.starts_k, problem.ends_k),
    )


def compute_sigmoid_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    problem: Problem,
    backend: str,
    bias_grad: bool,
    into: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``q``, ``k``, ``v`` and ``bias``, in that order, contiguous.

    That of the bias, (sequences,), is empty unless ``bias_grad`` asks for it.  ``into``: where a
    GPU's kernels write the first three.
    """
    if backend == "reference":
        spans_q, spans_k = _spans(problem)
        return reference.backward(
            "sigmoid", grad, q, k, v, spans_q, spans_k, problem.bias, problem.scale, bias_grad
        )
    return launcher(backend).backward(grad, q, k, v, problem.settled(), bias_grad, into)


def _sigmoid(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return compute_sigmoid(q, k, v, Problem(*rest[:_FIELDS]), *rest[_FIELDS:])


sigmoid = torch.library.custom_op(
    "scsigmoid::sigmoid_attention",
    _sigmoid,
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, {_PROBLEM}, str backend, bool score_max) "
    "-> (Tensor, Tensor)",
)


@sigmoid.register_fake
def _(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    *_, score_max = rest
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    heads = q.shape[1] if score_max else 0
    return out, torch.empty(heads, dtype=torch.float32, device=q.device)


def _sigmoid_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return compute_sigmoid_backward(grad, q, k, v, Problem(*rest[:_FIELDS]), *rest[_FIELDS:])


sigmoid_backward = torch.library.custom_op(
    "scsigmoid::sigmoid_attention_backward",
    _sigmoid_backward,
    mutates_args=(),
    schema=f"(Tensor grad, Tensor q, Tensor k, Tensor v, {_PROBLEM}, str backend, bool bias_grad) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)


@sigmoid_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *_, bias_grad = rest
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    return dq, dk, dv, _empty_bias_gradient(q, Problem(*rest[:_FIELDS]).sequences, bias_grad)


def _empty_bias_gradient(like: Tensor, sequences: int, wanted: bool) -> Tensor:
    return torch.empty(sequences if wanted else 0, dtype=precision(like), device=like.device)


def _save_sigmoid(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    tensors, options = inputs[: 3 + _TENSORS], inputs[3 + _TENSORS : -1]
    ctx.save_for_backward(*tensors)
    ctx.options = options
    ctx.mark_non_differentiable(output[1])


def _sigmoid_gradients(ctx, grad, _, compute=sigmoid_backward):  # type: ignore[no-untyped-def]
    bias_grad = ctx.needs_input_grad[3 + _BIAS]
    *gradients, dbias = compute(grad, *ctx.saved_tensors, *ctx.options, bias_grad)
    rest = _NO_GRADIENTS._replace(bias=dbias if bias_grad else None)
    return (*gradients, *rest, None, None)


sigmoid.register_autograd(_sigmoid_gradients, setup_context=_save_sigmoid)
sigmoid_backward.register_autograd(refuse)


class _Sigmoid(torch.autograd.Function):
    """The operator's computation and gradients, without the operator."""

    @staticmethod
    def forward(ctx, *inputs):  # type: ignore[no-untyped-def]
        output = _sigmoid(*inputs)
        _save_sigmoid(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, grad, _):  # type: ignore[no-untyped-def]
        # With create_graph the gradients are recorded: the operator refuses to be derived again.
        recorded = torch.is_grad_enabled() or not eager(grad)
        compute = sigmoid_backward if recorded else _sigmoid_backward
        return _sigmoid_gradients(ctx, grad, None, compute)


def attend(
    q: Tensor, k: Tensor, v: Tensor, problem: Problem, backend: str, score_max: bool
) -> tuple[Tensor, Tensor]:
    """:func:`compute_sigmoid`, differentiable, as an operator where that matters."""
    if not eager(q, k, v):
        check_reverse(q, k, v, problem.bias)
        return sigmoid(q, k, v, *problem, backend, score_max)
    if torch.is_grad_enabled():
        return _Sigmoid.apply(q, k, v, *problem, backend, score_max)
    return compute_sigmoid(q, k, v, problem, backend, score_max)


class Packed(NamedTuple):
    """Attention of packed sequences to themselves; fields as :class:`Problem`'s."""

    starts: Tensor
    ends: Tensor
    bias: Tensor | None
    longest: int
    scale: float
    accurate: bool | None
    deterministic: bool | None

    @property
    def problem(self) -> Problem:
        """The same, for operators of separate queries and keys."""
        return Problem(
            starts_q=self.starts,
            ends_q=self.ends,
            starts_k=self.starts,
            ends_k=self.ends,
            bias=self.bias,
            longest_q=self.longest,
            longest_k=self.longest,
            scale=self.scale,
            accurate=self.accurate,
            gaps=False,
            deterministic=self.deterministic,
        )


# Sigmoid attention of a fused projection: one tensor in, one gradient out.  Gradients of slices
# would have to be copied together; here the kernels write them where they belong.
_PACKED = (
    "Tensor starts, Tensor ends, Tensor? bias, SymInt longest, float scale, bool? accurate, "
    "bool? deterministic"
)


def _qkv(qkv: Tensor, *rest: Any) -> Tensor:
    *packed, backend = rest
    q, k, v = qkv.unbind(1)
    return compute_sigmoid(q, k, v, Packed(*packed).problem, backend, False)[0]


qkv_sigmoid = torch.library.custom_op(
    "scsigmoid::sigmoid_attention_qkv",
    _qkv,
    mutates_args=(),
    schema=f"(Tensor qkv, {_PACKED}, str backend) -> Tensor",
)


@qkv_sigmoid.register_fake
def _(qkv: Tensor, *rest: Any) -> Tensor:
    tokens, _, heads, dimension = qkv.shape
    return torch.empty((tokens, heads, dimension), dtype=qkv.dtype, device=qkv.device)


def _qkv_backward(grad: Tensor, qkv: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Gradients of ``qkv``, contiguous, and of ``bias``."""
    *packed, backend, bias_grad = rest
    q, k, v = qkv.unbind(1)
    problem = Packed(*packed).problem
    if backend == "reference":
        found = compute_sigmoid_backward(grad, q, k, v, problem, backend, bias_grad)
        return torch.stack(found[:3], dim=1), found[3]
    gradient = torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)
    into = gradient.unbind(1)
    return gradient, compute_sigmoid_backward(grad, q, k, v, problem, backend, bias_grad, into)[3]


qkv_sigmoid_backward = torch.library.custom_op(
    "scsigmoid::sigmoid_attention_qkv_backward",
    _qkv_backward,
    mutates_args=(),
    schema=f"(Tensor grad, Tensor qkv, {_PACKED}, str backend, bool bias_grad) -> (Tensor, Tensor)",
)


@qkv_sigmoid_backward.register_fake
def _(grad: Tensor, qkv: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    *packed, _, bias_grad = rest
    gradient = torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)
    sequences = Packed(*packed).starts.shape[0]
    return gradient, _empty_bias_gradient(qkv, sequences, bias_grad)


def _save_qkv(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    qkv, *packed, ctx.backend = inputs
    fields = Packed(*packed)
    ctx.save_for_backward(qkv, fields.starts, fields.ends, fields.bias)
    ctx.options = fields[3:]


def _qkv_gradients(ctx, grad, compute=qkv_sigmoid_backward):  # type: ignore[no-untyped-def]
    bias_grad = ctx.needs_input_grad[1 + Packed._fields.index("bias")]
    gradient, dbias = compute(grad, *ctx.saved_tensors, *ctx.options, ctx.backend, bias_grad)
    rest = _NO_QKV_GRADIENTS._replace(bias=dbias if bias_grad else None)
    return gradient, *rest, None


_NO_QKV_GRADIENTS: Any = Packed(*[None] * len(Packed._fields))  # type: ignore[arg-type]
qkv_sigmoid.register_autograd(_qkv_gradients, setup_context=_save_qkv)
qkv_sigmoid_backward.register_autograd(refuse)


class _QkvSigmoid(torch.autograd.Function):
    """The operator's computation and gradients, without the operator."""

    @staticmethod
    def forward(ctx, *inputs):  # type: ignore[no-untyped-def]
        output = _qkv(*inputs)
        _save_qkv(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        recorded = torch.is_grad_enabled() or not eager(grad)
        return _qkv_gradients(ctx, grad, qkv_sigmoid_backward if recorded else _qkv_backward)


def attend_qkv(qkv: Tensor, packed: Packed, backend: str) -> Tensor:
    """:func:`attend` of q, k and v in one tensor (tokens, 3, heads, dim)."""
    if not eager(qkv):
        check_reverse(qkv, packed.bias)
        return qkv_sigmoid(qkv, *packed, backend)
    if torch.is_grad_enabled():
        return _QkvSigmoid.apply(qkv, *packed, backend)
    return _qkv(qkv, *packed, backend)


def compute_softmax(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, ends: Tensor, scale: float
) -> Tensor:
    """Softmax attention of packed sequences, plain torch."""
    spans = reference.spans(starts, ends)
    return reference.forward("softmax", q, k, v, spans, spans, None, scale)


softmax = torch.library.custom_op("scsigmoid::packed_softmax_attention", mutates_args=())(
    compute_softmax
)


@softmax.register_fake
def _(q: Tensor, *arguments: object) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


@torch.library.custom_op("scsigmoid::packed_softmax_attention_backward", mutates_args=())
def softmax_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, ends: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``q``, ``k`` and ``v``, in that order, contiguous."""
    spans = reference.spans(starts, ends)
    return reference.backward("softmax", grad, q, k, v, spans, spans, None, scale)[:3]


@softmax_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *arguments: object
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    return dq, dk, dv


def _save_softmax(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:5])
    ctx.scale = inputs[5]


def _softmax_gradients(ctx, grad):  # type: ignore[no-untyped-def]
    return (*softmax_backward(grad, *ctx.saved_tensors, ctx.scale), None, None, None)


softmax.register_autograd(_softmax_gradients, setup_context=_save_softmax)
softmax_backward.register_autograd(refuse)


def attend_softmax(
    tensors: Sequence[Tensor],
    cu_seqlens: Tensor,
    max_seqlen: int,
    scale: float,
    mask: object = None,
) -> Tensor:
    """:func:`compute_softmax` of q, k and v, differentiable."""
    # An operator's first call loads torch's compiler: a second that an evaluation need not spend.
    q, k, v = tensors
    compute = compute_softmax
    if torch.is_grad_enabled() or not eager(q, k, v):
        check_reverse(q, k, v)
        compute = softmax
    return compute(q, k, v, cu_seqlens[:-1], cu_seqlens[1:], scale)
