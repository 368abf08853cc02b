"""The order of work of the Hopper kernels: one list of tiles, longest first.

A tile is a block of rows of one head of one sequence: of queries forward, of keys backward.  All
tiles of a sequence cost the same, in proportion to its columns, so sequences are ranked by their
number of columns.  Programs take tiles from the list's front as they become free, through a
counter in global memory; the short tiles at its end even out when programs finish.  Tiles of one
head stand together, so that its keys and values are read from the second-level cache.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from scsigmoid.attention import ragged
from scsigmoid.attention.compiled import launch

#: int32 words of an entry, and of the header (counter, number of tiles) before the first entry.
WORDS = 8
#: Rows of the smallest piece of a tile: what one group of warps takes.
PIECE = 64

_SCAN = 256
_ENTRIES = 64


@triton.jit
def _columns_of(STARTS, ENDS, sequence, inside):
    first = tl.load(STARTS + sequence, mask=inside, other=0)
    return tl.load(ENDS + sequence, mask=inside, other=0) - first


_POINTERS = ["ROW_STARTS", "ROW_ENDS", "COLUMN_STARTS", "COLUMN_ENDS", "BIAS", "SCHEDULE"]


@triton.jit(do_not_specialize=["sequences", "programs"], do_not_specialize_on_alignment=_POINTERS)
def schedule_kernel(
    ROW_STARTS,
    ROW_ENDS,
    COLUMN_STARTS,
    COLUMN_ENDS,
    BIAS,
    SCHEDULE,
    sequences,
    programs,
    factor,
    PIECES: tl.constexpr,
    COLUMN_BLOCK: tl.constexpr,
    KEYS_ARE_ROWS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    WRAP: tl.constexpr,
    SCAN: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """List the tiles of one head of one sequence.  Grid: (sequences, heads).

    ``WRAP`` is :data:`ragged.WRAP`.  An entry's words: end of the sequence's rows; 2^30 - rows +
    the tile's first row (its ragged coordinate); end of the columns; 2^30 - columns; blocks of
    columns, at least 1; head; bits of the float32 bias times ``factor``; pieces of 64 rows, at most
    ``PIECES``.
    """
    sequence = tl.program_id(0)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    row_end = tl.load(ROW_ENDS + sequence)
    rows = row_end - tl.load(ROW_STARTS + sequence)
    column_end = tl.load(COLUMN_ENDS + sequence)
    columns = column_end - tl.load(COLUMN_STARTS + sequence)

    before = 0
    total = 0
    for start in range(0, sequences, SCAN):
        other = start + tl.arange(0, SCAN)
        inside = other < sequences
        other_rows = _columns_of(ROW_STARTS, ROW_ENDS, other, inside)
        other_columns = _columns_of(COLUMN_STARTS, COLUMN_ENDS, other, inside)
        other_tiles = tl.cdiv(tl.cdiv(other_rows, 64), PIECES)
        longer = (other_columns > columns) | ((other_columns == columns) & (other < sequence))
        before += tl.sum(tl.where(longer, other_tiles, 0))
        total += tl.sum(other_tiles)
    if (sequence == 0) & (head == 0):
        # The first tile of each program is its own number; the counter gives out the others.
        tl.store(SCHEDULE, programs)
        tl.store(SCHEDULE + 1, total * heads)

    keys = rows if KEYS_ARE_ROWS else columns
    if HAS_BIAS:
        bias = tl.load(BIAS + sequence).to(tl.float32)
    else:
        bias = -tl.log(tl.maximum(keys, 1).to(tl.float32))
    summand = (bias * factor).to(tl.int32, bitcast=True)
    pieces = tl.cdiv(rows, 64)
    tiles = tl.cdiv(pieces, PIECES)
    blocks = tl.maximum(tl.cdiv(columns, COLUMN_BLOCK), 1)
    first_entry = SCHEDULE + 8 + (before * heads + head * tiles).to(tl.int64) * 8
    for start in range(0, tiles, ENTRIES):
        tile = start + tl.arange(0, ENTRIES)
        inside = tile < tiles
        if KEYS_ARE_ROWS:
            # The backward kernel's groups of warps share their work, so its tiles are full.
            piece = tile * PIECES
            count = tl.minimum(pieces - piece, PIECES)
        else:
            # Pieces are dealt evenly: 9 pieces are tiles of 3, 3, 3, not of 4, 4, 1.
            piece = tile * pieces // tl.maximum(tiles, 1)
            count = (tile + 1) * pieces // tl.maximum(tiles, 1) - piece
        entry = first_entry + tile * 8
        tl.store(entry, row_end, mask=inside)
        tl.store(entry + 1, piece * 64 - rows + WRAP, mask=inside)
        tl.store(entry + 2, column_end, mask=inside)
        tl.store(entry + 3, WRAP - columns, mask=inside)
        tl.store(entry + 4, blocks, mask=inside)
        tl.store(entry + 5, head, mask=inside)
        tl.store(entry + 6, summand, mask=inside)
        tl.store(entry + 7, count, mask=inside)


def schedule(
    rows: tuple[Tensor, Tensor],
    columns: tuple[Tensor, Tensor],
    bias: Tensor | None,
    *,
    tokens: int,
    heads: int,
    programs: int,
    pieces: int,
    column_block: int,
    keys_are_rows: bool,
    factor: float,
) -> tuple[Tensor, int]:
    """The list of tiles on the device, and how many programs to launch.

    Args:
        rows, columns: starts and ends of each sequence's rows and columns, (sequences,) int32.
        bias: (sequences,) float32, or None for -log(number of keys).
        tokens: rows of the whole batch, an upper bound of those of the sequences.
        heads: heads.
        programs: programs that fit on the device at once.
        pieces: most pieces of 64 rows in a tile.
        column_block: columns that a step of a tile's loop takes.
        keys_are_rows: whether rows are keys (backward) or queries (forward).
        factor: what the activation multiplies the bias with.
    """
    sequences = len(rows[0])
    most = heads * (sequences + tokens // (PIECE * pieces))
    programs = max(1, min(programs, most))
    table = torch.empty((most + 1) * WORDS, dtype=torch.int32, device=rows[0].device)
    launch(
        schedule_kernel,
        table.get_device(),
        (sequences, heads),
        (*rows, *columns, bias, table, sequences, programs, factor),
        {
            "PIECES": pieces,
            "COLUMN_BLOCK": column_block,
            "KEYS_ARE_ROWS": keys_are_rows,
            "HAS_BIAS": bias is not None,
            "WRAP": ragged.WRAP,
            "SCAN": _SCAN,
            "ENTRIES": _ENTRIES,
        },
        key=None,
        num_warps=1,
    )
    return table, programs
