"""Turns a matrix that is not stored by rows into blocks of rows, in bounded memory.

Two passes over the entries: the first counts those of each row, which gives blocks of rows with a
bounded number of them; the second deals the entries to one temporary file a block.  The files lie
in the system's temporary folder (``TMPDIR``) and take 12 bytes an entry of float32.
"""

import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.progress import log

FILE_VALUES = 1 << 23  # entries of a block of rows, and so of a temporary file

Int64s = NDArray[np.int64]


class Entries(NamedTuple):
    """Some entries of a matrix.

    Attributes:
        rows: integers.
        columns: int32.
        values: as stored; of the same type in all pieces.
    """

    rows: NDArray[np.integer[Any]]
    columns: NDArray[np.int32]
    values: NDArray[Any]


class Block(NamedTuple):
    """Consecutive rows.

    Attributes:
        start: the first row.
        values: rows x genes, a SciPy CSR matrix in the stored type.
    """

    start: int
    values: Any


class Transposed:
    """Row blocks of a matrix whose entries come in another order."""

    def __init__(self, entries: Callable[[], Iterator[Entries]], shape: tuple[int, int]) -> None:
        """Take note of the entries without reading them.

        Args:
            entries: starts a pass over all entries, in pieces.
            shape: cells and genes.
        """
        self.shape = shape
        self._entries = entries

    def blocks(self, wanted: Int64s) -> Iterator[Block]:
        """Blocks of at most ``FILE_VALUES`` entries, one row at least.

        Args:
            wanted: all blocks are given, whichever rows are wanted.

        Raises:
            UserError: if the temporary folder has no room.
        """
        ends = self._ends()
        starts = np.array([0, *(stop for _, stop in bounds(ends, FILE_VALUES))], dtype=np.int64)
        with tempfile.TemporaryDirectory(prefix="scsigmoid-rows-") as name:
            folder = Path(name)
            log(f"not stored by rows: {ends[-1]} values are turned through {folder}")
            dtype = self._deal(starts, folder)
            for number, (start, stop) in enumerate(pairwise(starts)):
                values = self._read(folder / str(number), dtype, int(stop - start))
                yield Block(int(start), values)

    def _ends(self) -> Int64s:
        """Cumulative number of entries of the rows, from 0."""
        counts = np.zeros(self.shape[0], dtype=np.int64)
        for piece in self._entries():
            counts += np.bincount(piece.rows, minlength=len(counts))
        return np.concatenate([[0], np.cumsum(counts)])

    def _deal(self, starts: Int64s, folder: Path) -> np.dtype[Any]:
        """Append every entry to its block's file; returns the type of the records."""
        dtype: np.dtype[Any] = np.dtype([])
        for piece in self._entries():
            dtype = np.dtype(
                [("row", np.int32), ("column", np.int32), ("value", piece.values.dtype)]
            )
            blocks = np.searchsorted(starts, piece.rows, side="right") - 1
            order = np.argsort(blocks, kind="stable")
            dealt = np.empty(len(order), dtype=dtype)
            dealt["row"] = (piece.rows - starts[blocks])[order]
            dealt["column"] = piece.columns[order]
            dealt["value"] = piece.values[order]
            present, first = np.unique(blocks[order], return_index=True)
            for number, part in zip(present, np.split(dealt, first[1:]), strict=True):
                try:
                    with (folder / str(number)).open("ab") as file:
                        file.write(part.tobytes())
                except OSError as error:
                    raise UserError(
                        f"{folder}: {error.strerror}; set TMPDIR to a folder with more room"
                    ) from None
        return dtype

    def _read(self, path: Path, dtype: np.dtype[Any], rows: int) -> Any:
        """The rows of one block, columns sorted, entries of one place added."""
        from scipy.sparse import csr_matrix

        if not path.exists():  # no entry in these rows
            return csr_matrix((rows, self.shape[1]), dtype=np.int32)
        found = np.fromfile(path, dtype=dtype)
        path.unlink()
        return csr_matrix(
            (found["value"], (found["row"], found["column"])), shape=(rows, self.shape[1])
        )


def bounds(ends: Int64s, most: int) -> Iterator[tuple[int, int]]:
    """Cut rows into ranges of at most ``most`` values; a longer row is a range of its own.

    Args:
        ends: cumulative values of the rows, from 0; rows + 1 of them.
        most: values of a range.
    """
    start, rows = 0, len(ends) - 1
    while start < rows:
        stop = int(np.searchsorted(ends, ends[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        yield start, stop
        start = stop
