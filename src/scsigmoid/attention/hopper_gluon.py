"""Shared parts of the Hopper kernels: Gluon, ragged descriptors, barrier rings, the sigmoid.

Gluon is the experimental lower level of Triton. Only this module uses private parts of Gluon:
``warpgroup_mma_init``, reinterpretation of shared memory, the builder's asynchronous reduction with
the decorator ``builtin``, and the attributes of a descriptor. The first three have no public
equivalent. Any release may change these parts, see :mod:`scsigmoid.attention.selfcheck`.
"""

import functools
from typing import Any

import torch
from torch import Tensor
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import (  # noqa: F401, for the kernels
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from scsigmoid.attention import launching
from scsigmoid.attention.triton_tiles import PAIR

#: :data:`scsigmoid.attention.launching.WRAP` as a constant of the kernels.
WRAP = gl.constexpr(launching.WRAP)

# Triton 3.6 has only the long names with `copy`, triton 3.9 only the short names.
if hasattr(tma, "async_load"):
    tma_load, tma_store = tma.async_load, tma.async_store
else:
    tma_load, tma_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global

_GLUON_DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}


@functools.cache
def _layout(rows: int, columns: int, dtype: torch.dtype) -> Any:
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, 1, columns], _GLUON_DTYPES[dtype])


def make_descriptor(tensor: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Create the descriptor of a tensor and its tiles (:func:`launching.describe`)."""
    # Skip the constructor, which spends most of its time on checks.
    result = object.__new__(TensorDescriptor)
    result.base = tensor
    result.shape, result.strides, result.block_shape = launching.describe(tensor, rows, columns)
    result.layout = _layout(rows, columns, tensor.dtype)
    return result


@builtin
def tma_add(destination, coordinates, source, _semantic=None):
    """Add a tile of shared memory to global memory asynchronously.

    ``coordinates`` are the five of a ragged descriptor (:mod:`launching`).
    """
    coordinates = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    _semantic.builder.create_async_tma_reduce(
        ir.DESCRIPTOR_REDUCE_KIND.ADD, destination.handle, coordinates, source.handle
    )


@builtin
def view_tile(memory, descriptor, _semantic=None):
    """View a tile of shared memory (rows, columns) with the five dimensions of a descriptor."""
    shape = list(descriptor.block_shape)
    return _semantic.memdesc_reinterpret(memory, descriptor.dtype, shape, descriptor.layout)


@gluon.constexpr_function
def accumulator_layout(columns):
    """Return the layout of a float32 accumulator of 64 rows in the registers of four warps."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16]
    )


@gluon.jit
def load_tile(descriptor, end, row, head, barrier, memory):
    """Start to copy the tile at ragged coordinate ``row`` of a sequence and head to ``memory``."""
    coordinates = [WRAP, end, row, head, 0]
    tma_load(descriptor, coordinates, barrier, view_tile(memory, descriptor))


@gluon.jit
def store_tile(tile, staged, descriptor, end, row, head):
    """Write a tile to global memory asynchronously, from the buffer ``staged`` once it is free."""
    tma.store_wait(0)
    staged.store(tile.to(descriptor.dtype))
    fence_async_shared()
    tma_store(descriptor, [WRAP, end, row, head, 0], view_tile(staged, descriptor))


