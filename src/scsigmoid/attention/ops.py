"""Attention as a torch operator: opaque to ``torch.compile``, differentiable once.

``scsigmoid::attention`` takes the first and one-past-last token of each sequence, so packed and
padded batches share one operator and one kernel. These token numbers stay on the device, so that
the host does not wait for them.

Calling an operator from Python takes longer than attention of a short batch. Therefore
:func:`attend` bypasses the operator in eager mode (:func:`is_eager`).
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.library import CustomOpDef

from scsigmoid.attention.problem import Problem, compute_dtype, make_packed_problem
from scsigmoid.attention.torch_internals import is_eager
from scsigmoid.kernels import BACKENDS

#: Gradients of q (or qkv), k, v and the bias.
Gradients = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]


def _refuse_second_derivative(ctx: object, *grads: Tensor) -> tuple[None, ...]:
    raise NotImplementedError(
        "the second derivative of attention is not implemented; the gradient of a gradient (for "
        "example autograd.grad(..., create_graph=True) differentiated again) cannot be computed"
    )


def register(
    name: str,
    passes: tuple[Callable[..., Any], Callable[..., Any]],
    fakes: tuple[Callable[..., Any], Callable[..., Any]],
    save: Callable[..., None],
    differentiate: Callable[..., Any],
    schemas: tuple[str | None, str | None] = (None, None),
) -> tuple[CustomOpDef, CustomOpDef]:
    """Register an operator that can be differentiated once, and its gradient as a second operator.

    Args:
        name: name in the namespace ``scsigmoid``. The second operator's name ends in ``_backward``.
        passes: functions that compute the result and the gradients.
        fakes: versions of ``passes`` for fake tensors (:func:`torch.library.register_fake`).
        save: ``setup_context`` of :func:`torch.library.register_autograd`.
        differentiate: ``backward`` of :func:`torch.library.register_autograd`, with the second
            operator as an additional first argument.
        schemas: signatures of both operators. None: the signature of the function in ``passes``.
    """
    forward, backward = (
        torch.library.custom_op(f"scsigmoid::{name}{end}", function, mutates_args=(), schema=schema)
        for end, function, schema in zip(("", "_backward"), passes, schemas, strict=True)
    )
    forward.register_fake(fakes[0])
    backward.register_fake(fakes[1])
    forward.register_autograd(functools.partial(differentiate, backward), setup_context=save)
    backward.register_autograd(_refuse_second_derivative)
    return forward, backward


@functools.cache
def launcher(backend: str) -> ModuleType:
    """Return the module whose ``forward`` and ``backward`` compute attention with a backend."""
    return importlib.import_module(f"scsigmoid.attention.{BACKENDS['sigmoid'][backend].launcher}")


def _on_device_of(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which the tensor's GPU is current, as Triton's launches require."""
    if not tensor.is_cuda or tensor.get_device() == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def _separate(q: Tensor, k: Tensor | None, v: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v. Without ``k`` and ``v``, ``q`` is (tokens, 3, heads, dim)."""
    if k is None or v is None:
        q, k, v = q.unbind(1)
    return q, k, v


def compute(
    q: Tensor, k: Tensor | None, v: Tensor | None, problem: Problem, backend: str
) -> Tensor:
    """Compute attention, (tokens, heads, dim), contiguous.

    Args:
        q: (tokens, heads, dim), or q, k and v in one tensor (tokens, 3, heads, dim).
        k, v: (key tokens, heads, dim), or None if ``q`` contains them.
        problem: the sequences, and how to compute their attention.
        backend: ``reference``, ``triton`` or ``hopper``.
    """
    q, k, v = _separate(q, k, v)
    with _on_device_of(q):
        out: Tensor = launcher(backend).forward(q, k, v, problem.resolve())
    return out


def compute_gradients(
    grad: Tensor,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    problem: Problem,
    backend: str,
    bias_grad: bool,
) -> Gradients:
    """Compute the gradients of the arguments of :func:`compute`.

    ``grad`` is the gradient of the result. Return the gradients of ``q``, ``k`` and ``v``,
    contiguous, and of the bias, (sequences,). If ``k`` and ``v`` are None, so are their gradients.
    Without ``bias_grad``, the gradient of the bias is None.
    """
    arguments = (grad, *_separate(q, k, v), problem.resolve(), bias_grad)
    launch: Callable[..., Gradients] = launcher(backend).backward
    with _on_device_of(q):
        if k is not None:
            return launch(*arguments)
        # The kernels write into one tensor, so that three gradients need not be concatenated.
        dqkv = q.new_empty(q.shape)
        *_, dbias = launch(*arguments, dqkv.unbind(1))
        return dqkv, None, None, dbias


# Arguments of the operators: q, k, v, the fields of Problem and the backend. The tensors, which
# autograd saves, come first. The last tensor is the bias.
_ARGUMENTS = (
    "Tensor q, Tensor? k, Tensor? v, "
    "Tensor starts_q, Tensor ends_q, Tensor starts_k, Tensor ends_k, Tensor? bias, "
    "SymInt longest_q, SymInt longest_k, float scale, bool? accurate, bool has_gaps, "
    "bool? deterministic, str kind, str backend"
)
_TENSOR_COUNT = 8


def _forward(q: Tensor, k: Tensor | None, v: Tensor | None, *rest: Any) -> Tensor:
    *fields, backend = rest
    return compute(q, k, v, Problem(*fields), backend)


def _forward_fake(q: Tensor, *rest: Any) -> Tensor:
    return q.new_empty(q.shape[0], *q.shape[-2:])


def _backward(grad: Tensor, q: Tensor, k: Tensor | None, v: Tensor | None, *rest: Any) -> Gradients:
    *fields, backend, bias_grad = rest
    return compute_gradients(grad, q, k, v, Problem(*fields), backend, bias_grad)


def _backward_operator(grad: Tensor, q: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    # An operator cannot return None among tensors.
    return tuple(q.new_empty(0) if x is None else x for x in _backward(grad, q, *rest))


def _backward_fake(
    grad: Tensor, q: Tensor, k: Tensor | None, v: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    *fields, _, bias_grad = rest
    gradients = (q.new_empty(0 if x is None else x.shape) for x in (q, k, v))
    if not bias_grad:
        return *gradients, q.new_empty(0)
    return *gradients, q.new_empty(Problem(*fields).sequences, dtype=compute_dtype(q))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:_TENSOR_COUNT])
    ctx.options = inputs[_TENSOR_COUNT:]


def _restore_none(gradients: tuple[Tensor, ...], k: Tensor | None, bias_grad: bool) -> Gradients:
    """Replace the empty tensors among the results of the operator by None."""
    dq, dk, dv, dbias = gradients
    return dq, *((None, None) if k is None else (dk, dv)), dbias if bias_grad else None


def _differentiate(
    backward: Callable[..., tuple[Tensor, ...]], ctx: Any, grad: Tensor
) -> tuple[Any, ...]:
    tensors, bias_grad = ctx.saved_tensors, ctx.needs_input_grad[_TENSOR_COUNT - 1]
    gradients = backward(grad, *tensors, *ctx.options, bias_grad)
    dq, dk, dv, dbias = _restore_none(gradients, tensors[1], bias_grad)
    # Autograd expects one value for each argument: None for the backend, and for all fields of the
    # problem but the bias.
    return dq, dk, dv, *(dict.fromkeys(Problem._fields) | {"bias": dbias}).values(), None


attention, attention_backward = register(
    "attention",
    (_forward, _backward_operator),
    (_forward_fake, _backward_fake),
    _save,
    _differentiate,
    (
        f"({_ARGUMENTS}) -> Tensor",
        f"(Tensor grad, {_ARGUMENTS}, bool bias_grad) -> (Tensor, Tensor, Tensor, Tensor)",
    ),
)


class _Attention(torch.autograd.Function):
    """The computation and gradients of the operator without its overhead.

    The problem is one argument, because autograd spends time on each argument. Its bias is another
    argument, because it may require a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        bias: Tensor | None,
        problem: Problem,
        backend: str,
    ) -> Tensor:
        # Spans are saved so that autograd finds changes of them. Ends share memory with starts.
        ctx.save_for_backward(q, k, v, bias, problem.starts_q, problem.starts_k)
        ctx.problem, ctx.backend = problem, backend
        return compute(q, k, v, problem, backend)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, bias, _, _ = ctx.saved_tensors
        problem, backend, bias_grad = ctx.problem, ctx.backend, ctx.needs_input_grad[3]
        if bias is not None:
            problem = problem._replace(bias=bias)
        # With create_graph=True gradients are enabled here. Then autograd records the operator,
        # which raises an error if it is differentiated.
        if torch.is_grad_enabled() or not is_eager(grad):
            gradients = attention_backward(grad, q, k, v, *problem, backend, bias_grad)
            dq, dk, dv, dbias = _restore_none(gradients, k, bias_grad)
        else:
            dq, dk, dv, dbias = compute_gradients(grad, q, k, v, problem, backend, bias_grad)
        return dq, dk, dv, dbias, None, None


