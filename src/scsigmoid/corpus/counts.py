"""The counts of selected cells, in a file or in an AnnData in memory, in chunks."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.genes import Frame, Genes, Strings, read_genes
from scsigmoid.corpus.matrix_reader import FILL, Matrix, NoCountsError
from scsigmoid.errors import UserError, format_names

LAYER = "layers/"  # start of the names of layers
CANDIDATES = ("raw/X", "X")  # matrices that may have raw counts, in this order
# Column of ``obs`` in copies of selected cells: row of the cell in the user's file, for messages.
OWN_ROW = "scsigmoid_row"
CHUNK_CELLS = 1 << 15  # maximum number of cells in a chunk
#: Total of a cell's scaled counts, as in Geneformer. Any value gives the same ranks,
#: apart from ties.
TARGET_SUM = 10_000.0


class Tables(Protocol):
    """The data frames and matrices of a source, while it is open."""

    matrices: list[str]  # names of the matrices: ``X``, ``raw/X``, ``layers/counts`` and so on

    def frame(self, name: str) -> Frame:
        """Return ``obs``, ``var`` or ``raw/var``."""

    def matrix(self, name: str) -> Matrix:
        """Return a matrix, one of ``matrices``."""


class Source(Protocol):
    """Cells in a file (:mod:`~.h5ad`) or in memory (:mod:`~.memory`).

    ``title`` is the name of the file in messages, or ``adata``.
    """

    @property
    def title(self) -> str: ...

    def opened(self, *, is_complete: bool = False) -> AbstractContextManager[Tables]:
        """Open the source for reading. Raise a UserError if reading fails in the block.

        If ``is_complete``, the block reads all counts. Then raise an error when it ends if the
        SHA-256 of the file is not as expected.
        """


class Chunk(NamedTuple):
    """Consecutive selected cells."""

    rows: NDArray[np.int64]  # rows of the cells in the source
    # Raw counts, cells x genes: a SciPy CSR matrix of int32 without stored zeros or repeated
    # entries. The entries of a cell are in any order.
    counts: Any


@dataclass(frozen=True)
class Cells(Genes):
    """The selected cells of a source."""

    source: Source
    rows: NDArray[np.int64]  # rows of the selected cells in the source, ascending
    matrix_name: str  # of the matrix with counts, such as "raw/X"

    @property
    def title(self) -> str:
        return self.source.title

    @property
    def n_cells(self) -> int:
        return len(self.rows)

    def select(self, is_kept: NDArray[np.bool_]) -> Self:
        """Select some of the cells. ``is_kept`` has a value for each selected cell."""
        return replace(self, rows=self.rows[is_kept])

    def obs(self, columns: Iterable[str]) -> dict[str, Strings]:
        """Read columns of ``obs`` as strings, ``""`` for missing values and missing columns."""
        absent = np.full(self.n_cells, "", dtype=object)
        with self.source.opened() as tables:
            obs = tables.frame("obs")
            return {name: obs.read(name)[self.rows] if name in obs else absent for name in columns}

    def count_nonempty(self) -> int:
        """Return the number of selected cells with counts.

        Of a CSR matrix, only ``indptr`` is read, so cells with only stored zeros are included.
        """
        with self.source.opened() as tables:
            matrix = open_matrix(tables, self.title, self.matrix_name)
            if matrix.kind == "csr":
                return int((np.diff(matrix.read_indptr())[self.rows] > 0).sum())
        return sum(int((np.diff(chunk.counts.indptr) > 0).sum()) for chunk in self.chunks())

    def chunks(self) -> Iterator[Chunk]:
        """Read the raw counts in bounded memory, at most ``CHUNK_CELLS`` cells at a time.

        Raise an error if counts are negative or not integers, if the source is damaged, or, after
        the last chunk, if the SHA-256 of a file is not as expected.
        """
        with self.source.opened(is_complete=True) as tables:
            matrix = open_matrix(tables, self.title, self.matrix_name)
            for start, counts in matrix.counts(self.rows, self.gene_of_feature, len(self.genes)):
                stop = start + counts.shape[0]
                first, last = np.searchsorted(self.rows, [start, stop])
                for begin in range(first, last, CHUNK_CELLS):
                    rows = self.rows[begin : min(begin + CHUNK_CELLS, last)]
                    is_whole = len(rows) == stop - start  # then selecting rows would only copy
                    yield Chunk(rows, counts if is_whole else counts[rows - start])


def open_source(source: Source, layer: str, genes: str) -> Cells:
    """Return all cells of a source. Counts are read later, in chunks.

    ``layer`` is the layer with the raw counts, empty for ``raw.X`` or ``X``. ``genes`` is the
    ``gene_column`` of :func:`~.genes.read_genes`.

    Raises:
        NoCountsError: if the source has no raw counts.
        UserError: if the source is damaged or empty, or if it lacks the layer or column.
    """
    with source.opened() as tables:
        n_cells = len(tables.frame("obs"))
        name = find_counts(tables, source.title, layer)
        if n_cells == 0:
            raise UserError(f"{source.title}: has no cells; leave the file out")
        fallback = tables.frame("var") if name == "raw/X" else None
        var = tables.frame("raw/var" if name == "raw/X" else "var")
        known = read_genes(var, source.title, genes, fallback)
    return Cells(**vars(known), source=source, rows=np.arange(n_cells), matrix_name=name)


def open_matrix(tables: Tables, title: str, name: str) -> Matrix:
    """Open a matrix, such as ``raw/X``. Raise an error unless ``obs`` and ``var`` fit its shape."""
    matrix = tables.matrix(name)
    frames = ("obs", "raw/var" if name == "raw/X" else "var")
    obs_rows, var_rows = (len(tables.frame(frame)) for frame in frames)
    if matrix.shape != (obs_rows, var_rows):
        n_cells, n_features = matrix.shape
        raise UserError(
            f"{title}: {matrix.name} has {n_cells} rows and {n_features} columns, but obs has "
            f"{obs_rows} rows and var {var_rows}; write the file again"
        )
    return matrix


def log_normalized(counts: Any) -> Any:
    """Return log(1 + counts per 10,000) of a CSR matrix (cells x genes), as float64."""
    values = counts.astype(np.float64)
    totals = np.maximum(np.asarray(values.sum(axis=1)).ravel(), 1)  # avoids a division by 0
    values.data *= np.repeat(TARGET_SUM / totals, np.diff(values.indptr))
    return values.log1p()


def find_counts(tables: Tables, title: str, layer: str = "") -> str:
    """Return the name of the matrix with raw counts: ``layer`` or, if empty, ``raw/X`` or ``X``.

    Raw counts are integers. Normalized values hardly ever are, so a sample of the first values is
    enough. All values are checked when they are read.
    """
    layers = [name.removeprefix(LAYER) for name in tables.matrices if name.startswith(LAYER)]
    if layer and layer not in layers:
        raise UserError(
            f"{title}: has no layer {layer!r}; set 'layer' to the layer with raw counts (layers: "
            f"{format_names(layer, layers)})"
        )
    findings, advice = [], "store the integer counts in raw.X"
    for name in [f"{LAYER}{layer}"] if layer else CANDIDATES:
        if name not in tables.matrices:
            continue
        matrix = open_matrix(tables, title, name)
        value = matrix.find_non_integer()
        if value is None:
            return name
        findings.append(f"{matrix.name} has values such as {value:.8g}")
        if np.isnan(value):
            advice = FILL
    for name in layers:
        with suppress(UserError):  # the layer is not a matrix
            if open_matrix(tables, title, f"{LAYER}{name}").find_non_integer() is None:
                findings.append(f"layers[{name!r}] has counts")
                advice = f"set 'layer' to {name!r}" + ("" if layer else ", or copy it to raw.X")
    where = f"layers.{layer}" if layer else "raw.X or X"
    raise NoCountsError(
        f"{title}: no raw counts in {where} ({', '.join(findings) or 'there is neither'}); {advice}"
    )
