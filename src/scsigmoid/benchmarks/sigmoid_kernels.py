"""The sigmoid attention kernels that are compared: this project's and others'.

Each function makes the kernel for a batch, with all that does not belong into the timing.
"""

import importlib
import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scsigmoid.attention import (
    BACKENDS,
    choose_backend,
    sigmoid_attention,
    sigmoid_attention_padded,
)
from scsigmoid.benchmarks import flash_sigmoid as flash
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.errors import UserError

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


class Unavailable(Exception):
    """A kernel that cannot run here; the message says why."""


def needs_gpu(inputs: Inputs) -> None:
    """Refuse the CPU."""
    if inputs.lengths.device.type != "cuda":
        raise Unavailable("needs a CUDA GPU")


def imported(module: str) -> Any:
    """An optional package."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise Unavailable(f"{module} is not installed") from None


def ours(backend: str, *, accurate: bool = False) -> Callable[[Inputs], Kernel]:
    """This project's kernel over packed sequences.

    Args:
        backend: its path, see :data:`scsigmoid.attention.backends.BACKENDS`.
        accurate: the exact sigmoid instead of the hardware's approximate tanh.
    """

    def prepare(inputs: Inputs) -> Kernel:
        runs_here("sigmoid", backend, inputs)
        longest = max(inputs.case.lengths)
        return lambda q, k, v: sigmoid_attention(
            q, k, v, inputs.cu_seqlens, longest, backend=backend, accurate=accurate
        )

    return prepare


def ours_padded(backend: str) -> Callable[[Inputs], Kernel]:
    """This project's kernel over padded sequences, the paper's interface."""

    def prepare(inputs: Inputs) -> Kernel:
        runs_here("sigmoid", backend, inputs)
        return lambda q, k, v: sigmoid_attention_padded(
            q, k, v, inputs.lengths, backend=backend, accurate=False
        )

    return prepare


def runs_here(attention: str, backend: str, inputs: Inputs) -> None:
    """Refuse a path that this device cannot run."""
    if BACKENDS[attention][backend].anywhere:
        return
    needs_gpu(inputs)
    try:
        choose_backend(attention, backend, inputs.lengths.device)
    except UserError as error:
        raise Unavailable(str(error)) from None


def standard_sigmoid(inputs: Inputs) -> Kernel:
    """Sigmoid attention in plain PyTorch: the n x n matrix in memory."""
    bias = -torch.log(inputs.lengths.float())[:, None, None, None]
    padding = ~inputs.valid[:, None, None, :] if inputs.case.uneven else None

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * inputs.case.head_dimension**-0.5 + bias.to(q.dtype)
        if padding is not None:
            scores = scores.masked_fill(padding, -math.inf)
        return torch.sigmoid(scores) @ v

    return kernel


def triton_sigmoid(inputs: Inputs) -> Kernel:
    """The paper's kernel, triton-sigmoid 0.1.2: the padded function where there is padding.

    Its functions copy the scale to the GPU at every call, which a CUDA graph cannot hold.  While
    one is captured, the operators behind them are called with a scale that lies there already.
    """
    needs_gpu(inputs)
    package = imported("triton_sigmoid")
    case, lengths = inputs.case, inputs.lengths
    scale = torch.tensor(case.head_dimension**-0.5, device=lengths.device)
    bias = -torch.log(lengths.float())
    if case.uneven:
        padded = imported("triton_sigmoid.sigmoid_triton_padded").sigmoid_attn_padded_fwd_op

        def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if torch.cuda.is_current_stream_capturing():
                return padded(q, k, v, lengths, lengths, bias, None, scale, False)
            return package.sigmoid_attention_padded(q, k, v, seq_lens_k=lengths, seq_lens_q=lengths)

        return kernel
    dense = imported("triton_sigmoid.sigmoid_triton_dense").sigmoid_attention_fwd_op

    def dense_kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            return dense(q, k, v, bias, None, scale, False)
        return package.sigmoid_attention(q, k, v)

    return dense_kernel


def flash_sigmoid(inputs: Inputs) -> Kernel:
    """FlashSigmoid (Ramapuram et al.), from the library that an environment variable names."""
    needs_gpu(inputs)
    case, path = inputs.case, os.environ.get(flash.VARIABLE)
    if case.uneven:
        raise Unavailable("takes no padding")
    if case.head_dimension not in (64, 128):
        raise Unavailable("is built for head dimensions 64 and 128")
    if not path:
        raise Unavailable(f"{flash.VARIABLE} names no library (scsigmoid build-flash-sigmoid)")
    try:
        library = flash.load(path)
    except OSError as error:
        raise Unavailable(f"{flash.VARIABLE}: {error}") from None
    bias = -math.log(case.length)
    return lambda q, k, v: flash.attention(q, k, v, bias, library)
