"""FlashSigmoid (Ramapuram et al.), called through a C interface.

FlashSigmoid's Python package requires an old version of torch, but its kernels do not.
``docs/measurements/scripts/build_flash_sigmoid.sh`` builds the library from ``flash_sigmoid.cu``.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

#: Environment variable with the path of the library.
VARIABLE = "SCSIGMOID_FLASH_SIGMOID"


@functools.cache
def load(path: str) -> ctypes.CDLL:
    """Load the library and declare its functions, which return an error message or null."""
    library = ctypes.CDLL(path)
    common: list[Any] = [
        *[ctypes.c_void_p] * 4,  # q, k, v, output
        *[ctypes.c_int] * 4,  # sequences, length, heads, dim
        *[ctypes.c_float] * 2,  # scale, bias
        ctypes.c_void_p,  # stream
    ]
    library.flash_sigmoid_forward.argtypes = common
    # gradient of the output; gradients of q, k and v; workspace
    library.flash_sigmoid_backward.argtypes = [*common, *[ctypes.c_void_p] * 5]
    for function in (library.flash_sigmoid_forward, library.flash_sigmoid_backward):
        function.restype = ctypes.c_char_p
    return library


def stream() -> int:
    return torch.cuda.current_stream().cuda_stream


class FlashSigmoid(torch.autograd.Function):
    """Sigmoid attention of sequences of equal length, with gradients of q, k and v.

    The arguments of ``apply`` are q, k and v, (sequences, length, heads, dim) bfloat16 with dim 64
    or 128, the bias of the scaled scores, and the result of :func:`load`.
    """

    @staticmethod
    def forward(ctx, q, k, v, bias, library):  # type: ignore[no-untyped-def]
        q, k, v = (x.contiguous() for x in (q, k, v))
        output = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, output)
        ctx.options = (*q.shape, q.shape[-1] ** -0.5, bias)
        ctx.library = library
        call(library.flash_sigmoid_forward, (q, k, v, output), ctx.options)
        return output

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        tensors = ctx.saved_tensors
        gradients = [torch.empty_like(x) for x in tensors[:3]]
        sequences, length, heads, dimension, *_ = ctx.options
        rows = -(-length // 128) * 128  # the workspace needs whole blocks of 128 rows
        workspace = grad.new_empty(sequences, rows, heads, dimension, dtype=torch.float32)
        last = [grad.contiguous(), *gradients, workspace]
        call(ctx.library.flash_sigmoid_backward, tensors, ctx.options, last)
        return *gradients, None, None


def call(function: Any, first: Sequence[Tensor], options: Any, last: Sequence[Tensor] = ()) -> None:
    """Call a function of the library. Raise RuntimeError with the message of its error.

    The arguments are ``first``, ``options`` (sizes, scale, bias), the current stream and ``last``.
    """
    addresses, last_addresses = ([tensor.data_ptr() for tensor in part] for part in (first, last))
    if failure := function(*addresses, *options, stream(), *last_addresses):
        raise RuntimeError(f"FlashSigmoid: {failure.decode()}")
