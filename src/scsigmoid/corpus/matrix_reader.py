"""Read a matrix of raw counts, in a file or in memory, in blocks of rows.

Memory is bounded for dense and CSR matrices. A CSC matrix of a file is read into memory as a whole.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, csr_matrix, issparse

from scsigmoid.corpus.hdf5 import attribute_text, reading
from scsigmoid.errors import UserError
from scsigmoid.progress import log

SAMPLE = 65536  # number of stored values that are read to find raw counts
FEWEST_ONES = 1024  # fewer counts may all be 1 by chance
TOLERANCE = 1e-6  # in CELLxGENE files, counts are integers only up to 1e-11
BLOCK_VALUES = 1 << 22  # stored values of a block: 32 MB of a sparse matrix
# Ends of messages.
BINARY = "says only whether genes are expressed; ranks need counts: store raw counts in raw.X"
FILL = "fill missing values with 0, as anndata.concat(..., fill_value=0) does"

Block = tuple[int, Any]  # number of the first row, and a SciPy CSR matrix of consecutive rows


class NoCountsError(UserError):
    """A file has no raw counts."""


@dataclass(frozen=True)
class Matrix:
    """A matrix, cells x genes. Made by :func:`stored_matrix` or :func:`matrix_in_memory`."""

    title: str  # name of the file in messages
    name: str  # name of the matrix in messages
    kind: str  # "dense", "csr" or "csc"
    shape: tuple[int, int]
    # NumPy arrays as in SciPy, or datasets of a file, which are read when they are indexed. A dense
    # matrix has only `data`.
    data: Any
    indices: Any = None
    indptr: Any = None

    def __post_init__(self) -> None:
        """Raise an error unless the values are integers or floats of enough precision."""
        dtype = self.data.dtype
        if dtype.kind == "b":
            raise UserError(f"{self.title}: {self.name} {BINARY}")
        if dtype.kind not in "iuf" or dtype == np.float16:  # float16 is exact only up to 2,048
            raise UserError(
                f"{self.title}: {self.name} contains {dtype}; store raw counts in raw.X as "
                "integers or float32"
            )

    def find_non_integer(self) -> float | None:
        """Return a value that is not an integer if most sampled values are not, else None.

        Raises:
            NoCountsError: if the values say only whether genes are expressed.
        """
        # `data` has rows if the matrix is dense.
        size = max(1, SAMPLE // max(1, self.shape[1])) if self.kind == "dense" else SAMPLE
        values = np.ravel(self.data[:size])
        values = values[values != 0].astype(np.float64)
        if len(values) >= FEWEST_ONES and (values == 1).all():
            raise NoCountsError(f"{self.title}: {self.name} {BINARY}")
        is_integer = are_integers(values)
        return None if 2 * is_integer.sum() >= len(values) else float(values[~is_integer][0])

    def read_indptr(self) -> NDArray[np.int64]:
        """Return ``indptr`` of a sparse matrix. Raise an error if the values contradict it."""
        indptr = self.indptr[:].astype(np.int64)
        counts = np.diff(indptr)
        largest = self.shape[self.kind == "csr"]  # of a row: the number of columns
        if (counts < 0).any() or (counts > largest).any():
            raise OSError(f"{self.name}: indptr is not ascending, or its steps are too large")
        if (indptr[0], indptr[-1]) != (0, len(self.data)):
            raise OSError(f"{self.name}: indptr does not contain all values")
        return indptr

    def blocks(self, wanted: NDArray[np.int64]) -> Iterator[Block]:
        """Read blocks of rows that together contain the wanted rows (ascending row numbers).

        A block has about ``BLOCK_VALUES`` values and at least one row. A block of a dense matrix
        consists of whole HDF5 chunks.
        """
        with reading(self.name):
            if self.kind == "dense":
                chunks = getattr(self.data, "chunks", None)  # of HDF5
                chunk_rows = chunks[0] if chunks else 1
                block_rows = max(1, BLOCK_VALUES // max(1, self.shape[1]))
                block_rows = math.ceil(block_rows / chunk_rows) * chunk_rows
                block_of_row = np.arange(self.shape[0]) // block_rows
                for start, stop in bounds_of_blocks(block_of_row, wanted):
                    values = self.data[start:stop]
                    native = values.dtype.newbyteorder("=")  # SciPy needs the machine's byte order
                    yield start, csr_matrix(values.astype(native, copy=False))
                return
            data, indices, indptr = self.data, self.indices, self.read_indptr()
            if self.kind == "csc":
                rows = self._as_rows(indptr)
                data, indices, indptr = rows.data, rows.indices, rows.indptr.astype(np.int64)
            for start, stop in bounds_of_blocks(indptr[:-1] // BLOCK_VALUES, wanted):
                values = slice(indptr[start], indptr[stop])
                # Unlike this, slicing a SciPy matrix would leave out counts with wrong indices.
                bounds = indptr[start : stop + 1] - indptr[start]
                shape = (stop - start, self.shape[1])
                block = csr_matrix((data[values], indices[values], bounds), shape=shape)
                block.check_format(full_check=True)  # wrong indices crash SciPy
                yield start, block

    def _as_rows(self, indptr: NDArray[np.int64]) -> Any:
        """Return a CSC matrix as a CSR matrix in memory."""
        if isinstance(self.data, h5py.Dataset):
            log(f"{self.title}: {self.name} is stored by columns (CSC) and read into memory")
        columns = csc_matrix((self.data[:], self.indices[:], indptr), shape=self.shape)
        columns.check_format(full_check=True)
        return columns.tocsr()

    def counts(
        self, wanted: NDArray[np.int64], gene_of_column: NDArray[np.int64], n_genes: int
    ) -> Iterator[Block]:
        """Read the counts of genes, in blocks of rows that together contain the wanted rows.

        Args:
            wanted: ascending row numbers.
            gene_of_column: index of the gene of each column, or -1 to leave the column out. Counts
                of columns with the same gene are added.
            n_genes: number of genes.

        Yields:
            First row, and CSR matrix of int32 without stored zeros or repeated entries.
        """
        columns = np.flatnonzero(gene_of_column >= 0)
        genes = gene_of_column[columns]
        # Element (column, gene) is 1 if the column has counts of the gene.
        ones = np.ones(len(columns), dtype=np.int64)
        selection = csr_matrix((ones, (columns, genes)), shape=(len(gene_of_column), n_genes))
        for start, block in self.blocks(wanted):
            block.data = self._as_integers(block, start)
            counts = block @ selection
            counts.eliminate_zeros()
            if counts.nnz and counts.data.max() > np.iinfo(np.int32).max:
                raise UserError(
                    f"{self.title}: {self.name} has a gene listed twice whose counts add up to "
                    "more than 2,147,483,647; list the gene once"
                )
            counts.data = counts.data.astype(np.int32)
            yield start, counts

    def _as_integers(self, block: Any, start: int) -> NDArray[np.int64]:
        """Return the stored values of a block as integers. ``start`` is its first row."""
        values = block.data
        rounded = np.rint(values) if values.dtype.kind == "f" else values
        is_wrong = ~(are_integers(values) & (rounded >= 0) & (rounded < 2**31))
        if is_wrong.any():
            index = int(np.argmax(is_wrong))
            row = start + int(np.searchsorted(block.indptr, index, side="right")) - 1
            value = values[index]
            raise UserError(
                f"{self.title}: {self.name} has {value:.8g} in row {row}, which is not a count "
                "from 0 to 2^31 - 1; "
                f"{FILL if np.isnan(value) else 'store the raw integer counts in raw.X'}"
            )
        return rounded.astype(np.int64)


def bounds_of_blocks(
    block_of_row: NDArray[np.int64], wanted: NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """Yield the first row, and the row after the last, of each block with a wanted row."""
    starts = np.flatnonzero(np.diff(block_of_row, prepend=-1)).tolist()
    for start, stop in pairwise([*starts, len(block_of_row)]):
        first, last = np.searchsorted(wanted, [start, stop])
        if first < last:
            yield start, stop


def are_integers(values: Any) -> Any:
    """Return which values are integers, up to ``TOLERANCE``. NaN and infinity are not integers."""
    with np.errstate(invalid="ignore"):
        return np.abs(values - np.rint(values)) <= TOLERANCE


def stored_matrix(stored: Any, title: str, name: str) -> Matrix:
    """Open a matrix of an h5ad file: an HDF5 group (sparse) or dataset (dense).

    ``title`` and ``name`` name the file and the matrix in messages. Raise a UserError if it is not
    a matrix of numbers as anndata writes it.
    """
    encoding = attribute_text(stored.attrs.get("encoding-type", "array"))
    kind = encoding.removesuffix("_matrix") if encoding != "array" else "dense"
    if kind not in ("dense", "csr", "csc"):
        raise UserError(f"{title}: {name} is stored as {encoding!r}; write it as CSR")
    try:
        n_rows, n_columns = stored.shape if kind == "dense" else stored.attrs["shape"]
        shape = (int(n_rows), int(n_columns))
        if kind == "dense":
            return Matrix(title, name, kind, shape, stored)
        data, indices, indptr = (stored[part] for part in ("data", "indices", "indptr"))
        is_matrix = has_arrays(data, indices, indptr, shape[kind == "csc"])
    except (AttributeError, KeyError, TypeError, ValueError):
        is_matrix = False
    if not is_matrix:
        raise UserError(
            f"{title}: {name} is not a matrix as anndata writes it; write the file again"
        )
    return Matrix(title, name, kind, shape, data, indices, indptr)


def matrix_in_memory(matrix: Any, title: str, name: str) -> Matrix:
    """Open a matrix of an AnnData, which may be backed by a file.

    ``title`` and ``name`` name the AnnData and the matrix in messages. Raise a UserError if it is
    not a dense, CSR or CSC matrix of numbers.
    """
    if isinstance(matrix, h5py.Dataset) or hasattr(matrix, "group"):  # backed, dense or sparse
        return stored_matrix(getattr(matrix, "group", matrix), title, name)
    for method in ("to_memory", "compute"):  # anndata's and dask's lazy matrices
        if hasattr(matrix, method):
            matrix = getattr(matrix, method)()
    if not issparse(matrix):
        matrix = np.asarray(matrix)
        return Matrix(title, name, "dense", matrix.shape, matrix)
    kind = matrix.format
    if kind not in ("csr", "csc"):
        raise UserError(f"{title}: {name} is a sparse matrix of format {kind!r}; convert it to CSR")
    arrays = matrix.data, matrix.indices, matrix.indptr
    if not has_arrays(*arrays, matrix.shape[kind == "csc"]):
        raise UserError(f"{title}: {name} has arrays of wrong lengths; make the matrix again")
    return Matrix(title, name, kind, matrix.shape, *arrays)


def has_arrays(data: Any, indices: Any, indptr: Any, size: int) -> bool:
    """Return whether the arrays of a sparse matrix have suitable lengths and dtypes.

    ``size`` is the number of rows (CSR) or columns (CSC).
    """
    return (
        data.shape == indices.shape == (len(data),)
        and indptr.shape == (size + 1,)
        and indices.dtype.kind in "iu"
        and indptr.dtype.kind in "iu"
    )
