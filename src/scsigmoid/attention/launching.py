"""Launching on a GPU: descriptors of sequences, zeros in the padding, direct launches.

**Ragged descriptors** (TMA).  The hardware copies tiles and checks bounds against a descriptor's
shape, which knows the whole batch and no sequence.  As in ``triton.tools.ragged_tma``, two leading
dimensions shift the address so that a sequence's end comes to lie at the shape's end: with
coordinates (2^30, end, 2^30 - n + row, head, column) the address is that of token
``end - n + row``, because the first term wraps around 64 bits, and a row past the sequence is out
of bounds: read as zero, never written.  So one descriptor, made on the host, serves all sequences
and heads.

**Zeros in the padding.**  Kernels write the tokens of sequences.  Filling a whole result with zeros
first would write those twice, which for short sequences is a tenth of the kernel's time.

**Direct launches.**  ``kernel[grid](...)`` classifies each argument at each call, which for
five-dimensional descriptors takes longer than a short batch runs.  The first launch returns the
compiled kernel; later ones with the same key hand it to the driver directly.  The caller's key must
tell apart whatever Triton would compile differently: types, constants, and the alignment of
pointers unless the kernel is declared not to depend on it.
"""

from collections.abc import Hashable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from scsigmoid.attention.triton_internals import launch_compiled

#: The coordinate of a sequence's end; no batch may have more tokens.
WRAP = 2**30
# 2^34 elements times 2^30 rows are a multiple of 2^64 bytes for every element size.
_WRAP_STRIDE = 2**34
_MOST = 0x7FFF0000
#: For every launch: products and sums in one instruction, which triton 3.10 stops doing by itself.
FUSED = {"enable_fp_fusion": True}


def is_describable(tensor: Tensor) -> bool:
    """Whether there can be a descriptor: elements side by side, rows and heads at 16 bytes."""
    rows, heads, inner = tensor.stride()
    size = tensor.element_size()
    return (
        inner == 1
        and rows > 0
        and heads > 0
        and (tensor.data_ptr() | rows * size | heads * size) % 16 == 0
        and tensor.shape[0] <= WRAP
        and tensor.numel() > 0
    )


def describe(tensor: Tensor, rows: int, columns: int) -> tuple[list[int], list[int], list[int]]:
    """Shape, strides and block of a descriptor.

    Args:
        tensor: (tokens, heads, dim), :func:`is_describable`.
        rows: tokens of a tile.
        columns: elements of a tile's row.
    """
    tokens_stride, heads_stride, _ = tensor.stride()
    return (
        [_MOST, _MOST, WRAP, tensor.shape[1], tensor.shape[2]],
        [_WRAP_STRIDE - tokens_stride, tokens_stride, tokens_stride, heads_stride, 1],
        [1, 1, rows, 1, columns],
    )


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


def allocate_output(like: Tensor, starts: Tensor, ends: Tensor, has_gaps: bool) -> Tensor:
    """Memory for a result of the shape of ``like``, contiguous, with zeros outside sequences.

    Args:
        like: (tokens, heads, dim).
        starts, ends: (sequences,) int32, ascending.
        has_gaps: whether there may be tokens outside every sequence.
    """
    out = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    if has_gaps and out.numel():
        width = out.shape[1] * out.shape[2]
        zero_gaps_kernel[(len(starts) + 1, _PROGRAMS)](
            out,
            starts,
            ends,
            len(starts),
            out.shape[0],
            WIDTH=width,
            BLOCK=triton.next_power_of_2(width),
            ROWS=_ROWS,
            **FUSED,
        )
    return out


_compiled: dict[Hashable, Any] = {}


def launch(
    kernel: Any,
    device: int,
    programs: tuple[int, int],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    key: Hashable,
    **options: int,
) -> None:
    """Launch ``kernel`` on the current stream of the current device.

    Args:
        kernel: a function of ``triton.jit`` or ``gluon.jit``.
        device: number of the current device.
        programs: the grid's first two dimensions.
        arguments: the run-time arguments, which come first in the kernel's signature.
        constants: the compile-time arguments, in the signature's order.
        key: what distinguishes this launch's types from others of the kernel.
        options: the compiler's options, such as ``maxnreg``.
    """
    signature = (kernel.fn, device, key, *constants.values())
    compiled = _compiled.get(signature)
    if compiled is None:
        _compiled[signature] = kernel[programs](*arguments, **constants, **options, **FUSED)
    else:
        launch_compiled(compiled, device, programs, (*arguments, *constants.values()))
