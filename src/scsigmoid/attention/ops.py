"""Attention as torch operators: opaque to ``torch.compile``, differentiable once.

``scsigmoid::sigmoid_attention`` and ``scsigmoid::packed_softmax_attention`` take each sequence's
first and one-past-last token instead of a layout, so packed and padded batches share one operator
and one kernel.  The boundaries stay on the device; nothing here waits for it.
"""

import torch
from torch import Tensor

from scsigmoid.attention import reference

_SECOND_DERIVATIVE = (
    "the second derivative of attention is not implemented; the gradient of a gradient (for "
    "example autograd.grad(..., create_graph=True) differentiated again) cannot be computed"
)


def _refuse(ctx: object, *grads: Tensor) -> tuple[None, ...]:
    raise NotImplementedError(_SECOND_DERIVATIVE)


def bypassed(q: Tensor) -> bool:
    """Whether attention can be computed without its operator: on the CPU, without gradients.

    Calling any operator of one's own loads torch's compiler, which takes a second that an
    evaluation on the CPU need not spend.
    """
    return not (q.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling())


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
    backend: str,
    accurate: bool,
    gaps: bool,
) -> Tensor:
    """Sigmoid attention of ``q`` (tokens, heads, dim); arguments as :func:`sigmoid_attention`'s.

    Args:
        starts_q, ends_q, starts_k, ends_k: (sequences,) int32.
        bias: (sequences,) float32, or None for -log(number of keys).
        gaps: whether tokens may lie outside every sequence (padding); they get zeros.
    """
    if backend == "reference":
        spans = reference.spans(starts_q, ends_q), reference.spans(starts_k, ends_k)
        return reference.forward("sigmoid", q, k, v, *spans, bias, scale)
    import scsigmoid.attention.triton_launch as triton_launch

    return triton_launch.forward(
        q, k, v, starts_q, ends_q, starts_k, ends_k, bias, longest_q, scale, accurate, gaps
    )


sigmoid = torch.library.custom_op("scsigmoid::sigmoid_attention", mutates_args=())(compute_sigmoid)


@sigmoid.register_fake
def _(q: Tensor, *arguments: object) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


@torch.library.custom_op("scsigmoid::sigmoid_attention_backward", mutates_args=())
def sigmoid_backward(
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
    backend: str,
    accurate: bool,
    gaps: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``q``, ``k`` and ``v``, in that order, contiguous."""
    if backend == "reference":
        spans = reference.spans(starts_q, ends_q), reference.spans(starts_k, ends_k)
        return reference.backward("sigmoid", grad, q, k, v, *spans, bias, scale)
    import scsigmoid.attention.triton_launch as triton_launch

    return triton_launch.backward(
        grad,
        q,
        k,
        v,
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
    )


@sigmoid_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *arguments: object
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    return dq, dk, dv


def _save_sigmoid(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:8])
    ctx.options = inputs[8:]


def _sigmoid_gradients(ctx, grad):  # type: ignore[no-untyped-def]
    gradients = sigmoid_backward(grad, *ctx.saved_tensors, *ctx.options)
    return (*gradients, *[None] * 11)


sigmoid.register_autograd(_sigmoid_gradients, setup_context=_save_sigmoid)
sigmoid_backward.register_autograd(_refuse)


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
    return reference.backward("softmax", grad, q, k, v, spans, spans, None, scale)


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
softmax_backward.register_autograd(_refuse)
