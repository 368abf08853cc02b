"""Read raw counts and metadata of h5ad files, in chunks of cells.

Files in the CELLxGENE layout have raw counts in ``raw.X``, or in ``X`` if they have no normalized
matrix. Files do not state which matrix has counts, so the values are examined.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.genes import read_genes
from scsigmoid.corpus.hdf5 import FALSE, Strings, check_column, check_layout, column, length, opened
from scsigmoid.corpus.matrix_reader import Matrix, NoCountsError, find_counts
from scsigmoid.corpus.metadata import FILES, ManifestRow, are_in_ranges, read_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import verified
from scsigmoid.progress import log
from scsigmoid.seeds import derive

FRACTION = re.compile(r"fraction=(?P<share>\d*\.?\d+(e-\d+)?) seed=(?P<seed>-?\d+)")
Part = Literal["training", "evaluation"]

CHUNK_CELLS = 1 << 15
ON_TISSUE = "in_tissue"  # column of obs in spatial data; 0 for spots off the tissue


class Chunk(NamedTuple):
    """Consecutive selected cells."""

    cells: NDArray[np.int64]  # rows in the file
    # Raw counts, cells x genes: a SciPy CSR matrix of int32 without stored zeros or repeated
    # entries. The entries of a cell are in any order.
    counts: Any


@dataclass(frozen=True)
class Cells:
    """The selected cells of an h5ad file.

    Attributes:
        path: the file.
        genes: unique ids without version, without spike-ins and viruses. Counts of genes that the
            file lists twice are added.
        names: symbols of the genes, or their ids if the file has no symbols.
        rows: rows of the selected cells in the file, ascending. Spots off the tissue are never
            selected.
        changed: number of spots and features of the file that are left out or merged, by kind.
        gene_column: column of ``var`` with the gene ids; empty for the index.
        sha256: expected SHA-256 of the file, which :meth:`chunks` checks; empty if unknown.
        made: file or folder to delete so that the file is made again, for messages.
    """

    path: Path
    genes: list[str]
    names: list[str]
    rows: NDArray[np.int64]
    changed: Mapping[str, int]
    gene_column: str
    _matrix: str  # path of the matrix with counts in the file
    _columns: NDArray[np.int64]  # position in `genes` of each feature, -1 if it is left out
    sha256: str = ""
    made: Path = Path()

    @property
    def n_cells(self) -> int:
        return len(self.rows)

    @property
    def gene_of_feature(self) -> NDArray[np.int64]:
        """Position in ``genes`` of each feature that is not left out."""
        return self._columns[self._columns >= 0]

    def with_current_ids(self, retired: Mapping[str, str]) -> "Cells":
        """Replace retired gene ids by current ones. Counts of genes with the same id are added."""
        if retired.keys().isdisjoint(self.genes):
            return self
        ids = [retired.get(gene, gene) for gene in self.genes]
        name_of: dict[str, str] = {}
        for gene, name in zip(ids, self.names, strict=True):
            name_of.setdefault(gene, name)
        position = {gene: index for index, gene in enumerate(name_of)}
        new_positions = np.array([position[gene] for gene in ids], dtype=np.int64)
        columns = np.where(self._columns >= 0, new_positions[self._columns], -1)
        return replace(self, genes=[*name_of], names=[*name_of.values()], _columns=columns)

    def part(self, held_out: str, part: Part) -> "Cells":
        """Select the held-out cells (``"evaluation"``) or the other cells (``"training"``).

        ``held_out`` is the text that :func:`held_out_text` returns.

        Raises:
            UserError: if no cell is selected, or if the column or value of ``held_out`` is missing.
        """
        is_held_out = np.full(self.n_cells, held_out == "all")
        if fraction := FRACTION.fullmatch(held_out):
            # The choice depends only on the number of cells and the seed.
            count = min(max(1, round(float(fraction["share"]) * self.n_cells)), self.n_cells - 1)
            seed = derive(int(fraction["seed"]), "held out", self.n_cells)
            is_held_out[np.random.default_rng(seed).permutation(self.n_cells)[:count]] = True
        elif held_out not in ("", "all"):
            name, _, value = held_out.partition("=")
            with opened(self.path) as file:
                check_column(file["obs"], name, self.path, "the held-out cells")
            values = self.obs([name])[name]
            is_held_out = values == value
            if not is_held_out.any():
                known = ", ".join(sorted({*values.tolist()} - {""})[:8])
                raise UserError(f"{self.path}: no cell has {name} {value!r}; its values: {known}")
        rows = self.rows[is_held_out if part == "evaluation" else ~is_held_out]
        if not len(rows):
            raise UserError(
                f"{self.path}: held_out {held_out!r} leaves no cell for {part}; choose other cells"
            )
        return replace(self, rows=rows)

    def obs(self, columns: Iterable[str]) -> dict[str, Strings]:
        """Read columns of ``obs`` for the selected cells as strings, ``""`` for missing values."""
        with opened(self.path) as file:
            return {
                name: column(file["obs"], name)[self.rows]
                if name in file["obs"]
                else np.full(self.n_cells, "", dtype=object)
                for name in columns
            }

    def count_expressing(self) -> int:
        """Return the number of selected cells with counts.

        Of a CSR matrix, only ``indptr`` is read. A cell with only stored zeros is then included.
        """
        with opened(self.path) as file:
            matrix = Matrix(file[self._matrix], self.path, self._matrix)
            if matrix.kind == "csr":
                return int((matrix.count_stored()[self.rows] > 0).sum())
        return sum(int((np.diff(chunk.counts.indptr) > 0).sum()) for chunk in self.chunks())

    def chunks(self, rows: int = CHUNK_CELLS) -> Iterator[Chunk]:
        """Read the raw counts in bounded memory, at most ``rows`` cells at a time.

        A cell may have no counts.

        Raises:
            UserError: if counts are negative or not integers, if the file is damaged, or, after the
                last chunk, if the SHA-256 of the file is not ``sha256``.
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
                    part = slice(begin, begin + rows)
                    # Slicing would copy the only chunk.
                    yield Chunk(cells[part], counts if len(cells) <= rows else counts[part])


