"""Launches of the Hopper kernels: tiles, descriptors, the float32 sum of dQ."""

import functools
import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from scsigmoid.attention import triton_launch
from scsigmoid.attention.hopper_backward import backward_kernel
from scsigmoid.attention.hopper_forward import forward_kernel
from scsigmoid.attention.hopper_gluon import descriptor
from scsigmoid.attention.launching import WRAP, allocate_output, is_describable, launch
from scsigmoid.attention.problem import Problem
from scsigmoid.attention.schedule import PIECE, schedule


@dataclass(frozen=True)
class Forward:
    """Blocks of the forward kernel.

    Attributes:
        pieces: number of consuming groups of warps, each with 64 query rows.
        block_k: keys of a block.
        stages: blocks of keys and of values in flight.
        registers: registers of a thread of the second and later groups.
        most_registers: registers per thread for the compiler, 65,536 / threads of the program.
    """

    pieces: int
    block_k: int
    stages: int
    registers: int
    most_registers: int


@dataclass(frozen=True)
class Backward:
    """Blocks of the backward kernel: queries of a block, and blocks in flight."""

    block_q: int
    stages: int


#: By head dimension. docs/kernel-log.md contains the measurements.
FORWARD = {
    64: Forward(4, 64, 4, 112, 96),
    128: Forward(3, 64, 3, 160, 128),
}
BACKWARD = {
    64: Backward(128, 2),
    128: Backward(64, 2),
}
#: Minimum number of keys of the longest sequence for ``vote`` as the exact sigmoid.
VOTE_FROM = 512
#: Pieces of 64 keys of a tile of the backward kernel.
KEY_PIECES = 2
#: Two consumers and a producer, each rounded up to four warps: 65,536 registers / 384 threads.
BACKWARD_REGISTERS = 168

_ELEMENTS = 1024


@functools.cache
def _count_multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _activation(problem: Problem, dtype: torch.dtype) -> tuple[str, float]:
    """Return the form of the sigmoid, and the factor of its argument."""
    if not problem.accurate:
        return "tanh", 0.5
    # With few keys, another bias or a negative scale `vote` would often compute tanh.
    vote = problem.longest_k >= VOTE_FROM and problem.bias is None and problem.scale > 0
    form = "vote" if vote and dtype == torch.bfloat16 else "pair"
    return form, -math.log2(math.e)


def _make_describable(tensor: Tensor) -> Tensor:
    """Return the tensor, copied only if TMA does not support it."""
    if is_describable(tensor):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _can_launch(*tensors: Tensor) -> bool:
    """Return True if no tensor is empty and descriptors can address all tokens."""
    return all(0 < tensor.shape[0] <= WRAP and tensor.numel() for tensor in tensors)


def forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
    """Launch the forward pass. Arguments are those of :func:`triton_launch.forward`."""
    if not _can_launch(q, k, v) or not problem.sequences:
        return triton_launch.forward(q, k, v, problem)
    cut = FORWARD[q.shape[-1]]
    form, factor = _activation(problem, q.dtype)
    q, k, v = (_make_describable(x) for x in (q, k, v))
    out = allocate_output(q, problem.starts_q, problem.ends_q, problem.has_gaps)
    table, programs = schedule(
        (problem.starts_q, problem.ends_q),
        (problem.starts_k, problem.ends_k),
        problem.bias,
        tokens=q.shape[0],
        heads=q.shape[1],
        programs=_count_multiprocessors(q.device),
        pieces=cut.pieces,
        column_block=cut.block_k,
        keys_are_rows=False,
        factor=factor,
    )
    launch(
        forward_kernel,
        q.get_device(),
        (programs, 1),
        (
            descriptor(q, PIECE, q.shape[-1]),
            descriptor(k, cut.block_k, q.shape[-1]),
            descriptor(v, cut.block_k, q.shape[-1]),
            descriptor(out, PIECE, q.shape[-1]),
            table,
            factor * problem.scale,
        ),
        {
            "PIECES": cut.pieces,
            "BLOCK_K": cut.block_k,
            "STAGES": cut.stages,
            "FORM": form,
            "REGISTERS": cut.registers,
            "num_warps": 4,
        },
        key=(q.dtype, q.shape[-1]),
        maxnreg=cut.most_registers,
    )
    return out


@triton.jit(do_not_specialize=["tokens"])
def scaled_kernel(
    SUM, OUT, scale, tokens, WIDTH: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr
):
    """OUT = SUM * scale, in the dtype of OUT; rows of WIDTH, in OUT STRIDE apart.

    Columns of SUM are permuted within each 32, as the backward kernel stages them.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # The mask is the same for neighboring elements, so they are loaded and stored together.
    row = at // WIDTH
    inside = row < tokens
    column = at % 32
    staged = at - column + ((column >> 1) & 3) * 8 + (column >> 3) * 2 + (column & 1)
    total = tl.load(SUM + staged, mask=inside)
    to = OUT + row * STRIDE + at % WIDTH
    tl.store(to, (total * scale).to(OUT.dtype.element_ty), mask=inside)


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    problem: Problem,
    bias_grad: bool,
    into: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Launch the backward pass. Arguments and results are those of :func:`triton_launch.backward`.

    The fused kernel adds to dQ in varying order. The portable kernels compute the gradients if each
    run must compute the same bits, and if the bias has a gradient.
    """
    if problem.deterministic or bias_grad or not _can_launch(q, k) or not problem.sequences:
        return triton_launch.backward(grad, q, k, v, problem, bias_grad, into)
    cut = BACKWARD[q.shape[-1]]
    form, factor = _activation(problem, q.dtype)
    grad, q, k, v = (_make_describable(x) for x in (grad, q, k, v))
    total = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    if into is None:
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        dk, dv = (
            allocate_output(x, problem.starts_k, problem.ends_k, problem.has_gaps) for x in (k, v)
        )
    else:
        dq, dk, dv = into
    table, programs = schedule(
        (problem.starts_k, problem.ends_k),
        (problem.starts_q, problem.ends_q),
        problem.bias,
        tokens=k.shape[0],
        heads=q.shape[1],
        programs=_count_multiprocessors(q.device),
        pieces=KEY_PIECES,
        column_block=cut.block_q,
        keys_are_rows=True,
        factor=factor,
    )
    launch(
        backward_kernel,
        q.get_device(),
        (programs, 1),
        (
            descriptor(q, cut.block_q, q.shape[-1]),
            descriptor(grad, cut.block_q, q.shape[-1]),
            descriptor(k, PIECE, q.shape[-1]),
            descriptor(v, PIECE, q.shape[-1]),
            descriptor(total, 64, 64),
            descriptor(dk, PIECE, q.shape[-1]),
            descriptor(dv, PIECE, q.shape[-1]),
            table,
            factor * problem.scale,
            problem.scale,
        ),
        {
            "BLOCK_Q": cut.block_q,
            "STAGES": cut.stages,
            "FORM": form,
            "num_warps": 4,
        },
        key=(q.dtype, q.shape[-1]),
        maxnreg=BACKWARD_REGISTERS,
    )
    launch(
        scaled_kernel,
        q.get_device(),
        (triton.cdiv(dq.numel(), _ELEMENTS), 1),
        (total, dq, problem.scale, dq.shape[0]),
        {"WIDTH": dq.shape[1] * dq.shape[2], "STRIDE": dq.stride(0), "BLOCK": _ELEMENTS},
        key=q.dtype,
    )
    return dq, dk, dv, None
