"""The one reader of h5ad files: raw counts in chunks, whatever the storage.

A file in the CELLxGENE layout holds raw counts in ``raw.X``, or in ``X`` where no normalised matrix
exists.  Files do not say which it is, so the values decide.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.counts import Matrix, find_counts
from scsigmoid.corpus.held_out import choose
from scsigmoid.corpus.storage import Strings, check_column, check_layout, column, opened
from scsigmoid.errors import UserError

Part = Literal["training", "evaluation", "all"]

VERSIONED = re.compile(r"(ENS[A-Z]*\d+)\.\d+")
SPIKE_IN = "ERCC-"
CHUNK_CELLS = 2048


class Chunk(NamedTuple):
    """Consecutive selected cells.

    Attributes:
        cells: their rows in the file, int64.
        counts: raw counts, cells x genes: a SciPy CSR matrix of int32 with sorted columns and no
            stored zeros.
    """

    cells: NDArray[np.int64]
    counts: Any


@dataclass(frozen=True)
class Cells:
    """The selected cells of one h5ad file.

    Attributes:
        path: the file.
        genes: gene ids without version suffix, unique, spike-ins left out; genes that the file
            lists twice are one, their counts added.
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
        """Read the raw counts, at most ``rows`` cells at a time.

        Raises:
            UserError: for negative or non-integer counts, cells with no expressed gene and damage.
        """
        for chunk in self._read(rows):
            if (np.diff(chunk.counts.indptr) == 0).any():
                raise self._no_expressed_gene(rows)
            yield chunk

    def _read(self, rows: int) -> Iterator[Chunk]:
        with opened(self.path) as file:
            matrix = Matrix(file[self._matrix], self.path, self._matrix.replace("/", "."))
            for start in range(0, matrix.shape[0], rows):
                stop = min(start + rows, matrix.shape[0])
                first, last = np.searchsorted(self.rows, [start, stop])
                if first == last:
                    continue
                cells = self.rows[first:last]
                counts = matrix.counts(start, stop)
                if len(cells) < stop - start:
                    counts = counts[cells - start]
                yield Chunk(cells, merged_columns(counts, self._columns, len(self.genes)))

    def _no_expressed_gene(self, rows: int) -> UserError:
        empty = np.concatenate(
            [chunk.cells[np.diff(chunk.counts.indptr) == 0] for chunk in self._read(rows)]
        )
        return UserError(
            f"{self.path}: {len(empty)} of {self.n_cells} cells express no gene (the first is row "
            f"{empty[0]}); remove them, for example with scanpy.pp.filter_cells(adata, min_genes=1)"
        )


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
        path = path.resolve()
    with opened(path) as file:
        check_layout(file, path)
        obs = file["obs"]
        if label is not None:
            check_column(obs, label, path, "the cell types")
        n_cells = len(obs[obs.attrs["_index"]])
        if n_cells == 0:
            raise UserError(f"{path}: holds no cells; leave the file out")
        matrix = find_counts(file, path)
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
        var = file["raw/var" if matrix == "raw/X" else "var"]
        ids = column(var, str(var.attrs["_index"]))
        names = column(var, "feature_name") if "feature_name" in var else ids
    genes, gene_names, columns = unique_genes(ids, names)
    if not genes:
        raise UserError(f"{path}: holds no genes; leave the file out")
    return Cells(path, genes, gene_names, rows, label or "", matrix, columns)


def unique_genes(
    ids: Sequence[str] | Strings, names: Sequence[str] | Strings
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Strip version suffixes, merge genes listed twice and leave spike-ins out.

    Returns:
        The unique ids and their names in the file's order, and for each column of the file the
        position of its gene, or -1.
    """
    position: dict[str, int] = {}
    kept_names: list[str] = []
    columns = np.full(len(ids), -1, dtype=np.int64)
    for index, (identifier, name) in enumerate(zip(ids, names, strict=True)):
        versioned = VERSIONED.fullmatch(identifier)
        gene = versioned[1] if versioned else identifier
        if gene.startswith(SPIKE_IN):
            continue
        if gene not in position:
            position[gene] = len(position)
            kept_names.append(name or gene)
        columns[index] = position[gene]
    return list(position), kept_names, columns


def merged_columns(counts: Any, columns: NDArray[np.int64], genes: int) -> Any:
    """Move the columns of a CSR matrix to their genes, adding those that share one."""
    from scipy.sparse import csr_matrix

    if genes == len(columns) and np.array_equal(columns, np.arange(genes)):
        return counts
    target = columns[counts.indices]
    kept = target >= 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[counts.indptr]
    merged = csr_matrix(
        (counts.data[kept], target[kept], indptr), shape=(counts.shape[0], genes), copy=False
    )
    merged.sum_duplicates()
    return merged