@gluon.jit
def start_product(left, right, zeros):
    """Start the matrix product of ``left`` and the transpose of ``right``.

    ``zeros`` sets the shape and layout of the result. Its values are not used.
    """
    return warpgroup_mma(left, right.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def allocate_barriers(SIZE: gl.constexpr, COUNT: gl.constexpr):
    """Allocate ``SIZE`` barriers that each wait for ``COUNT`` arrivals.

    ``full`` barriers say that a slot contains data, ``empty`` barriers that all consumers have read
    them. A wait for phase 1 of a new barrier returns at once. Producers start with this phase,
    because all slots are empty at first. Consumers start with phase 0.
    """
    barriers = gl.allocate_shared_memory(gl.int64, [SIZE, 1], mbarrier.MBarrierLayout())
    for index in gl.static_range(SIZE):
        mbarrier.init(barriers.index(index), count=COUNT)
    return barriers


@gluon.jit
def advance(index, phase, SIZE: gl.constexpr):
    """Return the next index and phase in a ring. The phase flips when the index returns to 0."""
    index += 1
    at_end = index == SIZE
    return gl.where(at_end, 0, index), gl.where(at_end, phase ^ 1, phase)


def _vote(rounded: bool) -> str:
    """Return the PTX of ``vote`` (:func:`sigmoid`) for 32 scores per thread, 16 x 64 per warp.

    Operands: the results (16 pairs of bfloat16 or 32 float32), then 32 of each of ``arguments``.
    """
    outputs = 16 if rounded else 32
    scores = [f"${outputs + i}" for i in range(32)]
    # All other arguments are equal for all scores, so only their first operands are used.
    tanh_factor, tanh_summand, exp_factor, exp_summand, limit = (
        f"${outputs + 32 * i}" for i in range(1, 6)
    )
    # TO = e - e^2 with e = 2^(exp_factor X + exp_summand), for a score X and its result TO.
    series = (
        f"fma.rn.f32 TO, X, {exp_factor}, {exp_summand}; ex2.approx.ftz.f32 TO, TO;"
        "neg.ftz.f32 n, TO; fma.rn.ftz.f32 TO, n, TO, TO;"
    )
    # TO = 0.5 + 0.5 tanh(tanh_factor X + tanh_summand). 0f3F000000 is 0.5.
    tanh = (
        f"fma.rn.f32 TO, X, {tanh_factor}, {tanh_summand}; tanh.approx.f32 TO, TO;"
        "fma.rn.f32 TO, TO, 0f3F000000, 0f3F000000;"
    )

    def largest(to: str, first: str, *others: str) -> str:
        # max.s32 needs an integer register, i.
        chain = (f"mov.b32 i, {x}; max.s32 {to}, {to}, i;" for x in others)
        return f"mov.b32 {to}, {first}; {''.join(chain)}"

    def weights(formula: str) -> str:
        text = ""
        for i in range(0, 32, 2):
            for score, register in zip(scores[i : i + 2], "tu", strict=True):
                text += formula.replace("TO", register).replace("X", score)
            pair = f"cvt.rn.bf16x2.f32 ${i // 2}, u, t;"
            text += pair if rounded else f"mov.f32 ${i}, t; mov.f32 ${i + 1}, u;"
        return text

    # ptxas combines the two chains of `largest` into maxima of three operands.
    return f"""{{ .reg .pred p; .reg .f32 t, u, n; .reg .b32 m, m2, i;
        {largest("m", *scores[:16])} {largest("m2", *scores[16:])} max.s32 m, m, m2;
        mov.b32 i, {limit}; setp.ge.s32 p, m, i;
        vote.sync.any.pred p, p, 0xFFFFFFFF; @p bra.uni TANH;
        {weights(series)} bra.uni END;
        TANH: {weights(tanh)}
        END: }}"""


_VOTE = gl.constexpr(_vote(rounded=False))
_VOTE_ROUNDED = gl.constexpr(_vote(rounded=True))
_VOTE_OPERANDS = gl.constexpr(",".join(["=&f"] * 32 + ["f"] * 160 + ["r"] * 32))
_VOTE_ROUNDED_OPERANDS = gl.constexpr(",".join(["=&r"] * 16 + ["f"] * 160 + ["r"] * 32))


@gluon.jit
def sigmoid(scores, factor, summand, FORM: gl.constexpr, ROUNDED: gl.constexpr = False):
    """Compute the sigmoid of scores in the form ``FORM``, with x = score * factor + summand.

    - ``tanh`` and ``pair``: see :func:`triton_tiles.sigmoid`.
    - ``vote``: 1 / (1 + 2^x) with the accuracy of bfloat16, in bfloat16 if ``ROUNDED``. If all
      scores of a warp (16 x 64) have e = 2^-x < 1/64, weights are e - e^2 (relative error 2.4e-4).
      Otherwise tanh computes them. Its error is below the rounding of weights above 1/64, but not
      of small weights in the same 16 x 64 (docs/assumptions.md).

    For ``factor`` < 0, e < 1/64 means score < (6 - summand) / factor. Floats are compared as
    integers, which is correct if this limit is positive. Otherwise the limit becomes the smallest
    integer, which no score is below, and tanh computes all weights.
    """
    x = scores * factor + summand
    if FORM == "tanh":
        weights = gl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
        )
        weights = weights * 0.5 + 0.5
    elif FORM == "vote":
        limit = (6.0 - summand) / factor
        valid = (limit > 0.0) & (factor < 0.0)
        limit = gl.where(valid, limit.to(gl.int32, bitcast=True), -(2**31))
        # 1 / (1 + 2^x) = 0.5 + 0.5 tanh(to_tanh * x) with to_tanh = -log(2) / 2
        to_tanh = -0.34657359028
        arguments = [scores, to_tanh * factor, to_tanh * summand, -factor, -summand, limit]
        weights = gl.inline_asm_elementwise(
            _VOTE_ROUNDED if ROUNDED else _VOTE,
            _VOTE_ROUNDED_OPERANDS if ROUNDED else _VOTE_OPERANDS,
            arguments,
            dtype=gl.bfloat16 if ROUNDED else gl.float32,
            is_pure=True,
            pack=32,
        )
    else:
        gl.static_assert(FORM == "pair")
        weights = gl.inline_asm_elementwise(
            PAIR, "=&f,=&f,f,f", [x], dtype=gl.float32, is_pure=True, pack=2
        )
    return weights


