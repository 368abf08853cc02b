"""Reads h5ad files: raw counts in chunks, whatever the storage.

A file in the CELLxGENE layout holds raw counts in ``raw.X``, or in ``X`` where no normalised matrix
exists.  Files do not say which it is, so the values decide.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.genes import read_genes
from scsigmoid.corpus.hdf5 import Strings, check_column, check_layout, column, length, opened
from scsigmoid.corpus.matrix_reader import Matrix, find_counts
from scsigmoid.corpus.metadata import FILES, ManifestRow, are_in_ranges, read_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import verified
from scsigmoid.seeds import derive

FRACTION = re.compile(r"fraction=(?P<share>\d*\.?\d+(e-\d+)?) seed=(?P<seed>-?\d+)")
Part = Literal["training", "evaluation", "all"]

CHUNK_CELLS = 1 << 15


class Chunk(NamedTuple):
    """Consecutive selected cells."""

    cells: NDArray[np.int64]  # their rows in the file
    # Raw counts, cells x genes: a SciPy CSR matrix of int32 without stored zeros or repeated
    # entries; the columns of a cell stand in the order of the file.
    counts: Any


@dataclass(frozen=True)
class Cells:
    """The selected cells of one h5ad file."""

    path: Path
    # Ids without version suffix, unique, spike-ins and viruses left out; genes that the file lists
    # twice are one, their counts added.
    genes: list[str]
    names: list[str]  # symbols of the genes; the ids where the file holds none
    rows: NDArray[np.int64]  # of the selected cells in the file, ascending
    gene_column: str  # of var, with the gene ids; empty for its index
    _matrix: str
    _columns: NDArray[np.int64]
    sha256: str = ""  # of the file, which `chunks` compares; empty if it is not known
    made: Path = Path()  # what to delete so that the file is made again, for the message

    @property
    def n_cells(self) -> int:
        return len(self.rows)

    @property
    def gene_of_feature(self) -> NDArray[np.int64]:
        """Position in ``genes`` of each feature that is a gene."""
        return self._columns[self._columns >= 0]

    def part(self, held_out: str, part: Part) -> "Cells":
        """Those of all cells that are held out, or the others; see :func:`open_cells`."""
        held = np.full(self.n_cells, held_out == "all")
        if fraction := FRACTION.fullmatch(held_out):
            # by the number of cells and the seed alone
            count = min(max(1, round(float(fraction["share"]) * self.n_cells)), self.n_cells - 1)
            seed = derive(int(fraction["seed"]), "held out", self.n_cells)
            held[np.random.default_rng(seed).permutation(self.n_cells)[:count]] = True
        elif held_out not in ("", "all"):
            name, _, value = held_out.partition("=")
            with opened(self.path) as file:
                check_column(file["obs"], name, self.path, "the held-out cells")
            present = self.obs([name])[name]
            held = present == value
            if not held.any():
                known = ", ".join(sorted({*present.tolist()} - {""})[:8])
                raise UserError(f"{self.path}: no cell has {name} {value!r}; its values: {known}")
        rows = self.rows[held if part == "evaluation" else ~held]
        if not len(rows):
            raise UserError(
                f"{self.path}: held_out {held_out!r} leaves no cell for {part}; choose other cells"
            )
        return replace(self, rows=rows)

    def cell_names(self) -> Strings:
        """Names of the selected cells, of the index of ``obs``."""
        with opened(self.path) as file:
            return column(file["obs"], str(file["obs"].attrs["_index"]))[self.rows]

    def obs(self, columns: Iterable[str]) -> dict[str, Strings]:
        """Columns of ``obs`` for the selected cells, as strings; ``""`` where a value is absent."""
        with opened(self.path) as file:
            return {
                name: column(file["obs"], name)[self.rows]
                if name in file["obs"]
                else np.full(self.n_cells, "", dtype=object)
                for name in columns
            }

    def chunks(self, rows: int = CHUNK_CELLS) -> Iterator[Chunk]:
        """Read the raw counts in bounded memory, at most ``rows`` cells at a time.

        A cell may have no counts.

        Raises:
            UserError: for negative or non-integer counts and damage; after the last chunk, if the
                file's SHA-256 is not the expected one.
        """
        with verified(self.path, self.sha256, self.made), opened(self.path) as file:
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
    path: str | Path,
    held_out: str = "",
    part: Part = "all",
    *,
    layer: str = "",
    genes: str = "",
) -> Cells:
    """Open an h5ad file and choose its cells; counts are read later, in chunks.

    Args:
        path: the file.
        held_out: which cells are held out, as the manifest writes it (:func:`held_out_text`).
        part: ``evaluation`` for the held-out cells, ``training`` for the others, or ``all``.
        layer: layer that holds the raw counts; empty for ``raw.X`` or ``X``.
        genes: column of ``var`` that holds the gene ids; empty for its index, or the one column
            with Ensembl ids where the index has none (:func:`~.genes.column_of_ids`).

    Raises:
        UserError: for a file that is missing, no h5ad, damaged, empty, without raw counts, or
            without a column or layer that was asked for, and for a choice that leaves no cell.
    """
    path = Path(path)
    if path.is_symlink():  # so that messages name the user's own file
        path = Path(os.path.realpath(path))  # which, unlike resolve, bears a link to itself
    with opened(path) as file:
        check_layout(file, path)
        obs = file["obs"]
        matrix = find_counts(file, path, layer)
        n_cells, n_genes = Matrix(file[matrix], path, matrix).shape
        var = file["raw/var" if matrix == "raw/X" else "var"]
        if (n_cells, n_genes) != (length(obs), length(var)):
            raise UserError(
                f"{path}: {matrix.replace('/', '.')} has {n_cells} cells and {n_genes} genes, its "
                f"frames {length(obs)} and {length(var)}; write the file again"
            )
        if n_cells == 0:
            raise UserError(f"{path}: holds no cells; leave the file out")
        of_file = read_genes(var, path, genes)
    rows = np.arange(n_cells, dtype=np.int64)
    columns = of_file.of_feature
    cells = Cells(path, of_file.ids, of_file.names, rows, of_file.column, matrix, columns)
    return cells if part == "all" else cells.part(held_out, part)


def cells_of(row: ManifestRow, path: str | Path) -> Cells:
    """Open the file of a manifest row and choose the row's cells; see :func:`open_cells`."""
    part: Part = "evaluation" if row.role == "evaluation" else "training"
    cells = open_cells(path, row.held_out, part, layer=row.layer, genes=row.genes)
    return replace(cells, rows=cells.rows[~are_in_ranges(cells.rows, row.excluded)])


def cells_of_part(folder: str | Path) -> list[tuple[ManifestRow, Cells]]:
    """The training cells of a part, a folder with h5ad files and ``files.csv``, with their rows.

    Who reads their counts compares the files with the SHA-256 of ``files.csv``.
    """
    folder = Path(folder)
    rows = [row for row in read_manifest(folder / FILES) if row.role == "training"]
    cells = [cells_of(row, folder / f"{row.file}.h5ad") for row in rows]
    return [
        (row, replace(selected, sha256=row.sha256, made=folder))
        for row, selected in zip(rows, cells, strict=True)
    ]


def held_out_text(held_out: bool | float | str, seed: int) -> str:
    """The held-out cells as the manifest writes them, so that all jobs choose the same ones.

    ``""`` (none), ``all``, ``fraction=0.1 seed=42`` or ``column=value``.
    """
    if isinstance(held_out, bool):
        return "all" if held_out else ""
    if isinstance(held_out, str):
        return held_out
    return f"fraction={held_out!r} seed={seed}"
