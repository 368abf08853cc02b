"""Order of the tiles of a jagged batch: longest sequences first.

A tile is a block of rows of one sequence and head, computed by one program. If every sequence had
as many programs as the longest sequence, half of the programs would have no work in a typical
batch. Long sequences at the end of the batch would keep a few processors busy while the others
wait. Therefore a small kernel lists the tiles on the device. The host does not wait for this list.

There are two kinds of lists. The Triton kernels start one program for each tile
(:func:`assign_tiles`). The Hopper kernels start at most one program per multiprocessor. Each
program takes the next tile from the list when it is free (:func:`schedule`).
"""

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from scsigmoid.attention.launching import FUSED, launch
from scsigmoid.attention.problem import Problem
from scsigmoid.attention.triton_tiles import WRAP, bias_of

#: Numbers of sequences and of tiles that a program of ``list_tiles_kernel`` processes at once.
_CHUNK = tl.constexpr(32)


class Tiling(NamedTuple):
    """Division of the rows of a kernel, which are queries or keys, into tiles.

    Attributes:
        tiles_per_sequence: tiles of one head of the longest sequence.
        programs: programs of one head, over all sequences. Programs without a tile end at once.
        table: sequence of each program (:func:`list_tiles`), or None if each sequence has
            ``tiles_per_sequence`` programs.
    """

    tiles_per_sequence: int
    programs: int
    table: Tensor | None