# The producer announces each tile to the consumers in a ring of slots in shared memory, so that it
# can load the next tile while the consumers compute. A slot has eight int32 words.

#: Number of slots of announced tiles.
AHEAD = gl.constexpr(2)
#: Words of a slot: blocks of columns (0: the list has ended), end of the rows, coordinate of the
#: first row, bits of the summand in :func:`sigmoid`, and head (:func:`schedule.schedule_kernel`).
BLOCKS, ROW_END, ROW, SUMMAND, HEAD = (gl.constexpr(number) for number in range(5))
#: Word 5 of the forward kernel: number of pieces.
PIECE_COUNT = gl.constexpr(5)
#: Words 5 and 6 of the backward kernel: end and first coordinate of the columns.
COLUMN_END, COLUMN = gl.constexpr(5), gl.constexpr(6)


@gluon.jit
def take_tile(SCHEDULE):
    """Return the index of the next tile that no program has taken, and take it."""
    return gl.atomic_add(SCHEDULE, 1, sem="relaxed")


@gluon.jit
def read_entry(SCHEDULE, tile):
    """Return the eight words of a tile's entry (:func:`schedule.schedule_kernel`)."""
    at = SCHEDULE + 8 + tile * 8
    return (
        gl.load(at), gl.load(at + 1), gl.load(at + 2), gl.load(at + 3),
        gl.load(at + 4), gl.load(at + 5), gl.load(at + 6), gl.load(at + 7),
    )  # fmt: skip


@gluon.jit
def announce(words, barriers, slot, phase, values):
    """Write the seven words ``values`` to a slot when it is empty. Return the next slot and phase.

    The words are :data:`BLOCKS` to :data:`HEAD` and two words that depend on the kernel.
    """
    full, empty = barriers
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    mbarrier.wait(empty.index(slot), phase)
    for number in gl.static_range(7):
        words.index(slot * 8 + number).store(gl.full([1], values[number], gl.int32, layout))
    mbarrier.arrive(full.index(slot), count=1)
    return advance(slot, phase, AHEAD)


@gluon.jit
def read_word(words, slot, NUMBER: gl.constexpr):
    """Return word ``NUMBER`` (:data:`BLOCKS` etc.) of a slot.

    The maximum converts a tensor of one element to a scalar.
    """
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    return gl.max(words.index(slot * 8 + NUMBER).load(layout), axis=0)
