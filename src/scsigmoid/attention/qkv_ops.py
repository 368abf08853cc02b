"""Sigmoid attention of a fused projection as a torch operator: one tensor in, one gradient out.

``scsigmoid::sigmoid_attention_qkv`` computes what ``scsigmoid::sigmoid_attention`` does for slices
of one tensor.  Gradients of slices would have to be copied together; here the kernels write them
where they belong.
"""

from typing import Any

import torch
from torch import Tensor

from scsigmoid.attention import ops


def compute(
    qkv: Tensor,
    starts: Tensor,
    ends: Tensor,
    bias: Tensor | None,
    longest: int,
    scale: float,
    accurate: bool | None,
    deterministic: bool | None,
    backend: str,
) -> Tensor:
    """:func:`ops.compute_sigmoid` of ``qkv`` (tokens, 3, heads, dim), packed."""
    bounds = (starts, ends, starts, ends, bias, longest, longest)
    options = (scale, accurate, False, deterministic)
    if backend == "reference":
        arguments: tuple[Any, ...] = (*qkv.unbind(1), *bounds, *options, backend, False)
        return ops.compute_sigmoid(*arguments)[0]
    problem = ops.make_problem(*bounds, *options)
    return ops.launcher(backend).forward(*qkv.unbind(1), problem, False)[0]


forward = torch.library.custom_op("scsigmoid::sigmoid_attention_qkv", mutates_args=())(compute)


@forward.register_fake
def _(qkv: Tensor, *arguments: object) -> Tensor:
    tokens, _, heads, dimension = qkv.shape
    return torch.empty((tokens, heads, dimension), dtype=qkv.dtype, device=qkv.device)


def compute_backward(
    grad: Tensor,
    qkv: Tensor,
    starts: Tensor,
    ends: Tensor,
    bias: Tensor | None,
    longest: int,
    scale: float,
    accurate: bool | None,
    deterministic: bool | None,
    backend: str,
    bias_grad: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of ``qkv``, contiguous, and of ``bias``: :func:`ops.compute_sigmoid_backward`."""
    tensors = (grad, *qkv.unbind(1))
    bounds = (starts, ends, starts, ends, bias, longest, longest)
    options = (scale, accurate, False, deterministic)
    if backend == "reference":
        arguments: tuple[Any, ...] = (*tensors, *bounds, *options, backend, bias_grad)
        found = ops.compute_sigmoid_backward(*arguments)
        return torch.stack(found[:3], dim=1), found[3]
    gradient = torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)
    problem = ops.make_problem(*bounds, *options)
    found = ops.launcher(backend).backward(*tensors, problem, bias_grad, gradient.unbind(1))
    return gradient, found[3]


backward = torch.library.custom_op("scsigmoid::sigmoid_attention_qkv_backward", mutates_args=())(
    compute_backward
)


@backward.register_fake
def _(grad: Tensor, qkv: Tensor, starts: Tensor, *arguments: object) -> tuple[Tensor, Tensor]:
    gradient = torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)
    return gradient, ops.empty_bias_gradient(qkv, starts, arguments)


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:4])
    ctx.options = inputs[4:]


def _gradients(ctx, grad, compute=backward):  # type: ignore[no-untyped-def]
    bias_grad = ctx.needs_input_grad[3]
    gradient, dbias = compute(grad, *ctx.saved_tensors, *ctx.options, bias_grad)
    return gradient, None, None, dbias if bias_grad else None, *[None] * 5


forward.register_autograd(_gradients, setup_context=_save)
backward.register_autograd(ops.refuse)


class _Attention(torch.autograd.Function):
    """The operator's computation and gradients, without the operator."""

    @staticmethod
    def forward(ctx, *inputs):  # type: ignore[no-untyped-def]
        output = compute(*inputs)
        _save(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        recorded = torch.is_grad_enabled() or not ops.eager(grad)
        compute = backward if recorded else compute_backward
        return _gradients(ctx, grad, compute)


def attend(qkv: Tensor, *arguments: Any) -> Tensor:
    """:func:`compute`, differentiable, as an operator where that matters."""
    if not ops.eager(qkv):
        return forward(qkv, *arguments)
    if torch.is_grad_enabled():
        return _Attention.apply(qkv, *arguments)
    return compute(qkv, *arguments)