def open_cells(path: str | Path, *, layer: str = "", genes: str = "") -> Cells:
    """Open an h5ad file. Counts are read later, in chunks.

    Args:
        path: the file.
        layer: layer with the raw counts; empty for ``raw.X`` or ``X``.
        genes: column of ``var`` with the gene ids; empty for its index, or for the only column with
            Ensembl ids if the index has none (:func:`~.genes.column_of_ids`).

    Raises:
        NoCountsError: if the file has no raw counts, or only spots off the tissue.
        UserError: if the file is missing, damaged, empty or not an h5ad file, or if it lacks the
            layer or column.
    """
    path = Path(path)
    if path.is_symlink():  # so that messages name the user's own file, not a link to it
        path = Path(os.path.realpath(path))  # unlike Path.resolve, accepts a link to itself
    with opened(path) as file:
        check_layout(file, path)
        obs = file["obs"]
        matrix = find_counts(file, path, layer)
        n_cells, n_features = Matrix(file[matrix], path, matrix).shape
        var = file["raw/var" if matrix == "raw/X" else "var"]
        if (n_cells, n_features) != (length(obs), length(var)):
            raise UserError(
                f"{path}: {matrix.replace('/', '.')} has {n_cells} rows and {n_features} columns, "
                f"but obs has {length(obs)} rows and var {length(var)}; write the file again"
            )
        if n_cells == 0:
            raise UserError(f"{path}: has no cells; leave the file out")
        file_genes = read_genes(var, path, genes)
        is_selected = np.ones(n_cells, dtype=bool)
        if ON_TISSUE in obs:
            is_selected = ~np.isin(column(obs, ON_TISSUE), FALSE)
    rows = np.flatnonzero(is_selected)
    off_tissue = n_cells - len(rows)
    if off_tissue:
        log(f"{path}: {off_tissue:,} of {n_cells:,} spots are off the tissue and are left out")
    if not len(rows):
        raise NoCountsError(f"{path}: all spots are off the tissue; leave the file out")
    return Cells(
        path=path,
        genes=file_genes.ids,
        names=file_genes.names,
        rows=rows,
        changed={"spots off the tissue": off_tissue, **file_genes.changed},
        gene_column=file_genes.column,
        _matrix=matrix,
        _columns=file_genes.of_feature,
    )


def cells_of(row: ManifestRow, path: str | Path) -> Cells:
    """Open the file of a manifest row, and select the row's cells."""
    part: Part = "evaluation" if row.role == "evaluation" else "training"
    cells = open_cells(path, layer=row.layer, genes=row.genes).part(row.held_out, part)
    return replace(cells, rows=cells.rows[~are_in_ranges(cells.rows, row.excluded)])


def cells_of_part(folder: str | Path) -> list[tuple[ManifestRow, Cells]]:
    """Open the training cells of a part: a folder with h5ad files and ``files.csv``.

    Reading their counts compares the files with the SHA-256 in ``files.csv``.
    """
    folder = Path(folder)
    rows = [row for row in read_manifest(folder / FILES) if row.role == "training"]
    return [
        (row, replace(cells_of(row, folder / f"{row.file}.h5ad"), sha256=row.sha256, made=folder))
        for row in rows
    ]


def held_out_text(held_out: bool | float | str, seed: int) -> str:
    """Return the held-out cells as text for the manifest, so that all jobs select the same cells.

    The text is ``""`` (none), ``all``, ``fraction=0.1 seed=42`` or ``column=value``.
    """
    if isinstance(held_out, bool):
        return "all" if held_out else ""
    if isinstance(held_out, str):
        return held_out
    return f"fraction={held_out!r} seed={seed}"
