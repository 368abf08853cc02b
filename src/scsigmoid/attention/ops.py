"""Attention as torch operators: opaque to ``torch.compile``, differentiable once.

``scsigmoid::sigmoid_attention`` and ``scsigmoid::packed_softmax_attention`` take each sequence's
first and one-past-last token instead of a layout, so packed and padded batches share one operator
and one kernel.  The boundaries stay on the device; nothing here waits for it.

Calling an operator from Python takes longer than attention of a short batch, so :func:`attend`
goes round it where nobody looks at the operator: outside compilers, modes and transforms.
"""

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from scsigmoid.attention import reference
from scsigmoid.attention.problem import LONGEST_APPROXIMATE, Problem, nothing

_SECOND_DERIVATIVE = (
    "the second derivative of attention is not implemented; the gradient of a gradient (for "
    "example autograd.grad(..., create_graph=True) differentiated again) cannot be computed"
)


def refuse(ctx: object, *grads: Tensor) -> tuple[None, ...]:
    """In place of a gradient's gradient.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(_SECOND_DERIVATIVE)


def eager(*tensors: Tensor) -> bool:
    """Whether PyTorch runs plain Python: no compiler, tracer, mode, transform or kind of tensor of
    its own must see an operator to know what is computed."""
    return not (
        torch.compiler.is_compiling()
        or is_in_torch_dispatch_mode()
        or torch._C._are_functorch_transforms_active()
        or torch.jit.is_tracing()
        or any(type(tensor) not in (Tensor, torch.nn.Parameter) for tensor in tensors)
    )


@functools.cache
def launcher(backend: str) -> ModuleType:
    """The module whose ``forward`` and ``backward`` launch a GPU's kernels."""
    return importlib.import_module(f"scsigmoid.attention.{backend}_launch")


def make_problem(
    starts_q: Tensor,
    ends_q: Tensor,
    starts_k: Tensor,
    ends_k: Tensor,
    bias: Tensor | None,
    longest_q: int,
    longest_k: int,
    scale: float,
    accurate: bool | None,
    gaps: bool,
    deterministic: bool | None,
) -> Problem:
    """The problem, with what the caller left open decided."""
    if accurate is None:
        accurate = longest_k > LONGEST_APPROXIMATE
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    return Problem(
        starts_q=starts_q,
        ends_q=ends_q,
        starts_k=starts_k,
        ends_k=ends_k,
        bias=bias,
        longest_q=longest_q,
        longest_k=longest_k,
        scale=scale,
        accurate=accurate,
        gaps=gaps,
        deterministic=deterministic,
    )


def compute_sigmoid(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    ends_q: Tensor,
    starts_k: Tensor,
    ends_k: Tensor,
    bias: Tensor | None,
    longest_q: int,
    longest_k: int,
    scale: float,
    accurate: bool | None,
    gaps: bool,
    deterministic: bool | None,
    backend: str,
    score_max: bool,
) -> tuple[Tensor, Tensor]:
    """Sigmoid attention of ``q`` (tokens, heads, dim).

    Args:
        starts_q to deterministic: attributes of :class:`Problem`.  ``accurate`` None is an exact
            sigmoid for more than :data:`LONGEST_APPROXIMATE` keys; ``deterministic`` None is what
            torch is set to.
        backend: ``reference``, ``triton`` or ``hopper``.
        score_max: whether to find the largest scores.

    Returns:
        The result, and the largest absolute scaled score of each head, (heads,) float32; empty if
        it is not asked for.
    """
    if backend == "reference":
        spans = reference.spans(starts_q, ends_q), reference.spans(starts_k, ends_k)
        out = reference.forward("sigmoid", q, k, v, *spans, bias, scale)
        largest = reference.largest_scores(q, k, *spans, scale) if score_max else nothing(q)
        return out, largest
    problem = make_problem(
        starts_q,
        ends_q,
        starts_k,
        ends_k,
        bias,
        longest_q,
        longest_k,
        scale,
        accurate,
        gaps,
        deterministic,
    )
    out, largest = launcher(backend).forward(q, k, v, problem, score_max)
    return out, nothing(q) if largest is None else largest