def attend(q: Tensor, k: Tensor | None, v: Tensor | None, problem: Problem, backend: str) -> Tensor:
    """Compute attention (:func:`compute`) with autograd, by the operator unless in eager mode.

    Raises:
        NotImplementedError: if a tensor has a forward-mode tangent, which the operator would
            silently drop.
    """
    if is_eager(q, k, v):
        if torch.is_grad_enabled():
            out: Tensor = _Attention.apply(q, k, v, problem.bias, problem, backend)
            return out
        return compute(q, k, v, problem, backend)
    if not torch.compiler.is_compiling():
        for x in (q, k, v, problem.bias):
            if x is not None and unpack_dual(x).tangent is not None:
                raise NotImplementedError(
                    "forward-mode derivatives of attention (torch.func.jvp, jacfwd) are not "
                    "implemented; use reverse mode, for example backward()"
                )
    attended: Tensor = attention(q, k, v, *problem, backend)
    return attended


def attend_softmax(
    tensors: Sequence[Tensor],
    cu_seqlens: Tensor,
    max_seqlen: int,
    scale: float,
    mask: object = None,
) -> Tensor:
    """Compute softmax attention of packed [q, k, v] by the reference. Ignores ``mask``."""
    problem = make_packed_problem(cu_seqlens, max_seqlen, scale, "softmax")
    q, k, v = tensors
    return attend(q, k, v, problem, "reference")
