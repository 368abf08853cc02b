"""What the Triton kernels share: which tile is whose, loads and stores, the sigmoid."""

import triton
import triton.language as tl

from scsigmoid.attention import launching

#: :data:`launching.WRAP` as a constant of the kernels.
WRAP = tl.constexpr(launching.WRAP)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def assignment(TILES, most, heads, blocks, SCHEDULED: tl.constexpr):
    """This program's sequence and which of the sequence's programs it is.

    Programs of one sequence and head lie side by side, so that its keys and values stay in the L2
    cache.  The sequence is -1 for a program too many.

    Args:
        TILES, most: table of :func:`scsigmoid.attention.schedule.list_tiles` and its length, where
            SCHEDULED; else every sequence has ``blocks`` tiles per head.
    """
    program = tl.program_id(0)
    if SCHEDULED:
        sequence = tl.load(TILES + program // heads)
        before = tl.load(TILES + most + tl.maximum(sequence, 0)) * heads
        within = program - before
    else:
        sequence = program // (blocks * heads)
        within = program % (blocks * heads)
    return sequence, within


@triton.jit
def bias_of(BIAS, sequence, keys, HAS_BIAS: tl.constexpr):
    """The sequence's bias: given, or -log(number of keys)."""
    if HAS_BIAS:
        bias = tl.load(BIAS + sequence).to(tl.float32)
    else:
        bias = -tl.log(tl.maximum(keys, 1).to(tl.float32))
    return bias


@triton.jit
def fold(scale, bias, SIGMOID: tl.constexpr):
    """Factor and summand that take a score to the argument of :func:`sigmoid`."""
    if SIGMOID == "tanh":
        factor = 0.5 * scale
        summand = 0.5 * bias
    else:
        factor = -scale * LOG2_E
        summand = -bias * LOG2_E
    return factor, summand


@triton.jit
def sigmoid(scores, factor, summand, SIGMOID: tl.constexpr):
    """sigmoid(score * scale + bias) of float32 scores, by one of three ways.

    - ``tanh``: 0.5 + 0.5 tanh(x) by one approximate instruction; error near 1e-6 absolute.
    - ``pair``: 1 / (1 + 2^x), two of them by one reciprocal, 1 / a = b (1 / a b).  Correct to a
      relative 1e-6.  2^x is held below 2^60, so that the product of two stays in range; weights
      below 2^-60 become 2^-60.  NaN stays NaN.
    - ``exact``: 1 / (1 + 2^x) by float32 division.
    """
    x = scores * factor + summand
    if SIGMOID == "tanh":
        tanh = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
        weights = 0.5 * tanh + 0.5
    elif SIGMOID == "pair":
        weights = tl.inline_asm_elementwise(
            """
            {
            .reg .f32 a, b, r;
            min.NaN.f32 a, $2, 0f42700000;
            min.NaN.f32 b, $3, 0f42700000;
            ex2.approx.ftz.f32 a, a;
            ex2.approx.ftz.f32 b, b;
            add.f32 a, a, 0f3F800000;
            add.f32 b, b, 0f3F800000;
            mul.f32 r, a, b;
            rcp.approx.ftz.f32 r, r;
            mul.f32 $0, r, b;
            mul.f32 $1, r, a;
            }
            """,
            "=&f,=&f,f,f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=2,
        )
    else:
        weights = 1.0 / (1.0 + tl.exp2(x))
    return weights


@triton.jit
def corner(POINTER, first, row_stride, head, head_stride):
    """Pointer to one head of token ``first``.

    Its offset needs 64 bits: a batch may hold more than 2^31 elements.  Offsets inside a tile do
    not, and a tile's addresses are one pointer and 32-bit offsets, which saves registers.
    """
    return POINTER + first.to(tl.int64) * row_stride + head.to(tl.int64) * head_stride


@triton.jit
def offsets(rows, row_stride, columns):
    """Offsets of a tile's elements from its corner."""
    return rows[:, None] * row_stride + columns[None, :]


@triton.jit
def load(pointers, rows, left, columns, D: tl.constexpr, TAIL: tl.constexpr, WIDE: tl.constexpr):
    """A tile, zero past the ``left`` rows (TAIL) and past the head dimension (WIDE)."""
    if TAIL:
        if WIDE:
            mask = (rows < left)[:, None] & (columns < D)[None, :]
        else:
            mask = (rows < left)[:, None]
        tile = tl.load(pointers, mask=mask, other=0.0)
    elif WIDE:
        tile = tl.load(pointers, mask=(columns < D)[None, :], other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def store(pointers, tile, rows, left, columns, D: tl.constexpr):
    """Write the part of a tile that lies inside the sequence."""
    mask = (rows < left)[:, None] & (columns < D)[None, :]
    tl.store(pointers, tile.to(pointers.dtype.element_ty), mask=mask)


@triton.jit
def tile_at(DESCRIPTOR, end, rows, row, head, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    """A tile of one head of one sequence, copied whole by the hardware.

    What lies past the sequence or the head dimension is zero and is not read from memory; see
    :mod:`scsigmoid.attention.launching`.
    """
    tile = DESCRIPTOR.load([WRAP, end, WRAP - rows + row, head, 0])
    return tl.reshape(tile, [BLOCK, BLOCK_D])
