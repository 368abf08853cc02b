"""Find the matrix with raw counts and read it in blocks of rows, in bounded memory.

A CSC matrix is read several times, because a row's values are in all parts of the file.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from scsigmoid.corpus.hdf5 import listed
from scsigmoid.errors import UserError
from scsigmoid.progress import log

CANDIDATES = ("raw/X", "X")
SAMPLE = 65536
FEW = 1024
TOLERANCE = 1e-6  # in CELLxGENE files, counts are integers only up to 1e-11
UNFILLED = "fill missing values with 0, as anndata.concat(..., fill_value=0) does"
BLOCK_VALUES = 1 << 22  # stored values of a block: 32 MB of a sparse matrix
TRANSPOSED_VALUES = 1 << 24  # values of a block of a CSC matrix: 1 GB meanwhile
DENSE_VALUES = 1 << 27  # chunks of rows with more values are read in parts, again for each part
BINARY = "says only whether genes are expressed; ranks need counts: store the raw ones in raw.X"

Int64s = NDArray[np.int64]


# Consecutive rows: the first of them, and a SciPy CSR matrix, rows x genes, in the stored dtype.
Block = tuple[int, Any]
# Some entries of a matrix: rows, columns and values.
Entries = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]


class NoCountsError(UserError):
    """A file has no matrix with raw counts."""


class Matrix:
    """A stored matrix, cells x genes: dense, CSR or CSC.

    Attributes:
        shape: cells and genes.
    """

    def __init__(self, stored: Any, path: Path, name: str) -> None:
        """Check that an HDF5 group (sparse) or dataset (dense) is a matrix, without its values."""
        self.path, self.name = path, name
        self._stored = stored
        encoding = str(stored.attrs.get("encoding-type", "array"))
        self.kind = encoding.removesuffix("_matrix") if encoding != "array" else "dense"
        if self.kind not in ("dense", "csr", "csc"):
            raise UserError(f"{path}: {name} is stored as {encoding!r}; write it as CSR")
        try:
            values = stored if self.kind == "dense" else stored["data"]
            cells, genes = stored.shape if self.kind == "dense" else stored.attrs["shape"]
            dtype = values.dtype
        except (AttributeError, KeyError, ValueError):
            raise UserError(
                f"{path}: {name} is not a matrix as anndata writes it; write the file again"
            ) from None
        if dtype.kind not in "biuf":
            raise UserError(
                f"{path}: {name} does not contain numbers; store the raw integer counts in raw.X"
            )
        if dtype.kind == "b":
            raise UserError(f"{path}: {name} {BINARY}")
        if dtype == np.float16:
            raise UserError(
                f"{path}: {name} is float16, which is exact only up to 2,048; store the raw "
                "counts as integers or float32"
            )
        self.shape: tuple[int, int] = (int(cells), int(genes))

    def sample(self) -> NDArray[np.float64]:
        """Return the first non-zero values: of a few chunks, or of ``SAMPLE`` stored values."""
        if self.kind != "dense":
            values = self._stored["data"][:SAMPLE]
        elif self._stored.chunks is None:
            values = self._stored[: max(1, SAMPLE // max(1, self.shape[1]))].ravel()
        else:  # chunk by chunk, because a row may span as many chunks as it has genes
            values = np.zeros(0)
            for rows, columns in self._stored.iter_chunks():
                chunk = self._stored[rows, columns]
                values = np.append(values, chunk[chunk != 0][:SAMPLE])
                if len(values) >= FEW:
                    break
        values = values.astype(np.float64)
        return values[values != 0]

    def counts(
        self, wanted: NDArray[np.int64], gene_of_column: NDArray[np.int64], genes: int
    ) -> Iterator[Block]:
        """Read blocks of rows that together contain the wanted rows.

        Args:
            wanted: rows, ascending.
            gene_of_column: gene of each column, or -1. Counts of the same gene are added.
            genes: number of genes.

        Yields:
            CSR matrices of int32, rows x genes, without stored zeros or repeated entries.
        """
        columns = np.flatnonzero(gene_of_column >= 0)
        ones = np.ones(len(columns), dtype=np.int64)
        selection = csr_matrix(
            (ones, (columns, gene_of_column[columns])), shape=(len(gene_of_column), genes)
        )
        read = {"dense": dense_rows, "csr": compressed_rows, "csc": transposed_rows}[self.kind]
        for start, block in read(self._stored, self.shape, wanted):
            block.data = self._integers(block, start).astype(np.int64)
            counts = block @ selection
            counts.eliminate_zeros()
            if counts.nnz and counts.data.max() > np.iinfo(np.int32).max:
                raise UserError(
                    f"{self.path}: {self.name} has counts of a gene listed twice whose sum "
                    "exceeds 2,147,483,647; list the gene once"
                )
            counts.data = counts.data.astype(np.int32)
            yield start, counts

    def _integers(self, block: Any, start: int) -> NDArray[np.int32]:
        """Return the values of a block, whose first row is ``start``, as integers."""
        values = block.data
        rounded = np.rint(values)
        is_exact = bool((rounded == values).all())  # in nearly all files
        if is_exact and (not len(values) or (values.min() >= 0 and values.max() < 2**31)):
            return values.astype(np.int32)
        wrong = ~(integral(values) & (rounded >= 0) & (rounded < 2**31))
        if wrong.any():
            index = int(np.argmax(wrong))
            row = start + int(np.searchsorted(block.indptr, index, side="right")) - 1
            value = values[index]
            raise UserError(
                f"{self.path}: {self.name} has {value:.8g} in row {row}, which is not a count from "
                "0 to 2^31 - 1; "
                f"{UNFILLED if np.isnan(value) else 'store the raw integer counts in raw.X'}"
            )
        return rounded.astype(np.int32)


def integral(values: Any) -> Any:
    """Return which values are integers, up to the tolerance. NaN and infinity are not."""
    with np.errstate(invalid="ignore"):
        return np.abs(values - np.rint(values)) <= TOLERANCE


def find_counts(file: Any, path: Path, layer: str = "") -> str:
    """Return the name of the matrix with raw counts: ``layer`` or, if empty, ``raw/X`` or ``X``.

    Most raw counts are positive integers, and hardly any normalized values are, so a sample of the
    first values is enough. All values are checked when they are read.
    """
    layers = file.get("layers")
    present = list(layers) if isinstance(layers, h5py.Group) else []
    if layer and layer not in present:
        raise UserError(f"{path}: has no layer {layer!r}; its layers: {listed(layer, present)}")
    seen, advice = [], "store the integer counts in raw.X"
    for name in [f"layers/{layer}"] if layer else CANDIDATES:
        if name not in file:
            continue
        matrix = Matrix(file[name], path, name.replace("/", "."))
        fraction = first_fraction(matrix)
        if fraction is None:
            return name
        seen.append(f"{matrix.name} has values such as {fraction:.8g}")
        if np.isnan(fraction):
            advice = UNFILLED
    for name in present:
        with suppress(UserError):  # the layer is not a matrix
            if first_fraction(Matrix(layers[name], path, name)) is None:
                seen.append(f"layers[{name!r}] has some")
                advice = "give that as 'layer'"
    where = f"layers.{layer}" if layer else "raw.X or X"
    raise NoCountsError(
        f"{path}: no raw counts in {where} ({', '.join(seen) or 'there is neither'}); {advice}"
    )


def first_fraction(matrix: Matrix) -> float | None:
    """Return a value that is not a count if most of the first values are not, else None."""
    values = matrix.sample()
    if len(values) >= FEW and (values == 1).all():
        raise NoCountsError(f"{matrix.path}: {matrix.name} {BINARY}")
    is_count = integral(values)
    return None if 2 * is_count.sum() >= len(values) else float(values[np.argmin(is_count)])


def compressed_rows(stored: Any, shape: tuple[int, int], wanted: Int64s) -> Iterator[Block]:
    """Read a CSR matrix, in blocks of at most ``BLOCK_VALUES`` values, or of one row."""
    ends = read_indptr(stored, *shape)
    for start, stop in containing(bounds(ends, BLOCK_VALUES), wanted):
        first, last = int(ends[start]), int(ends[stop])
        columns = check_indices(stored["indices"][first:last], shape[1]).astype(np.int32)
        indptr = (ends[start : stop + 1] - first).astype(np.int32)
        values = stored["data"][first:last]
        yield start, csr_matrix((values, columns, indptr), shape=(stop - start, shape[1]))


def dense_rows(stored: Any, shape: tuple[int, int], wanted: Int64s) -> Iterator[Block]:
    """Read a dense matrix, in blocks of whole chunks of rows unless these are too large."""
    rows = max(1, BLOCK_VALUES // max(1, shape[1]))
    chunk = stored.chunks[0] if stored.chunks else 1
    if chunk * shape[1] <= DENSE_VALUES:
        rows = max(chunk, rows - rows % chunk)
    starts = range(0, shape[0], rows)
    for start, stop in containing(((start, start + rows) for start in starts), wanted):
        values = stored[start:stop]
        yield start, csr_matrix(values.astype(values.dtype.newbyteorder("="), copy=False))


def transposed_rows(stored: Any, shape: tuple[int, int], wanted: Int64s) -> Iterator[Block]:
    """Read a CSC matrix, in blocks of at most ``TRANSPOSED_VALUES`` values, or of one row.

    The whole matrix is read once to count the values of each row, and once for each block.
    """
    counts = np.zeros(shape[0], dtype=np.int64)
    for rows, _, _ in entries_by_column(stored, shape):
        counts += np.bincount(rows, minlength=len(counts))
    ends = np.concatenate([[0], np.cumsum(counts)])
    blocks = [*containing(bounds(ends, TRANSPOSED_VALUES), wanted)]
    log(f"not stored by rows: {ends[-1]:,} values are read {len(blocks) + 1} times")
    for start, stop in blocks:
        yield start, gather(stored, shape, start, stop, int(ends[stop] - ends[start]))


def gather(stored: Any, shape: tuple[int, int], start: int, stop: int, size: int) -> Any:
    """Return the rows from ``start`` to ``stop`` of a CSC matrix, which have ``size`` values."""
    places = np.empty((2, size), dtype=np.int32)
    counts = np.empty(size)  # SciPy adds repeated entries, of which float64 holds the sum
    done = 0
    for rows, columns, values in entries_by_column(stored, shape):
        here = np.flatnonzero((rows >= start) & (rows < stop))
        part = slice(done, done + len(here))
        places[:, part] = rows[here] - start, columns[here]
        counts[part] = values[here]
        done = part.stop
    return csr_matrix((counts, places), shape=(stop - start, shape[1]))


def entries_by_column(stored: Any, shape: tuple[int, int]) -> Iterator[Entries]:
    """Read the entries of a CSC matrix, at most ``BLOCK_VALUES`` in a piece."""
    ends = read_indptr(stored, *shape[::-1])
    for first in range(0, max(1, int(ends[-1])), BLOCK_VALUES):
        last = min(first + BLOCK_VALUES, int(ends[-1]))
        counts = np.diff(ends.clip(first, last))
        columns = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        rows = check_indices(stored["indices"][first:last], shape[0])
        yield rows.astype(np.int32), columns, stored["data"][first:last]


def bounds(ends: Int64s, most: int) -> Iterator[tuple[int, int]]:
    """Cut rows into ranges with at most ``most`` values, or of one row.

    Args:
        ends: number of values in all earlier rows, for each row and the end.
        most: values in a range.
    """
    start, rows = 0, len(ends) - 1
    while start < rows:
        stop = int(np.searchsorted(ends, ends[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        yield start, stop
        start = stop


def containing(ranges: Iterable[tuple[int, int]], wanted: Int64s) -> Iterator[tuple[int, int]]:
    """Select the ranges of rows with at least one wanted row."""
    for start, stop in ranges:
        first, last = np.searchsorted(wanted, [start, stop])
        if first < last:
            yield start, stop


def read_indptr(stored: Any, length: int, width: int) -> Int64s:
    """Read and check ``indptr``: cumulative values of the rows (CSR) or columns (CSC), from 0."""
    ends: Int64s = stored["indptr"][:].astype(np.int64)
    values = len(stored["data"])
    if (
        len(ends) != length + 1
        or ends[0] != 0
        or ends[-1] > values
        or len(stored["indices"]) < ends[-1]
        or not ((np.diff(ends) >= 0) & (np.diff(ends) <= width)).all()
    ):
        raise OSError(f"indptr does not describe {length} rows or columns of {values} values")
    return ends


def check_indices(indices: NDArray[Any], length: int) -> NDArray[Any]:
    """Refuse indices outside ``length`` rows or columns, which compiled loops would follow."""
    if len(indices) and not 0 <= indices.min() <= indices.max() < length:
        raise OSError(f"an index is outside {length} rows or columns")
    return indices
