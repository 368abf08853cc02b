"""Raw counts in an h5ad file: which matrix holds them, and how they are read in blocks of rows."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError

CANDIDATES = ("raw/X", "X")
SAMPLE = 65536
TOLERANCE = 1e-6  # CELLxGENE files hold counts that are integers only up to 1e-11


class Matrix:
    """A stored matrix, cells x genes: dense, CSR or CSC.

    CSR and dense are read block by block.  CSC cannot be: its first block reads the whole matrix
    and turns it round in memory.

    Attributes:
        shape: cells and genes.
    """

    def __init__(self, stored: Any, path: Path, name: str) -> None:
        """Look at the matrix without reading it.

        Args:
            stored: the HDF5 group (sparse) or dataset (dense).
            path: the file, for messages.
            name: the matrix, for messages.
        """
        self.path, self.name = path, name
        self._stored = stored
        self._transposed: Any = None
        self._indptr: NDArray[np.int64] | None = None
        encoding = str(stored.attrs.get("encoding-type", "array"))
        self.kind = encoding.removesuffix("_matrix") if encoding != "array" else "dense"
        if self.kind not in ("dense", "csr", "csc"):
            raise UserError(f"{path}: {name} is stored as {encoding!r}; write it as CSR")
        shape = stored.shape if self.kind == "dense" else stored.attrs["shape"]
        self.shape: tuple[int, int] = (int(shape[0]), int(shape[1]))

    def sample(self) -> NDArray[np.float64]:
        """The first non-zero values, at most ``SAMPLE`` stored ones."""
        if self.kind == "dense":
            values = self._stored[: max(1, SAMPLE // max(1, self.shape[1]))].ravel()
        else:
            values = self._stored["data"][:SAMPLE]
        values = values.astype(np.float64)
        return values[values != 0]

    def counts(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop`` as a CSR matrix of int32, columns sorted, no stored zeros.

        Raises:
            UserError: for values that are no counts.
        """
        block = self._block(start, stop)
        block.sum_duplicates()
        block.data = self._integers(block, start)
        block.eliminate_zeros()
        return block

    def _block(self, start: int, stop: int) -> Any:
        from scipy.sparse import csc_matrix, csr_matrix

        if self.kind == "dense":
            return csr_matrix(self._stored[start:stop])
        if self.kind == "csc":
            if self._transposed is None:
                parts = (self._stored[name][:] for name in ("data", "indices", "indptr"))
                self._transposed = csc_matrix(tuple(parts), shape=self.shape).tocsr()
            return self._transposed[start:stop]
        if self._indptr is None:
            self._indptr = self._stored["indptr"][:].astype(np.int64)
        indptr = self._indptr[start : stop + 1]
        first, last = indptr[0], indptr[-1]
        return csr_matrix(
            (
                self._stored["data"][first:last],
                self._stored["indices"][first:last],
                indptr - first,
            ),
            shape=(stop - start, self.shape[1]),
        )

    def _integers(self, block: Any, start: int) -> NDArray[np.int32]:
        values = block.data
        rounded = np.rint(values)
        wrong = ~(integral(values) & (rounded >= 0) & (rounded < 2**31))
        if wrong.any():
            index = int(np.argmax(wrong))
            row = start + int(np.searchsorted(block.indptr, index, side="right")) - 1
            kind = "a negative count" if values[index] < 0 else "a count that is no integer"
            raise UserError(
                f"{self.path}: {self.name} holds {kind} ({values[index]:g} in row {row}); "
                "store the raw integer counts in raw.X"
            )
        return rounded.astype(np.int32)


def integral(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are integers, up to the tolerance; NaN and infinity are not."""
    with np.errstate(invalid="ignore"):
        return np.abs(values - np.rint(values)) <= TOLERANCE


def find_counts(file: Any, path: Path) -> str:
    """Name of the matrix that holds raw counts: ``raw/X``, else ``X``.

    Most values of raw counts are positive integers and next to none of normalised or scaled values
    are, so a sample of the first values tells them apart.  Whether every value is a count is
    checked when it is read.

    Raises:
        UserError: if neither matrix holds raw counts.
    """
    seen = []
    for name in CANDIDATES:
        if name not in file:
            continue
        matrix = Matrix(file[name], path, name.replace("/", "."))
        values = matrix.sample()
        whole = integral(values)
        if 2 * whole.sum() >= len(values):
            return name
        seen.append(f"{matrix.name} holds values such as {values[np.argmin(whole)]:.4g}")
    raise UserError(
        f"{path}: no raw counts anywhere ({', '.join(seen)}); store the integer counts in raw.X"
    )
