"""The one reader of h5ad files: raw counts in chunks, whatever the storage.

A file in the CELLxGENE layout holds raw counts in ``raw.X``, or in ``X`` where no normalised matrix
exists.  Files do not say which it is, so the values decide.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.counts import Matrix, find_counts
from scsigmoid.corpus.genes import check_named, unique_genes
from scsigmoid.corpus.held_out import choose
from scsigmoid.corpus.storage import Strings, check_column, check_layout, column, length, opened
from scsigmoid.errors import UserError

Part = Literal["training", "evaluation", "all"]

CHUNK_CELLS = 1 << 15


class Chunk(NamedTuple):
    """Consecutive selected cells.

    Attributes:
        cells: their rows in the file, int64.
        counts: raw counts, cells x genes: a SciPy CSR matrix of int32 without stored zeros or
            repeated entries; the columns of a cell stand in the order of the file.
    """

    cells: NDArray[np.int64]
    counts: Any


@dataclass(frozen=True)
class Cells:
    """The selected cells of one h5ad file.

    Attributes:
        path: the file.
        genes: gene ids without version suffix, unique, spike-ins and viruses left out; genes that
            the file lists twice are one, their counts added.
        names: symbols of the genes; the ids where the file holds none.
        rows: rows of the selected cells in the file, int64, ascending.
        label: column of ``obs`` with the cell type; empty where none was asked for.
    """

    path: Path
    genes: list[str]
    names: list[str]
    rows: NDArray[np.int64]
    label: str
    _matrix: str
    _columns: NDArray[np.int64]

    @property
    def n_cells(self) -> int:
        """Number of selected cells."""
        return len(self.rows)

    def obs(self, columns: Iterable[str]) -> dict[str, Strings]:
        """Columns of ``obs`` for the selected cells, as strings; ``""`` where a value is absent."""
        with opened(self.path) as file:
            return {
                name: column(file["obs"], name)[self.rows]
                if name in file["obs"]
                else np.full(self.n_cells, "", dtype=object)
                for name in columns
            }

    def labels(self) -> Strings:
        """Cell types of the selected cells; ``"unknown"`` where a value is absent."""
        labels = self.obs([self.label])[self.label]
        return np.where(labels == "", "unknown", labels)

    def chunks(self, rows: int = CHUNK_CELLS) -> Iterator[Chunk]:
        """Read the raw counts in bounded memory, at most ``rows`` cells at a time.

        A cell may have no count at all: whoever needs one looks.

        Raises:
            UserError: for negative or non-integer counts and damage.
        """
        with opened(self.path) as file:
            matrix = Matrix(file[self._matrix], self.path, self._matrix.replace("/", "."))
            for start, counts in matrix.counts(self.rows, self._columns, len(self.genes)):
                stop = start + counts.shape[0]
                first, last = np.searchsorted(self.rows, [start, stop])
                cells = self.rows[first:last]
                if len(cells) < stop - start:
                    counts = counts[cells - start]
                for begin in range(0, len(cells), rows):
                    here = slice(begin, begin + rows)
                    yield Chunk(cells[here], counts if len(cells) <= rows else counts[here])


def open_cells(
    path: str | Path, label: str | None = None, held_out: str = "", part: Part = "all"
) -> Cells:
    """Open an h5ad file and choose its cells; counts are read later, in chunks.

    Args:
        path: the file.
        label: column of ``obs`` with the cell type; required to exist where given.
        held_out: which cells are held out, as the manifest writes it (:mod:`~.held_out`).
        part: ``evaluation`` for the held-out cells, ``training`` for the others, or ``all``.

    Raises:
        UserError: for a file that is missing, no h5ad, damaged, empty, without raw counts, or
            without the label column, and for a choice that leaves no cell.
    """
    path = Path(path)
    if path.is_symlink():  # so that messages name the user's own file
        path = Path(os.path.realpath(path))  # which, unlike resolve, bears a link to itself
    with opened(path) as file:
        check_layout(file, path)
        obs = file["obs"]
        if label is not None:
            check_column(obs, label, path, "the cell types")
        matrix = find_counts(file, path)
        n_cells, n_genes = Matrix(file[matrix], path, matrix).shape
        var = file["raw/var" if matrix == "raw/X" else "var"]
        if (n_cells, n_genes) != (length(obs), length(var)):
            raise UserError(
                f"{path}: {matrix.replace('/', '.')} has {n_cells} cells and {n_genes} genes, its "
                f"frames {length(obs)} and {length(var)}; write the file again"
            )
        if n_cells == 0:
            raise UserError(f"{path}: holds no cells; leave the file out")
        rows = np.arange(n_cells, dtype=np.int64)
        if part != "all":

            def values(name: str) -> Strings:
                check_column(obs, name, path, "the held-out cells")
                return column(obs, name)

            held = choose(held_out, n_cells, values, path)
            rows = rows[held if part == "evaluation" else ~held]
            if not len(rows):
                raise UserError(
                    f"{path}: held_out {held_out!r} leaves no cell for {part}; choose other cells"
                )
        ids = column(var, str(var.attrs["_index"]))
        names = column(var, "feature_name") if "feature_name" in var else ids
    check_named(ids, path)
    genes, gene_names, columns = unique_genes(ids, names)
    if not genes:
        raise UserError(f"{path}: holds no genes; leave the file out")
    return Cells(path, genes, gene_names, rows, label or "", matrix, columns)


def check_labels(cells: Cells) -> None:
    """Refuse evaluated cells among which there is nothing to tell apart.

    Raises:
        UserError: if all are of one type.
    """
    kinds = sorted(set(cells.labels().tolist()))
    if len(kinds) < 2:
        raise UserError(
            f"{cells.path}: all {cells.n_cells} evaluated cells have the {cells.label} "
            f"{kinds[0]!r}; evaluation needs at least two cell types"
        )
