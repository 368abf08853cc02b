"""Shared parts of the Triton kernels: assignment of tiles, loads and stores, the sigmoid."""

import triton
import triton.language as tl

from scsigmoid.attention import launching

#: :data:`launching.WRAP` as a constant of the kernels.
WRAP = tl.constexpr(launching.WRAP)
LOG2_E = tl.constexpr(1.4426950408889634)
#: PTX of the form ``pair`` of :func:`sigmoid`: 1 / (1 + 2^x) for two elements with one reciprocal.
#: The constants are 60.0 (0f42700000) and 1.0 (0f3F800000).
PAIR = tl.constexpr("""{ .reg .f32 a, b, r;
    min.NaN.f32 a, $2, 0f42700000; min.NaN.f32 b, $3, 0f42700000;
    ex2.approx.ftz.f32 a, a; ex2.approx.ftz.f32 b, b;
    add.f32 a, a, 0f3F800000; add.f32 b, b, 0f3F800000;
    mul.f32 r, a, b; rcp.approx.ftz.f32 r, r;
    mul.f32 $0, r, b; mul.f32 $1, r, a; }""")


@triton.jit
def assignment(TILES, programs, heads, blocks):
    """Return the sequence of this program, and the program's index in the sequence.

    Programs of one sequence and head are consecutive, so that keys and values stay in the L2 cache.
    The sequence is -1 if the program has no work.

    Args:
        TILES: table of :func:`scsigmoid.attention.schedule.list_tiles`, or None if all sequences
            have the same number of tiles.
        programs: number of programs of one head.
        heads: number of heads.
        blocks: tiles per head of every sequence, if TILES is None.
    """
    program = tl.program_id(0)
    if TILES is not None:
        sequence = tl.load(TILES + program // heads)
        first_program = tl.load(TILES + programs + tl.maximum(sequence, 0)) * heads
        within = program - first_program
    else:
        sequence = program // (blocks * heads)
        within = program % (blocks * heads)
    return sequence, within


@triton.jit
def span(STARTS, ENDS, sequence):
    """Return the first token and the number of tokens of a sequence."""
    start = tl.load(STARTS + sequence)
    return start, tl.load(ENDS + sequence) - start


@triton.jit
def locate(STARTS, ENDS, sequence, within, blocks, TILES, BLOCK: tl.constexpr):
    """Return head, index of the block, first row of the block, and the number of rows left.

    ``sequence`` and ``within`` are the results of :func:`assignment`. The rows left are the
    sequence's rows from the first row of the block on: more than BLOCK if more blocks follow, and 0
    or less if the block is past the end.
    """
    start, rows = span(STARTS, ENDS, sequence)
    own_blocks = tl.cdiv(rows, BLOCK) if TILES is not None else blocks
    head = within // own_blocks
    block = within % own_blocks
    return head, block, start + block * BLOCK, rows - block * BLOCK


@triton.jit
def bias_of(BIAS, sequence, keys):
    """Return the bias of the sequence, or -log(number of keys) if BIAS is None."""
    if BIAS is not None:
        bias = tl.load(BIAS + sequence).to(tl.float32)
    else:
        bias = -tl.log(tl.maximum(keys, 1).to(tl.float32))
    return bias


@triton.jit
def fold(scale, bias, SIGMOID: tl.constexpr):
    """Combine scale and bias into ``factor`` and ``summand`` of :func:`sigmoid`."""
    if SIGMOID == "tanh":
        factor = 0.5 * scale
        summand = 0.5 * bias
    else:
        factor = -scale * LOG2_E
        summand = -bias * LOG2_E
    return factor, summand


@triton.jit
def sigmoid(scores, factor, summand, SIGMOID: tl.constexpr):
    """Compute sigmoid(score * scale + bias) of float32 scores, with x = score * factor + summand.

    - ``tanh``: 0.5 + 0.5 tanh(x), one special-function operation. Absolute error at most 4e-6, and
      1.4e-6 for weights below 1/64.
    - ``pair``: 1 / (1 + 2^x), with one reciprocal for two elements: 1 / a = b / (a b). Relative
      error about 1e-6. 2^x is limited to 2^60, so that the product of two is finite. Weights below
      2^-60 become 2^-60. NaN stays NaN.
    - ``division``: 1 / (1 + 2^x) by float32 division.
    """
    x = scores * factor + summand
    if SIGMOID == "tanh":
        tanh = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
        weights = 0.5 * tanh + 0.5
    elif SIGMOID == "pair":
        weights = tl.inline_asm_elementwise(
            PAIR, "=&f,=&f,f,f", [x], dtype=tl.float32, is_pure=True, pack=2
        )
    else:
        weights = 1.0 / (1.0 + tl.exp2(x))
    return weights


@triton.jit
def corner(POINTER, first, row_stride, head, head_stride):
    """Return a pointer to one head of token ``first``.

    The offset in the tensor has 64 bits, because a batch may contain more than 2^31 elements.
    Offsets in a tile have 32 bits, which saves registers.
    """
    return POINTER + first.to(tl.int64) * row_stride + head.to(tl.int64) * head_stride


@triton.jit
def offsets(rows, row_stride, columns):
    """Return the offsets of the elements of a tile from its corner."""
    return rows[:, None] * row_stride + columns[None, :]


@triton.jit
def load(pointers, rows, rows_left, columns, D: tl.constexpr, TAIL: tl.constexpr):
    """Load a tile. Columns from D on are 0. With TAIL, rows from ``rows_left`` on are 0."""
    PADDED: tl.constexpr = columns.shape[0] != D
    if TAIL:
        if PADDED:
            mask = (rows < rows_left)[:, None] & (columns < D)[None, :]
        else:
            mask = (rows < rows_left)[:, None]
        tile = tl.load(pointers, mask=mask, other=0.0)
    elif PADDED:
        tile = tl.load(pointers, mask=(columns < D)[None, :], other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def store(pointers, tile, rows, rows_left, columns, D: tl.constexpr):
    """Store the part of a tile that is in the sequence."""
    mask = (rows < rows_left)[:, None] & (columns < D)[None, :]
    tl.store(pointers, tile.to(pointers.dtype.element_ty), mask=mask)


@triton.jit
def tile_at(DESCRIPTOR, end, length, row, head, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    """Load a tile of one head of a sequence of ``length`` tokens by a descriptor.

    Elements past the sequence or the head dimension are 0 and are not read from memory. See
    :mod:`scsigmoid.attention.launching`.
    """
    # Not `WRAP - length`: the interpreter of triton 3.9 fails if a constant is first.
    tile = DESCRIPTOR.load([WRAP, end, -length + WRAP + row, head, 0])
    return tl.reshape(tile, [BLOCK, BLOCK_D])
