"""Find the matrix with raw counts and read it in blocks of rows.

Memory is bounded for dense and CSR matrices. A CSC matrix is read into memory as a whole.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from scsigmoid.corpus.hdf5 import count_rows, format_names, reading
from scsigmoid.errors import UserError
from scsigmoid.progress import log

CANDIDATES = ("raw/X", "X")  # matrices that may have raw counts, in this order
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


class Matrix:
    """A stored matrix, cells x genes: dense, CSR or CSC."""

    def __init__(self, stored: Any, path: Path, name: str) -> None:
        """Check that an HDF5 group (sparse) or dataset (dense) is a matrix of numbers.

        ``name`` is the name of the matrix in messages.
        """
        self.path, self.name = path, name
        self._stored = stored
        encoding = str(stored.attrs.get("encoding-type", "array"))
        self.kind = encoding.removesuffix("_matrix") if encoding != "array" else "dense"
        if self.kind not in ("dense", "csr", "csc"):
            raise UserError(f"{path}: {name} is stored as {encoding!r}; write it as CSR")
        try:
            values = stored if self.kind == "dense" else stored["data"]
            dtype = values.dtype
            cells, genes = stored.shape if self.kind == "dense" else stored.attrs["shape"]
            self.shape: tuple[int, int] = (int(cells), int(genes))
            is_matrix = self.kind == "dense" or self._has_arrays()
        except (AttributeError, KeyError, TypeError, ValueError):
            is_matrix = False
        if not is_matrix:
            raise UserError(
                f"{path}: {name} is not a matrix as anndata writes it; write the file again"
            )
        if dtype.kind == "b":
            raise UserError(f"{path}: {name} {BINARY}")
        if dtype.kind not in "iuf" or dtype == np.float16:  # float16 is exact only up to 2,048
            raise UserError(
                f"{path}: {name} contains {dtype}; store raw counts in raw.X as integers or float32"
            )

    def _has_arrays(self) -> bool:
        """Return whether the arrays of a sparse matrix have suitable lengths and dtypes."""
        data, indices, pointers = (self._stored[name] for name in ("data", "indices", "indptr"))
        return (
            data.shape == indices.shape == (len(data),)
            and pointers.shape == (self.shape[self.kind == "csc"] + 1,)
            and indices.dtype.kind in "iu"
            and pointers.dtype.kind in "iu"
        )

    def find_fraction(self) -> float | None:
        """Return a value that is not an integer if most sampled values are not, else None.

        Raises:
            NoCountsError: if the values say only whether genes are expressed.
        """
        if self.kind == "dense":
            sample_rows = max(1, SAMPLE // max(1, self.shape[1]))
            values = self._stored[:sample_rows].ravel()
        else:
            values = self._stored["data"][:SAMPLE]
        values = values[values != 0].astype(np.float64)
        if len(values) >= FEWEST_ONES and (values == 1).all():
            raise NoCountsError(f"{self.path}: {self.name} {BINARY}")
        is_integer = are_integers(values)
        return None if 2 * is_integer.sum() >= len(values) else float(values[~is_integer][0])

    def count_stored(self) -> NDArray[np.int64]:
        """Return the number of stored values in each row (CSR) or column (CSC)."""
        pointers = self._stored["indptr"][:].astype(np.int64)
        counts = np.diff(pointers)
        largest = self.shape[self.kind == "csr"]  # of a row: the number of columns
        if (counts < 0).any() or (counts > largest).any():
            raise OSError(f"{self.name}: indptr is not ascending, or its steps are too large")
        if (pointers[0], pointers[-1]) != (0, len(self._stored["data"])):
            raise OSError(f"{self.name}: indptr does not contain all values")
        return counts

    def blocks(self, wanted: NDArray[np.int64]) -> Iterator[Block]:
        """Read blocks of rows that together contain the wanted rows (ascending row numbers).

        A block has about ``BLOCK_VALUES`` values and at least one row. A block of a dense matrix
        consists of whole HDF5 chunks. A CSC matrix is a single block.
        """
        from anndata.io import sparse_dataset

        n_rows, n_columns = self.shape
        with reading(self.name):
            if self.kind == "csc":
                log(f"{self.path}: {self.name} is stored by columns (CSC) and read into memory")
                self.count_stored()  # checks the columns
                matrix = sparse_dataset(self._stored).to_memory()
                matrix.check_format(full_check=True)  # wrong indices crash SciPy
                yield 0, matrix.tocsr()
                return
            if self.kind == "csr":
                stored = sparse_dataset(self._stored)
                values_in_row = self.count_stored()
                values_before = np.cumsum(values_in_row) - values_in_row
                block_of_row = values_before // BLOCK_VALUES
            else:
                stored = self._stored
                chunk_rows = stored.chunks[0] if stored.chunks else 1
                block_rows = max(1, BLOCK_VALUES // max(1, n_columns))
                block_rows = math.ceil(block_rows / chunk_rows) * chunk_rows
                block_of_row = np.arange(n_rows) // block_rows
            # The first row of each block.
            starts = np.flatnonzero(np.diff(block_of_row, prepend=-1)).tolist()
            for start, stop in pairwise([*starts, n_rows]):
                first, last = np.searchsorted(wanted, [start, stop])
                if first < last:
                    block = csr_matrix(stored[start:stop])
                    block.check_format(full_check=True)
                    yield start, block

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
                    f"{self.path}: {self.name} has a gene listed twice whose counts add up to "
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
                f"{self.path}: {self.name} has {value:.8g} in row {row}, which is not a count from "
                "0 to 2^31 - 1; "
                f"{FILL if np.isnan(value) else 'store the raw integer counts in raw.X'}"
            )
        return rounded.astype(np.int64)


def are_integers(values: Any) -> Any:
    """Return which values are integers, up to ``TOLERANCE``. NaN and infinity are not integers."""
    with np.errstate(invalid="ignore"):
        return np.abs(values - np.rint(values)) <= TOLERANCE


def open_matrix(file: Any, path: Path, name: str) -> Matrix:
    """Open a matrix, such as ``raw/X``. Raise an error unless ``obs`` and ``var`` fit its shape."""
    matrix = Matrix(file[name], path, name.replace("/", "."))
    obs_rows, var_rows = (
        count_rows(file[frame]) for frame in ("obs", "raw/var" if name == "raw/X" else "var")
    )
    if matrix.shape != (obs_rows, var_rows):
        n_cells, n_features = matrix.shape
        raise UserError(
            f"{path}: {matrix.name} has {n_cells} rows and {n_features} columns, but obs has "
            f"{obs_rows} rows and var {var_rows}; write the file again"
        )
    return matrix


def find_counts(file: Any, path: Path, layer: str = "") -> str:
    """Return the name of the matrix with raw counts: ``layer`` or, if empty, ``raw/X`` or ``X``.

    Raw counts are integers. Normalized values hardly ever are, so a sample of the first values is
    enough. All values are checked when they are read.
    """
    layers = file.get("layers")
    present = list(layers) if isinstance(layers, h5py.Group) else []
    if layer and layer not in present:
        raise UserError(f"{path}: no layer {layer!r}; its layers: {format_names(layer, present)}")
    findings, advice = [], "store the integer counts in raw.X"
    for name in [f"layers/{layer}"] if layer else CANDIDATES:
        if name not in file:
            continue
        matrix = open_matrix(file, path, name)
        fraction = matrix.find_fraction()
        if fraction is None:
            return name
        findings.append(f"{matrix.name} has values such as {fraction:.8g}")
        if np.isnan(fraction):
            advice = FILL
    for name in present:
        with suppress(UserError):  # the layer is not a matrix
            if open_matrix(file, path, f"layers/{name}").find_fraction() is None:
                findings.append(f"layers[{name!r}] has counts")
                advice = f"set 'layer' to {name!r}"
    where = f"layers.{layer}" if layer else "raw.X or X"
    raise NoCountsError(
        f"{path}: no raw counts in {where} ({', '.join(findings) or 'there is neither'}); {advice}"
    )
