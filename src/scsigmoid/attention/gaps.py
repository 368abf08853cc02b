"""Zeros in the padding of a result, and nowhere else.

Kernels write the tokens of sequences.  Filling a whole result with zeros first would write those
twice, which for short sequences is a tenth of the kernel's time.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 4
_PROGRAMS = 64


@triton.jit(do_not_specialize=["sequences", "tokens"])
def zero_gaps_kernel(
    OUT,
    STARTS,
    ENDS,
    sequences,
    tokens,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Zero the tokens between the end of a sequence and the next one's start.

    Grid: (sequences + 1, programs of a gap); the first gap lies before the first sequence.
    """
    gap = tl.program_id(0)
    first = tl.load(ENDS + gap - 1, mask=gap > 0, other=0)
    last = tl.load(STARTS + gap, mask=gap < sequences, other=tokens)
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    step = ROWS * tl.num_programs(1)
    for start in range(first + tl.program_id(1) * ROWS, last, step):
        row = start + rows
        inside = (row < last)[:, None] & (columns < WIDTH)[None, :]
        at = OUT + row.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        tl.store(at, tl.zeros([ROWS, BLOCK], OUT.dtype.element_ty), mask=inside)


def output(like: Tensor, starts: Tensor, ends: Tensor, gaps: bool) -> Tensor:
    """Memory for a result of the shape of ``like``, contiguous, with zeros outside sequences.

    Args:
        like: (tokens, heads, dim).
        starts, ends: (sequences,) int32, ascending.
        gaps: whether there may be tokens outside every sequence.
    """
    out = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    if gaps and out.numel():
        width = out.shape[1] * out.shape[2]
        with torch.cuda.device_of(out):
            zero_gaps_kernel[(len(starts) + 1, _PROGRAMS)](
                out,
                starts,
                ends,
                len(starts),
                out.shape[0],
                WIDTH=width,
                BLOCK=triton.next_power_of_2(width),
                ROWS=_ROWS,
            )
    return out