sigmoid = torch.library.custom_op("scsigmoid::sigmoid_attention", mutates_args=())(compute_sigmoid)


@sigmoid.register_fake
def _(q: Tensor, *arguments: object) -> tuple[Tensor, Tensor]:
    heads = q.shape[1] if arguments[-1] else 0
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    return out, torch.empty(heads, dtype=torch.float32, device=q.device)


def compute_sigmoid_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    ends_q: Tensor,
    starts_k: Tensor,
    ends_k: Tensor,
    bias: Tensor | None,
    longest_q: int,
    longest_k: int,
    scale: float,
    accurate: bool | None,
    gaps: bool,
    deterministic: bool | None,
    backend: str,
    bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``q``, ``k``, ``v`` and ``bias``, in that order, contiguous.

    That of the bias, (sequences,), is empty unless ``bias_grad`` asks for it.
    """
    if backend == "reference":
        spans = reference.spans(starts_q, ends_q), reference.spans(starts_k, ends_k)
        return reference.backward("sigmoid", grad, q, k, v, *spans, bias, scale, bias_grad)
    problem = make_problem(
        starts_q,
        ends_q,
        starts_k,
        ends_k,
        bias,
        longest_q,
        longest_k,
        scale,
        accurate,
        gaps,
        deterministic,
    )
    return launcher(backend).backward(grad, q, k, v, problem, bias_grad)


sigmoid_backward = torch.library.custom_op(
    "scsigmoid::sigmoid_attention_backward", mutates_args=()
)(compute_sigmoid_backward)


@sigmoid_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, *arguments: object
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    return dq, dk, dv, empty_bias_gradient(q, starts_q, arguments)


def empty_bias_gradient(like: Tensor, starts: Tensor, arguments: tuple[object, ...]) -> Tensor:
    """Of the shape of the bias' gradient, empty if the last argument does not ask for it."""
    sequences = starts.shape[0] if arguments[-1] else 0
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return torch.empty(sequences, dtype=dtype, device=like.device)


def _save_sigmoid(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:8])
    ctx.options = inputs[8:15]
    ctx.mark_non_differentiable(output[1])


def _sigmoid_gradients(ctx, grad, _, compute=sigmoid_backward):  # type: ignore[no-untyped-def]
    bias_grad = ctx.needs_input_grad[7]
    *gradients, dbias = compute(grad, *ctx.saved_tensors, *ctx.options, bias_grad)
    return (*gradients, *[None] * 4, dbias if bias_grad else None, *[None] * 8)


sigmoid.register_autograd(_sigmoid_gradients, setup_context=_save_sigmoid)
sigmoid_backward.register_autograd(refuse)


class _Sigmoid(torch.autograd.Function):
    """The operator's computation and gradients, without the operator."""

    @staticmethod
    def forward(ctx, *inputs):  # type: ignore[no-untyped-def]
        output = compute_sigmoid(*inputs)
        _save_sigmoid(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, grad, _):  # type: ignore[no-untyped-def]
        # With create_graph the gradients are recorded: the operator refuses to be derived again.
        recorded = torch.is_grad_enabled() or not eager(grad)
        compute = sigmoid_backward if recorded else compute_sigmoid_backward
        return _sigmoid_gradients(ctx, grad, None, compute)


def attend(q: Tensor, k: Tensor, v: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """:func:`compute_sigmoid`, differentiable, as an operator where that matters."""
    if not eager(q, k, v):
        return sigmoid(q, k, v, *arguments)
    if torch.is_grad_enabled():
        return _Sigmoid.apply(q, k, v, *arguments)
    return compute_sigmoid(q, k, v, *arguments)


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
    plain = eager(q, k, v) and not torch.is_grad_enabled()
    compute = compute_softmax if plain else softmax
    return compute(q, k, v, cu_seqlens[:-1], cu_seqlens[1:], scale)
