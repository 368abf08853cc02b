"""Order of work in a jagged batch: no program without work, the longest first.

A kernel computes tiles: blocks of ``block`` rows of one sequence and head.  If every sequence were
given as many programs as the longest, half of them would start for nothing in a typical batch, and
long sequences at the end of the batch would keep a few processors busy while the others wait.  So a
small kernel lists the tiles on the device, without the host waiting for it, and the attention
kernels look up there which tile is theirs.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from scsigmoid.attention.problem import Problem

#: Sequences that one program of the listing kernel places, and tiles that it writes at once.
_CHUNK = tl.constexpr(32)


class Tiling(NamedTuple):
    """How a kernel's rows, queries or keys, are shared out among its programs.

    Attributes:
        blocks: blocks of rows of the longest sequence.
        tiles: programs for each head.
        table: whose they are (:func:`list_tiles`), or None: ``blocks`` for every sequence.
    """

    blocks: int
    tiles: int
    table: Tensor | None


def share_out(problem: Problem, tokens: int, block: int, *, keys: bool = False) -> Tiling:
    """Share out rows without reading lengths: by a table, unless all are known to be equal.

    Args:
        problem: the sequences.
        tokens: number of rows, whether in a sequence or not.
        block: rows of a tile.
        keys: cut keys into tiles, and order by queries; else the other way round.
    """
    spans = (problem.starts_q, problem.ends_q), (problem.starts_k, problem.ends_k)
    rows, work = spans[::-1] if keys else spans
    longest = problem.longest_k if keys else problem.longest_q
    blocks = max(1, -(-longest // block))
    equal = not problem.gaps and problem.sequences * longest == tokens
    if equal or problem.sequences == 1:
        return Tiling(blocks, problem.sequences * blocks, None)
    tiles = most_tiles(tokens, problem.sequences, longest, block)
    return Tiling(blocks, tiles, list_tiles(*rows, *work, block, tiles))


def most_tiles(tokens: int, sequences: int, longest: int, block: int) -> int:
    """Most tiles, of one head, that the sequences of a batch can have.

    Args:
        tokens: tokens of the batch; sequences do not overlap.
        sequences: number of sequences.
        longest: no sequence is longer.
        block: rows of a tile.
    """
    return min((tokens + sequences * (block - 1)) // block, sequences * -(-longest // block))


def list_tiles(
    starts: Tensor, ends: Tensor, work_starts: Tensor, work_ends: Tensor, block: int, most: int
) -> Tensor:
    """List the tiles of a batch, those with most work first.

    Args:
        starts, ends: (sequences,) int32, bounds of the rows that are cut into tiles.
        work_starts, work_ends: bounds of the rows that each tile loops over.
        block: rows of a tile.
        most: :func:`most_tiles`.

    Returns:
        (most + sequences,) int32: the sequence that tile t belongs to, -1 past the last tile;
        then the first tile of each sequence.  Tiles of one sequence lie side by side.  With H
        heads a kernel has ``most * H`` programs: program p belongs to the sequence s of tile
        p // H and is the (p - H * first tile of s)-th of that sequence's.
    """
    sequences = starts.shape[0]
    table = torch.empty(most + sequences, dtype=torch.int32, device=starts.device)
    _list_tiles[(-(-sequences // _CHUNK.value),)](
        starts, ends, work_starts, work_ends, table, sequences, most, block
    )
    return table


@triton.jit
def _tiles_and_work(STARTS, ENDS, WORK_STARTS, WORK_ENDS, index, sequences, block):
    """Tiles and work of some sequences; none of either past the last."""
    inside = index < sequences
    rows = tl.load(ENDS + index, inside, 0) - tl.load(STARTS + index, inside, 0)
    work = tl.load(WORK_ENDS + index, inside, 0) - tl.load(WORK_STARTS + index, inside, 0)
    return (tl.maximum(rows, 0) + block - 1) // block, work


@triton.jit(do_not_specialize=["sequences", "most"])
def _list_tiles(STARTS, ENDS, WORK_STARTS, WORK_ENDS, TABLE, sequences, most, block):
    """Each program places 32 sequences: behind all that come earlier."""
    lane = tl.arange(0, _CHUNK)
    mine = tl.program_id(0) * _CHUNK + lane
    tiles, work = _tiles_and_work(STARTS, ENDS, WORK_STARTS, WORK_ENDS, mine, sequences, block)
    first = tl.zeros([_CHUNK], tl.int32)
    total = 0
    for chunk in range(0, sequences, _CHUNK):
        other = chunk + lane
        others, their_work = _tiles_and_work(
            STARTS, ENDS, WORK_STARTS, WORK_ENDS, other, sequences, block
        )
        longer = their_work[None, :] > work[:, None]
        same = their_work[None, :] == work[:, None]
        earlier = longer | (same & (other[None, :] < mine[:, None]))
        first += tl.sum(tl.where(earlier, others[None, :], 0), axis=1)
        total += tl.sum(others, axis=0)
    tl.store(TABLE + most + mine, first, mine < sequences)
    for step in range(0, tl.max(tiles, axis=0), _CHUNK):
        tile = step + lane
        place = first[:, None] + tile[None, :]
        # The second condition matters only for bounds that do not fit the batch.
        wanted = (tile[None, :] < tiles[:, None]) & (place < most)
        tl.store(TABLE + place, tl.broadcast_to(mine[:, None], place.shape), wanted)
    for step in range(total + tl.program_id(0) * _CHUNK, most, tl.num_programs(0) * _CHUNK):
        tl.store(TABLE + step + lane, tl.full([_CHUNK], -1, tl.int32), step + lane < most)
