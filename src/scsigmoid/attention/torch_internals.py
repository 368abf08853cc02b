"""Private parts of PyTorch that attention uses. Each docstring gives the reason."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

_ORDINARY = (Tensor, torch.nn.Parameter, type(None))

Function = TypeVar("Function", bound=Callable[..., Any])


def is_eager(*tensors: Tensor | None) -> bool:
    """Return True if PyTorch runs Python directly on ordinary tensors.

    Otherwise attention must be an operator, so that the compiler, tracer, dispatch mode, functorch
    transform, forward-mode level or tensor subclass sees it, or so that it computes the shape of
    meta tensors. PyTorch has no public test for modes, transforms and levels.
    """
    if (
        torch.compiler.is_compiling()
        or is_in_torch_dispatch_mode()
        or _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    ):
        return False
    for x in tensors:  # noqa: SIM110, all() takes twice as long
        if type(x) not in _ORDINARY or (x is not None and x.is_meta):
            return False
    return True


def mark_constant(function: Function) -> Function:
    """Let torch.compile call ``function`` while tracing and treat its result as a constant.

    Sets the same attribute as ``torch.compiler.assume_constant_result``, which would import the
    compiler. The import takes one second, also in programs that do not compile.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds_q: Tensor,
    bounds_k: Tensor,
    longest_q: int,
    longest_k: int,
) -> Tensor:
    """Compute softmax attention of packed sequences by PyTorch's FlashAttention-2.

    The public ``torch.nn.attention.varlen_attn``, whose first arguments this function has, uses
    cuDNN instead if it can. The scale is 1 / sqrt(dim).
    """
    # without dropout, causal mask and debug mask
    options = (0.0, False, False)
    attended: Tensor = torch.ops.aten._flash_attention_forward(
        q, k, v, bounds_q, bounds_k, longest_q, longest_k, *options
    )[0]
    return attended
