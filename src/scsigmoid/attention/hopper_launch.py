"""Launches of the Hopper kernels: lists of tiles, descriptors, and the float32 sum of dQ."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from scsigmoid.attention import triton_launch
from scsigmoid.attention.hopper_backward import backward_kernel
from scsigmoid.attention.hopper_forward import forward_kernel
from scsigmoid.attention.hopper_gluon import make_descriptor
from scsigmoid.attention.launching import WRAP, allocate_output, is_describable, launch
from scsigmoid.attention.problem import Problem
from scsigmoid.attention.schedule import PIECE_ROWS, schedule

#: Compile-time arguments of the forward kernel by the columns of a tile, which are 64 or 128.
#: ``PIECES``: consumer groups, with 64 query rows each. ``BLOCK_K``: keys of a block. ``STAGES``:
#: blocks of keys and of values in flight. ``REGISTERS``: registers per thread of all consumer
#: groups but the first. docs/kernel-log.md contains the measurements.
FORWARD = {
    64: {"PIECES": 4, "BLOCK_K": 64, "STAGES": 4, "REGISTERS": 112},
    128: {"PIECES": 3, "BLOCK_K": 64, "STAGES": 3, "REGISTERS": 160},
}
#: The same for the backward kernel: queries of a block, blocks in flight.
BACKWARD = {64: {"BLOCK_Q": 128, "STAGES": 2}, 128: {"BLOCK_Q": 64, "STAGES": 2}}
#: Maximum number of registers per thread for the compiler: 65,536 / threads of the program, rounded
#: down to a multiple of 8. A program has 128 threads per consumer group and 128 for the producer.
FORWARD_REGISTERS = {64: 96, 128: 128}  # 4 and 3 consumer groups
BACKWARD_REGISTERS = 168  # 2 consumer groups
#: Minimum number of keys of the longest sequence for which the exact sigmoid has form ``vote``.
VOTE_FROM = 512
#: Number of pieces, of 64 keys each, in a tile of the backward kernel.
KEY_PIECES = 2

_ELEMENTS = 1024  # elements per program of `scale_dq_kernel`


def _width(dimension: int) -> int:
    """Return the columns of a tile. Columns from the head dimension on are 0 and are not stored."""
    return 64 if dimension <= 64 else 128


def _choose_form(problem: Problem, dtype: torch.dtype) -> tuple[str, float]:
    """Return the form of the sigmoid, and the factor of scores and bias in its argument."""
    if not problem.accurate:
        return "tanh", 0.5
    # With few keys, a user's bias or a negative scale, `vote` would often compute tanh.
    is_fast = problem.longest_k >= VOTE_FROM and problem.bias is None and problem.scale > 0
    form = "vote" if is_fast and dtype == torch.bfloat16 else "pair"
    return form, -math.log2(math.e)


def _make_describable(tensor: Tensor) -> Tensor:
    """Return the tensor, or a contiguous copy if TMA does not support its strides or address."""
    return tensor if is_describable(tensor) else tensor.clone(memory_format=torch.contiguous_format)


def _can_launch(q: Tensor, k: Tensor, problem: Problem) -> bool:
    """Return True if no tensor is empty and descriptors can address all tokens."""
    queries, keys = q.shape[0], k.shape[0]
    return problem.sequences > 0 and q.shape[1] > 0 and 0 < queries <= WRAP and 0 < keys <= WRAP


def forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
    """Launch the forward pass. Arguments are as in :func:`triton_launch.forward`."""
    if not _can_launch(q, k, problem):
        return triton_launch.forward(q, k, v, problem)
    tokens, heads, dimension = q.shape
    width = _width(dimension)
    constants = FORWARD[width]
    block_k = constants["BLOCK_K"]
    form, factor = _choose_form(problem, q.dtype)
    q, k, v = _make_describable(q), _make_describable(k), _make_describable(v)
    out = allocate_output(q, problem)
    table, programs = schedule(problem, tokens, heads, constants["PIECES"], block_k, factor)
    launch(
        forward_kernel,
        q.get_device(),
        (programs, 1),
        (table, factor * problem.scale),
        {**constants, "FORM": form, "num_warps": 4},
        key=(q.dtype, heads, dimension),
        tiles=(
            (q, PIECE_ROWS, width),
            (k, block_k, width),
            (v, block_k, width),
            (out, PIECE_ROWS, width),
        ),
        make_descriptor=make_descriptor,
        maxnreg=FORWARD_REGISTERS[width],
    )
    return out


@triton.jit(do_not_specialize=["tokens"])
def scale_dq_kernel(
    SUM, OUT, scale, tokens, WIDTH: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr
):
    """Write SUM * scale to OUT. Rows have WIDTH elements and start STRIDE elements apart in OUT.

    The columns of SUM are permuted in groups of 32 (:func:`hopper_backward._add_dq`), in OUT not.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = at // WIDTH
    # WIDTH is a multiple of 32, so the mask is equal for neighboring elements, and loads and stores
    # are vectorized.
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
    key_bias_grad: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Launch the backward pass. Arguments and results are as in :func:`triton_launch.backward`.

    The Triton kernels compute deterministic gradients and the gradient of the bias.
    """
    if problem.deterministic or bias_grad or not _can_launch(q, k, problem):
        return triton_launch.backward(grad, q, k, v, problem, bias_grad, into, key_bias_grad)
    _, heads, dimension = q.shape
    width = _width(dimension)
    constants = BACKWARD[width]
    block_q = constants["BLOCK_Q"]
    form, factor = _choose_form(problem, q.dtype)
    grad, q = _make_describable(grad), _make_describable(q)
    k, v = _make_describable(k), _make_describable(v)
    dq_sum = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    if into is None:
        # `scale_dq_kernel` writes all tokens of dQ, so only dK and dV need zeros in gaps.
        dq = torch.empty_like(q, memory_format=torch.contiguous_format)
        dk = allocate_output(k, problem, keys=True)
        dv = allocate_output(v, problem, keys=True)
    else:
        dq, dk, dv = into
    table, programs = schedule(
        problem, k.shape[0], heads, KEY_PIECES, block_q, factor, keys_are_rows=True
    )
    launch(
        backward_kernel,
        q.get_device(),
        (programs, 1),
        (table, factor * problem.scale, problem.scale),
        {**constants, "FORM": form, "num_warps": 4},
        key=(q.dtype, heads, dimension),
        tiles=(
            (q, block_q, width),
            (grad, block_q, width),
            (k, PIECE_ROWS, width),
            (v, PIECE_ROWS, width),
            (dq_sum, 64, 64),  # half of a block
            (dk, PIECE_ROWS, width),
            (dv, PIECE_ROWS, width),
        ),
        make_descriptor=make_descriptor,
        maxnreg=BACKWARD_REGISTERS,
    )
    launch(
        scale_dq_kernel,
        q.get_device(),
        (-(-dq.numel() // _ELEMENTS), 1),
        (dq_sum, dq, problem.scale, dq.shape[0]),
        {"WIDTH": heads * dimension, "STRIDE": dq.stride(0), "BLOCK": _ELEMENTS},
        key=q.dtype,
    )
    return dq, dk, dv, None, None