def assign_tiles(problem: Problem, tokens: int, block: int, *, keys: bool = False) -> Tiling:
    """Divide the queries, or the keys if ``keys``, into tiles of ``block`` rows.

    ``tokens`` is the number of rows, including rows outside sequences. A table is created unless
    there is one sequence, or all are known to have the same length.
    """
    query_spans, key_spans = (problem.starts_q, problem.ends_q), (problem.starts_k, problem.ends_k)
    spans = (*key_spans, *query_spans) if keys else (*query_spans, *key_spans)
    longest = problem.longest_k if keys else problem.longest_q
    tiles = max(1, -(-longest // block))  # at least 1, because kernels divide by it
    has_equal_lengths = not problem.has_gaps and problem.sequences * longest == tokens
    if has_equal_lengths or problem.sequences == 1:
        return Tiling(tiles, problem.sequences * tiles, None)
    programs = max_tiles(tokens, problem.sequences, longest, block)
    return Tiling(tiles, programs, list_tiles(*spans, block, programs))


def max_tiles(tokens: int, sequences: int, longest: int, block: int) -> int:
    """Return the maximum number of tiles of one head of a batch whose lengths are not known.

    A sequence of n rows has at most (n + block - 1) / block tiles, and n is at most ``longest``.
    """
    return min((tokens + sequences * (block - 1)) // block, sequences * -(-longest // block))


def list_tiles(
    starts: Tensor, ends: Tensor, work_starts: Tensor, work_ends: Tensor, block: int, programs: int
) -> Tensor:
    """List the tiles of a batch, sequences with the most work first.

    Args:
        starts, ends: (sequences,) int32, bounds of the rows that are divided into tiles.
        work_starts, work_ends: bounds of the rows that each tile loops over.
        block: rows of a tile.
        programs: programs of one head, the result of :func:`max_tiles`.

    Returns:
        (programs + sequences,) int32: the sequence of each tile, -1 past the last tile, then the
        first tile of each sequence. Tiles of a sequence are consecutive. With H heads a kernel has
        ``programs * H`` programs. Program p computes a tile of sequence s = table[p // H]. The
        program's index among the programs of this sequence is p - H * table[programs + s].
    """
    sequences = starts.shape[0]
    table = torch.empty(programs + sequences, dtype=torch.int32, device=starts.device)
    list_tiles_kernel[(-(-sequences // _CHUNK.value),)](
        starts, ends, work_starts, work_ends, table, sequences, programs, block, **FUSED
    )
    return table


@triton.jit
def _lengths(STARTS, ENDS, sequence, sequences):
    """Return the length of each sequence in ``sequence``, 0 for indices from ``sequences`` on."""
    inside = sequence < sequences
    return tl.load(ENDS + sequence, inside, 0) - tl.load(STARTS + sequence, inside, 0)


@triton.jit
def _tiles_and_work(STARTS, ENDS, WORK_STARTS, WORK_ENDS, sequence, sequences, block):
    """Return the number of tiles of each sequence, and the number of rows each tile loops over."""
    rows = _lengths(STARTS, ENDS, sequence, sequences)
    work = _lengths(WORK_STARTS, WORK_ENDS, sequence, sequences)
    # Rows are negative only for wrong bounds, which are not checked on a GPU by default.
    return (tl.maximum(rows, 0) + block - 1) // block, work


@triton.jit(do_not_specialize=["sequences", "programs"])
def list_tiles_kernel(STARTS, ENDS, WORK_STARTS, WORK_ENDS, TABLE, sequences, programs, block):
    """Write the tiles of 32 sequences to the table of :func:`list_tiles`.

    A sequence follows all sequences with more work, or with equal work and a lower index. The index
    of the sequence's first tile is the number of tiles of all sequences before it.
    """
    lane = tl.arange(0, _CHUNK)
    index = tl.program_id(0) * _CHUNK + lane
    tiles, work = _tiles_and_work(STARTS, ENDS, WORK_STARTS, WORK_ENDS, index, sequences, block)
    first = tl.zeros([_CHUNK], tl.int32)
    total = 0
    for chunk in range(0, sequences, _CHUNK):
        other = chunk + lane
        other_tiles, other_work = _tiles_and_work(
            STARTS, ENDS, WORK_STARTS, WORK_ENDS, other, sequences, block
        )
        more = other_work[None, :] > work[:, None]
        equal = other_work[None, :] == work[:, None]
        earlier = more | (equal & (other[None, :] < index[:, None]))
        first += tl.sum(tl.where(earlier, other_tiles[None, :], 0), axis=1)
        total += tl.sum(other_tiles, axis=0)
    tl.store(TABLE + programs + index, first, index < sequences)
    for step in range(0, tl.max(tiles, axis=0), _CHUNK):
        tile = step + lane
        place = first[:, None] + tile[None, :]
        # The second condition is false only if the bounds do not match the batch.
        inside = (tile[None, :] < tiles[:, None]) & (place < programs)
        tl.store(TABLE + place, tl.broadcast_to(index[:, None], place.shape), inside)
    # All programs of this kernel together write -1 past the last tile.
    for step in range(total + tl.program_id(0) * _CHUNK, programs, tl.num_programs(0) * _CHUNK):
        tl.store(TABLE + step + lane, tl.full([_CHUNK], -1, tl.int32), step + lane < programs)


#: Number of int32 words of each entry in the list of :func:`schedule`, and of the header before the
#: entries. The header contains the index of the next tile to take, and the number of tiles.
WORDS = 8
#: Rows of a piece, which is the part of a tile that one group of warps computes. Kernels write both
#: constants as literals, 8 and 64.
PIECE_ROWS = 64

# Numbers of sequences and of entries that a program of ``schedule_kernel`` processes at once.
_SCAN = tl.constexpr(256)
_ENTRIES = tl.constexpr(64)


_POINTERS = ["ROW_STARTS", "ROW_ENDS", "COLUMN_STARTS", "COLUMN_ENDS", "BIAS", "SCHEDULE"]


@triton.jit(do_not_specialize=["sequences", "programs"], do_not_specialize_on_alignment=_POINTERS)
def schedule_kernel(
    ROW_STARTS, ROW_ENDS, COLUMN_STARTS, COLUMN_ENDS, BIAS, SCHEDULE, sequences, programs,
    bias_factor, PIECES: tl.constexpr, COLUMN_BLOCK: tl.constexpr, KEYS_ARE_ROWS: tl.constexpr,
):  # fmt: skip
    """List the tiles of one head of one sequence. Grid: (sequences, heads).

    The words of an entry are:

    - end of the rows of the sequence
    - ragged coordinate (:mod:`launching`) of the tile's first row: 2^30 - rows + first row
    - end of the columns
    - ragged coordinate of the first column: 2^30 - columns
    - blocks of columns, at least 1
    - head
    - bits of the float32 bias times ``bias_factor``
    - pieces of 64 rows, at most ``PIECES``
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
    for start in range(0, sequences, _SCAN):
        other = start + tl.arange(0, _SCAN)
        other_rows = _lengths(ROW_STARTS, ROW_ENDS, other, sequences)
        other_columns = _lengths(COLUMN_STARTS, COLUMN_ENDS, other, sequences)
        other_tiles = tl.cdiv(tl.cdiv(other_rows, 64), PIECES)
        earlier = (other_columns > columns) | ((other_columns == columns) & (other < sequence))
        before += tl.sum(tl.where(earlier, other_tiles, 0))
        total += tl.sum(other_tiles)
    if (sequence == 0) & (head == 0):
        # Program p starts with tile p, so tile number ``programs`` is the first to take.
        tl.store(SCHEDULE, programs)
        tl.store(SCHEDULE + 1, total * heads)

    bias = bias_of(BIAS, sequence, rows if KEYS_ARE_ROWS else columns)
    summand_bits = (bias * bias_factor).to(tl.int32, bitcast=True)
    pieces = tl.cdiv(rows, 64)
    tiles = tl.cdiv(pieces, PIECES)
    # At least 1, because 0 blocks end the list. Without columns, the block contains zeros.
    blocks = tl.maximum(tl.cdiv(columns, COLUMN_BLOCK), 1)
    first_entry = SCHEDULE + 8 + (before * heads + head * tiles).to(tl.int64) * 8
    for start in range(0, tiles, _ENTRIES):
        tile = start + tl.arange(0, _ENTRIES)
        inside = tile < tiles
        if KEYS_ARE_ROWS:
            # In the backward kernel, whose groups of warps work together, a tile with fewer pieces
            # takes as long as a full tile. So only the last tile of a sequence may have fewer.
            first_piece = tile * PIECES
            count = tl.minimum(pieces - first_piece, PIECES)
        else:
            # Pieces are divided evenly: 9 pieces become tiles of 3, 3, 3, not of 4, 4, 1.
            first_piece = tile * pieces // tiles
            count = (tile + 1) * pieces // tiles - first_piece
        entry = first_entry + tile * 8
        tl.store(entry, row_end, mask=inside)
        tl.store(entry + 1, first_piece * 64 - rows + WRAP, mask=inside)
        tl.store(entry + 2, column_end, mask=inside)
        tl.store(entry + 3, -columns + WRAP, mask=inside)
        tl.store(entry + 4, blocks, mask=inside)
        tl.store(entry + 5, head, mask=inside)
        tl.store(entry + 6, summand_bits, mask=inside)
        tl.store(entry + 7, count, mask=inside)


@functools.cache
def _count_multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def schedule(
    problem: Problem,
    tokens: int,
    heads: int,
    pieces: int,
    column_block: int,
    bias_factor: float,
    *,
    keys_are_rows: bool = False,
) -> tuple[Tensor, int]:
    """Create the tile list of the Hopper kernels on the device.

    Rows are divided into tiles, and each tile loops over the columns of its sequence. Rows are
    queries and columns are keys, or the reverse if ``keys_are_rows``.

    The work of a tile is proportional to the columns of its sequence, so sequences are sorted by
    their number of columns, largest first. Programs take tiles from the start of the list through a
    counter in global memory. Short tiles come last, so that all programs end at about the same
    time. Tiles of one sequence and head are consecutive, so their columns stay in the L2 cache.

    Args:
        tokens: number of rows of the batch, including rows outside sequences.
        heads: number of heads.
        pieces: maximum number of pieces of 64 rows in a tile.
        column_block: columns that a tile's loop processes in one step.
        bias_factor: factor of the bias in the argument of the sigmoid.
        keys_are_rows: True in the backward pass.

    Returns:
        The list, and the number of programs to launch, at most one per multiprocessor.
    """
    query_spans, key_spans = (problem.starts_q, problem.ends_q), (problem.starts_k, problem.ends_k)
    spans = (*key_spans, *query_spans) if keys_are_rows else (*query_spans, *key_spans)
    # Lengths are not known on the host. Each sequence has at most one tile with fewer rows.
    max_entries = heads * (problem.sequences + tokens // (PIECE_ROWS * pieces))
    starts = spans[0]
    programs = max(1, min(_count_multiprocessors(starts.device), max_entries))
    table = starts.new_empty((max_entries + 1) * WORDS)
    sequences = starts.shape[0]
    launch(
        schedule_kernel,
        starts.get_device(),
        (sequences, heads),
        (*spans, problem.bias, table, sequences, programs, bias_factor),
        {"PIECES": pieces, "COLUMN_BLOCK": column_block, "KEYS_ARE_ROWS": keys_are_rows},
        key=problem.bias is None,  # The dtypes are always the same, and alignment does not matter.
        num_warps=1,
    )
    return table, programs
