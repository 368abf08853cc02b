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

#: Gradients of q (or qkv), k, v, the bias and the bias of keys.
Gradients = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


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
    key_bias_grad: bool = False,
) -> Gradients:
    """Compute the gradients of the arguments of :func:`compute`.

    ``grad`` is the gradient of the result. Return the gradients of ``q``, ``k`` and ``v``,
    contiguous, of the bias, (sequences,), and of the bias of keys, (key tokens,). If ``k`` and
    ``v`` are None, so are their gradients. Without ``bias_grad`` and ``key_bias_grad``, the
    gradients of the biases are None.
    """
    arguments = (grad, *_separate(q, k, v), problem.resolve(), bias_grad)
    options = {"key_bias_grad": True} if key_bias_grad else {}
    launch: Callable[..., Gradients] = launcher(backend).backward
    with _on_device_of(q):
        if k is not None:
            return launch(*arguments, **options)
        # The kernels write into one tensor, so that three gradients need not be concatenated.
        dqkv = q.new_empty(q.shape)
        *_, dbias, dkey_bias = launch(*arguments, dqkv.unbind(1), **options)
        return dqkv, None, None, dbias, dkey_bias


# Arguments of the operators: q, k, v, the fields of Problem and the backend. The tensors, which
# autograd saves, come first. The last two tensors are the biases.
_ARGUMENTS = (
    "Tensor q, Tensor? k, Tensor? v, "
    "Tensor starts_q, Tensor ends_q, Tensor starts_k, Tensor ends_k, Tensor? bias, "
    "Tensor? key_bias, "
    "SymInt longest_q, SymInt longest_k, float scale, bool? accurate, bool has_gaps, "
    "bool? deterministic, str kind, bool is_causal, str backend"
)
_TENSOR_COUNT = 9


def _forward(q: Tensor, k: Tensor | None, v: Tensor | None, *rest: Any) -> Tensor:
    *fields, backend = rest
    return compute(q, k, v, Problem(*fields), backend)


def _forward_fake(q: Tensor, *rest: Any) -> Tensor:
    return q.new_empty(q.shape[0], *q.shape[-2:])


def _backward(grad: Tensor, q: Tensor, k: Tensor | None, v: Tensor | None, *rest: Any) -> Gradients:
    *fields, backend, bias_grad, key_bias_grad = rest
    return compute_gradients(grad, q, k, v, Problem(*fields), backend, bias_grad, key_bias_grad)


def _backward_operator(grad: Tensor, q: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    # An operator cannot return None among tensors.
    return tuple(q.new_empty(0) if x is None else x for x in _backward(grad, q, *rest))


def _backward_fake(
    grad: Tensor, q: Tensor, k: Tensor | None, v: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    *fields, _, bias_grad, key_bias_grad = rest
    problem, dtype = Problem(*fields), compute_dtype(q)
    gradients = (q.new_empty(0 if x is None else x.shape) for x in (q, k, v))
    keys = (q if k is None else k).shape[0]
    dbias = q.new_empty(problem.sequences, dtype=dtype) if bias_grad else q.new_empty(0)
    return *gradients, dbias, q.new_empty(keys, dtype=dtype) if key_bias_grad else q.new_empty(0)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:_TENSOR_COUNT])
    ctx.options = inputs[_TENSOR_COUNT:]


def _restore_none(
    gradients: tuple[Tensor, ...], k: Tensor | None, bias_grads: Sequence[bool]
) -> Gradients:
    """Replace the empty tensors among the results of the operator by None."""
    dq, dk, dv, *biases = gradients
    dbias, dkey_bias = (x if y else None for x, y in zip(biases, bias_grads, strict=True))
    return dq, *((None, None) if k is None else (dk, dv)), dbias, dkey_bias


def _differentiate(
    backward: Callable[..., tuple[Tensor, ...]], ctx: Any, grad: Tensor
) -> tuple[Any, ...]:
    tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[_TENSOR_COUNT - 2 : _TENSOR_COUNT]
    gradients = backward(grad, *tensors, *ctx.options, *needed)
    dq, dk, dv, dbias, dkey_bias = _restore_none(gradients, tensors[1], needed)
    # Autograd expects one value for each argument: None for the backend, and for all fields of the
    # problem but the biases.
    biases = {"bias": dbias, "key_bias": dkey_bias}
    return dq, dk, dv, *(dict.fromkeys(Problem._fields) | biases).values(), None


attention, attention_backward = register(
    "attention",
    (_forward, _backward_operator),
    (_forward_fake, _backward_fake),
    _save,
    _differentiate,
    (
        f"({_ARGUMENTS}) -> Tensor",
        f"(Tensor grad, {_ARGUMENTS}, bool bias_grad, bool key_bias_grad) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    ),
)


class _Attention(torch.autograd.Function):
    """The computation and gradients of the operator without its overhead.

    The problem is one argument, because autograd spends time on each argument. Its biases are other
    arguments, because they may require gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        bias: Tensor | None,
        key_bias: Tensor | None,
        problem: Problem,
        backend: str,
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, *problem[:6])  # spans and biases
        ctx.problem, ctx.backend = problem, backend
        return compute(q, k, v, problem, backend)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, *tensors = ctx.saved_tensors
        backend, needed = ctx.backend, ctx.needs_input_grad[3:5]
        problem = Problem._make((*tensors, *ctx.problem[6:]))
        # With create_graph=True gradients are enabled here. Then autograd records the operator,
        # which raises an error if it is differentiated.
        if torch.is_grad_enabled() or not is_eager(grad):
            results = attention_backward(grad, q, k, v, *problem, backend, *needed)
            gradients = _restore_none(results, k, needed)
        else:
            gradients = compute_gradients(grad, q, k, v, problem, backend, *needed)
        return *gradients, None, None


def attend(q: Tensor, k: Tensor | None, v: Tensor | None, problem: Problem, backend: str) -> Tensor:
    """Compute attention (:func:`compute`) with autograd, by the operator unless in eager mode.

    Raises:
        NotImplementedError: if a tensor has a forward-mode tangent, which the operator would
            silently drop.
    """
    if is_eager(q, k, v):
        if torch.is_grad_enabled():
            biases = problem.bias, problem.key_bias
            out: Tensor = _Attention.apply(q, k, v, *biases, problem, backend)
            return out
        return compute(q, k, v, problem, backend)
    if not torch.compiler.is_compiling():
        for x in (q, k, v, problem.bias, problem.key_bias):
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
