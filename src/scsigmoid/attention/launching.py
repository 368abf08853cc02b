"""Kernel launches: tensor descriptors of sequences, zeros in the padding, direct launches.

**Ragged descriptors** (TMA). The hardware copies tiles and checks bounds against the shape of a
descriptor, which describes the whole batch. So the last tile of a sequence would include rows of
the next sequence. As in ``triton.tools.ragged_tma``, two leading dimensions shift the address so
that the end of a sequence is at the end of the shape. Row i of a sequence of n tokens has the
coordinates (2^30, end, 2^30 - n + i, head, column). If tokens are s elements apart,
:func:`describe` gives this row the offset
2^30 (2^34 - s) + end s + (2^30 - n + i) s = 2^64 + (end - n + i) s elements. Byte addresses wrap
around at 2^64, so this is token ``end - n + i``. Rows past the end of a sequence have a third
coordinate of 2^30 or more, which is out of bounds. They are read as zero and never written. So one
descriptor, created on the host, serves all sequences and heads.

**Zeros in the padding.** Attention kernels write only the tokens in sequences. Another kernel sets
the padding to 0. For short sequences, zeroing the whole result would take a tenth more time.

**Prepared launches.** ``kernel[grid](...)`` inspects each argument in each call. With descriptors
this takes longer than attention of a short batch. The first launch returns the compiled kernel, and
:func:`launch` passes it to the CUDA driver in later launches with the same signature
(:mod:`cuda_driver`), or to Triton's launcher if this is not possible.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from scsigmoid.attention.cuda_driver import PreparedLaunch, Tile, prepare
from scsigmoid.attention.problem import Problem
from scsigmoid.attention.triton_internals import current_stream, is_profiled, launch_compiled

#: Ragged (third) coordinate of the end of each sequence, and size of this dimension. Therefore also
#: the maximum number of tokens of a batch.
WRAP = 2**30
# 2^34 elements times 2^30 rows are a multiple of 2^64 bytes for all element sizes.
_WRAP_STRIDE = 2**34
_LEADING_SIZE = 0x7FFF0000  # size of the two leading dimensions, as in ragged_tma
#: For all launches: fuse products and sums, which triton 3.10 does not do by default.
FUSED = {"enable_fp_fusion": True}


def is_describable(tensor: Tensor) -> bool:
    """Return True if TMA supports the tensor. Tokens and heads must be aligned to 16 bytes."""
    return (
        _are_describable(tensor.stride(), tensor.element_size())
        and tensor.data_ptr() % 16 == 0
        and tensor.shape[0] <= WRAP
        and tensor.numel() > 0
    )


@functools.lru_cache
def _are_describable(strides: tuple[int, int, int], size: int) -> bool:
    """Return True if TMA supports the strides of a tensor with elements of ``size`` bytes."""
    token_stride, head_stride, inner_stride = strides
    is_aligned = (token_stride * size | head_stride * size) % 16 == 0
    return inner_stride == 1 and token_stride > 0 and head_stride > 0 and is_aligned


def describe(tensor: Tensor, rows: int, columns: int) -> tuple[list[int], list[int], list[int]]:
    """Return shape, strides and block shape of a descriptor of tiles (rows, columns).

    ``tensor`` is (tokens, heads, dim), and :func:`is_describable` is true for it.
    """
    token_stride, head_stride, _ = tensor.stride()
    return (
        [_LEADING_SIZE, _LEADING_SIZE, WRAP, tensor.shape[1], tensor.shape[2]],
        [_WRAP_STRIDE - token_stride, token_stride, token_stride, head_stride, 1],
        [1, 1, rows, 1, columns],
    )


# Rows that a program of zero_gaps_kernel writes at once, and number of programs of a gap.
_ROWS = 4
_PROGRAMS = 64


@triton.jit(do_not_specialize=["sequences", "tokens"])
def zero_gaps_kernel(
    OUT, STARTS, ENDS, sequences, tokens,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Set the tokens between the end of a sequence and the start of the next sequence to 0.

    Grid: (gaps, programs of a gap). Gaps 0 and ``sequences`` are the start and end of the batch.
    """
    gap = tl.program_id(0)
    gap_start = tl.load(ENDS + gap - 1, mask=gap > 0, other=0)
    gap_end = tl.load(STARTS + gap, mask=gap < sequences, other=tokens)
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    step = ROWS * tl.num_programs(1)
    for start in range(gap_start + tl.program_id(1) * ROWS, gap_end, step):
        row = start + rows
        inside = (row < gap_end)[:, None] & (columns < WIDTH)[None, :]
        at = OUT + row.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        tl.store(at, tl.zeros([ROWS, BLOCK], OUT.dtype.element_ty), mask=inside)


def allocate_output(like: Tensor, problem: Problem, *, keys: bool = False) -> Tensor:
    """Allocate a contiguous tensor like ``like`` with zeros outside sequences, else undefined.

    ``like`` is (tokens, heads, dim). Its tokens are keys if ``keys``, otherwise queries.
    """
    out = torch.empty_like(like, memory_format=torch.contiguous_format)
    if problem.has_gaps and out.numel():
        starts = problem.starts_k if keys else problem.starts_q
        ends = problem.ends_k if keys else problem.ends_q
        width = out.shape[1] * out.shape[2]
        constants = {"WIDTH": width, "BLOCK": triton.next_power_of_2(width), "ROWS": _ROWS}
        zero_gaps_kernel[(len(starts) + 1, _PROGRAMS)](
            out, starts, ends, len(starts), len(out), **constants, **FUSED
        )
    return out


# Compiled kernels, and their prepared launches if possible, by signature (:func:`launch`).
_compiled: dict[Hashable, tuple[Any, PreparedLaunch | None]] = {}


def launch(
    kernel: Any,
    device: int,
    programs: tuple[int, int],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    key: Hashable,
    tiles: tuple[Tile, ...] = (),
    make_descriptor: Callable[[Tensor, int, int], Any] | None = None,
    **options: int,
) -> None:
    """Launch ``kernel`` on the current stream of the current device.

    Args:
        kernel: a function of ``triton.jit`` or ``gluon.jit``.
        device: index of the current device.
        programs: the first two dimensions of the grid.
        arguments: the run-time arguments after the descriptors.
        constants: the compile-time arguments, in the order of the parameters that follow.
        key: part of the signature of a launch, in addition to kernel, device and ``constants``:
            the other properties for which Triton compiles separate kernels. These are dtypes, and
            the alignment of pointers unless the kernel is declared not to depend on it, and the
            heads and head dimension of the tensors in ``tiles``.
        tiles: tensor, rows and columns of each descriptor. Descriptors are the kernel's first
            parameters. Tensors must be describable (:func:`is_describable`).
        make_descriptor: creates a descriptor of tensor, rows and columns.
        options: options of the compiler, such as ``maxnreg``. Equal for equal signatures.
    """
    signature = (kernel.fn, device, key, *constants.values())
    compiled, prepared = _compiled.get(signature, (None, None))
    if (
        prepared is not None
        and not is_profiled()
        and prepared(current_stream(device), programs, tiles, arguments)
    ):
        return
    all_arguments = arguments
    if make_descriptor is not None:
        all_arguments = (*(make_descriptor(*tile) for tile in tiles), *arguments)
    if compiled is not None:
        launch_compiled(compiled, device, programs, (*all_arguments, *constants.values()))
        return
    compiled = kernel[programs](*all_arguments, **constants, **options, **FUSED)
    _compiled[signature] = compiled, prepare(compiled, tiles, arguments, describe)
