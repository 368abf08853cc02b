"""Descriptors by which the hardware copies tiles of one sequence of a packed batch (TMA).

The hardware checks bounds against a descriptor's shape, which knows the whole batch and no
sequence.  As in ``triton.tools.ragged_tma``, two leading dimensions shift the address so that a
sequence's end comes to lie at the shape's end: with coordinates (2^30, end, 2^30 - n + row, head,
column) the address is that of token ``end - n + row``, because the first term wraps around 64 bits,
and a row past the sequence is out of bounds: read as zero, never written.  So one descriptor, made
on the host, serves all sequences and heads.
"""

from torch import Tensor

#: The coordinate of a sequence's end; no batch may have more tokens.
WRAP = 2**30
# 2^34 elements times 2^30 rows are a multiple of 2^64 bytes for every element size.
_WRAP_STRIDE = 2**34
_MOST = 0x7FFF0000


def describable(tensor: Tensor) -> bool:
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


def described(tensor: Tensor, rows: int, columns: int) -> tuple[list[int], list[int], list[int]]:
    """Shape, strides and block of a descriptor.

    Args:
        tensor: (tokens, heads, dim), :func:`describable`.
        rows: tokens of a tile.
        columns: elements of a tile's row.
    """
    tokens_stride, heads_stride, _ = tensor.stride()
    return (
        [_MOST, _MOST, WRAP, tensor.shape[1], tensor.shape[2]],
        [_WRAP_STRIDE - tokens_stride, tokens_stride, tokens_stride, heads_stride, 1],
        [1, 1, rows, 1, columns],
    )
