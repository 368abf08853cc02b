"""Row blocks of a stored matrix in bounded memory, whatever the storage and the chunking."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.transposed import Block, Entries, Transposed, bounds
from scsigmoid.corpus.vectors import Vector

BLOCK_VALUES = 1 << 22  # stored values of a block: 32 MB of a sparse matrix
DENSE_BYTES = 1 << 28  # a dense matrix whose chunks span more is read by columns

Int64s = NDArray[np.int64]


class Storage(Protocol):
    """A matrix, cells x genes."""

    def blocks(self, wanted: Int64s) -> Iterator[Block]:
        """Blocks of rows, ascending; those that hold no wanted row (ascending) may be left out."""


def storage_of(stored: Any, kind: str, shape: tuple[int, int]) -> Storage:
    """The way to read a stored matrix.

    Args:
        stored: the HDF5 group (sparse) or dataset (dense).
        kind: ``csr``, ``csc`` or ``dense``.
        shape: cells and genes.
    """
    if kind == "csr":
        return CompressedRows(stored, shape)
    if kind == "csc":
        columns = CompressedColumns(stored, shape)
        return Transposed(columns.entries, shape)
    rows = stored.chunks[0] if stored.chunks else 1
    if rows * shape[1] * stored.dtype.itemsize > DENSE_BYTES:
        return Transposed(DenseChunks(stored).entries, shape)
    return DenseRows(stored, shape)


def holding(ranges: Iterable[tuple[int, int]], wanted: Int64s) -> Iterator[tuple[int, int]]:
    """The ranges of rows that hold at least one wanted row."""
    for start, stop in ranges:
        first, last = np.searchsorted(wanted, [start, stop])
        if first < last:
            yield start, stop


def ends_of(stored: Any, length: int) -> Int64s:
    """Cumulative values of the rows of a CSR matrix, or the columns of a CSC one, from 0.

    Args:
        stored: the HDF5 group.
        length: number of rows, or columns.

    Raises:
        OSError: if they do not describe the values.
    """
    ends: Int64s = stored["indptr"][:].astype(np.int64)
    values = len(stored["data"])
    if (
        len(ends) != length + 1
        or ends[0] != 0
        or ends[-1] > values
        or len(stored["indices"]) < ends[-1]
        or (np.diff(ends) < 0).any()
    ):
        raise OSError(f"indptr does not describe {length} rows or columns of {values} values")
    return ends


def within(indices: NDArray[Any], length: int) -> NDArray[Any]:
    """Indices into rows or columns, of which there are ``length``.

    Compiled loops follow them unchecked.

    Raises:
        OSError: if one lies outside.
    """
    if len(indices) and not 0 <= indices.min() <= indices.max() < length:
        raise OSError(f"an index lies outside {length} rows or columns")
    return indices


class CompressedRows:
    """A CSR matrix, in blocks of at most ``BLOCK_VALUES`` values, one row at least."""

    def __init__(self, stored: Any, shape: tuple[int, int]) -> None:
        self.shape = shape
        self._indptr = ends_of(stored, shape[0])
        self._data, self._indices = Vector(stored["data"]), Vector(stored["indices"])

    def blocks(self, wanted: Int64s) -> Iterator[Block]:
        """See :class:`Storage`."""
        from scipy.sparse import csr_matrix

        for start, stop in holding(bounds(self._indptr, BLOCK_VALUES), wanted):
            first, last = int(self._indptr[start]), int(self._indptr[stop])
            columns = within(self._indices.read(first, last), self.shape[1])
            values = csr_matrix(
                (
                    self._data.read(first, last),
                    columns.astype(np.int32, copy=False),
                    (self._indptr[start : stop + 1] - first).astype(np.int32),
                ),
                shape=(stop - start, self.shape[1]),
            )
            yield Block(start, values)


class DenseRows:
    """A dense matrix whose chunks hold few rows, in blocks of whole chunks of rows."""

    def __init__(self, stored: Any, shape: tuple[int, int]) -> None:
        self._stored, self.shape = stored, shape

    def blocks(self, wanted: Int64s) -> Iterator[Block]:
        """See :class:`Storage`."""
        from scipy.sparse import csr_matrix

        chunk = self._stored.chunks[0] if self._stored.chunks else 1
        rows = max(1, BLOCK_VALUES // max(1, self.shape[1]))
        rows = max(chunk, rows - rows % chunk)
        starts = range(0, self.shape[0], rows)
        for start, stop in holding(((start, start + rows) for start in starts), wanted):
            yield Block(start, csr_matrix(self._stored[start:stop]))


class CompressedColumns:
    """A CSC matrix, as a stream of its entries."""

    def __init__(self, stored: Any, shape: tuple[int, int]) -> None:
        self.shape = shape
        self._indptr = ends_of(stored, shape[1])
        self._data, self._indices = Vector(stored["data"]), Vector(stored["indices"])

    def entries(self) -> Iterator[Entries]:
        """All entries, column by column."""
        values = int(self._indptr[-1])
        for first in range(0, values, BLOCK_VALUES):
            last = min(first + BLOCK_VALUES, values)
            counts = np.diff(self._indptr.clip(first, last))
            columns = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            rows = within(self._indices.read(first, last), self.shape[0])
            yield Entries(rows, columns, self._data.read(first, last))


class DenseChunks:
    """A dense matrix whose chunks span too many rows, as a stream of its non-zero entries."""

    def __init__(self, stored: Any) -> None:
        self._stored = stored

    def entries(self) -> Iterator[Entries]:
        """All entries, chunk by chunk."""
        for rows, columns in self._stored.iter_chunks():
            values: NDArray[Any] = self._stored[rows, columns]
            row, column = np.nonzero(values)
            yield Entries(
                row + rows.start, (column + columns.start).astype(np.int32), values[row, column]
            )
