"""Read raw counts and metadata of h5ad files, in chunks of cells."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.genes import Genes, read_genes
from scsigmoid.corpus.hdf5 import (
    FALSE,
    Strings,
    check_column,
    count_rows,
    opened,
    read_column,
)
from scsigmoid.corpus.matrix_reader import NoCountsError, find_counts, open_matrix
from scsigmoid.corpus.metadata import ManifestRow, are_in_ranges, read_part
from scsigmoid.errors import UserError
from scsigmoid.files import verified
from scsigmoid.progress import log
from scsigmoid.seeds import derive

# Text in the manifest for a random share of the cells (see held_out_text).
FRACTION = re.compile(r"fraction=(?P<share>[0-9]*\.?[0-9]+(e-[0-9]+)?) seed=(?P<seed>-?[0-9]+)")
Role = Literal["training", "evaluation"]

CHUNK_CELLS = 1 << 15  # maximum number of cells in a chunk
ON_TISSUE = "in_tissue"  # column of obs in spatial data; 0 for spots off the tissue


class Chunk(NamedTuple):
    """Consecutive selected cells."""

    rows: NDArray[np.int64]  # rows of the cells in the file
    # Raw counts, cells x genes: a SciPy CSR matrix of int32 without stored zeros or repeated
    # entries. The entries of a cell are in any order.
    counts: Any


@dataclass(frozen=True)
class Cells(Genes):
    """The selected cells of an h5ad file. Spots off the tissue are never selected."""

    path: Path
    rows: NDArray[np.int64]  # rows of the selected cells in the file, ascending
    _matrix_name: str  # name of the matrix with counts in the file, such as "raw/X"
    sha256: str = ""  # expected SHA-256 of the file, which `chunks` checks; empty if unknown
    remake: Path = Path()  # file or folder that jobs make again if it is deleted, for messages

    @property
    def n_cells(self) -> int:
        return len(self.rows)

    def select(self, held_out: str, role: Role) -> "Cells":
        """Select the held-out cells (``"evaluation"``) or the other cells (``"training"``).

        ``held_out`` is the text that :func:`held_out_text` returns. Raise an error if its column or
        value is missing, if its fraction is not between 0 and 1, or if no cell is selected.
        """
        is_held_out = np.full(self.n_cells, held_out == "all")
        if fraction := FRACTION.fullmatch(held_out):
            share = float(fraction["share"])
            if not 0 < share < 1:
                raise UserError(
                    f"{self.path}: held_out {held_out!r} is not a fraction between 0 and 1; make "
                    "the manifest again"
                )
            # The choice depends only on the number of cells and the seed. No role is empty.
            count = min(max(1, round(share * self.n_cells)), self.n_cells - 1)
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
        rows = self.rows[is_held_out if role == "evaluation" else ~is_held_out]
        if not len(rows):
            raise UserError(
                f"{self.path}: held_out {held_out!r} leaves no cell for {role}; choose other cells"
            )
        return replace(self, rows=rows)

    def obs(self, columns: Iterable[str]) -> dict[str, Strings]:
        """Read columns of ``obs`` as strings, ``""`` for missing values and missing columns."""
        values = {name: np.full(self.n_cells, "", dtype=object) for name in columns}
        with opened(self.path) as file:
            for name in values:
                if name in file["obs"]:
                    values[name] = read_column(file["obs"], name)[self.rows]
        return values

    def count_nonempty(self) -> int:
        """Return the number of selected cells with counts.

        Of a CSR matrix, only ``indptr`` is read, so cells with only stored zeros are included.
        """
        with opened(self.path) as file:
            matrix = open_matrix(file, self.path, self._matrix_name)
            if matrix.kind == "csr":
                return int((matrix.count_stored()[self.rows] > 0).sum())
        return sum(int((np.diff(chunk.counts.indptr) > 0).sum()) for chunk in self.chunks())

    def chunks(self) -> Iterator[Chunk]:
        """Read the raw counts in bounded memory, at most ``CHUNK_CELLS`` cells at a time.

        Raise an error if counts are negative or not integers, if the file is damaged, or, after the
        last chunk, if the SHA-256 of the file is not ``sha256``.
        """
        with verified(self.path, self.sha256, self.remake), opened(self.path) as file:
            matrix = open_matrix(file, self.path, self._matrix_name)
            for start, counts in matrix.counts(self.rows, self.gene_of_feature, len(self.genes)):
                stop = start + counts.shape[0]
                first, last = np.searchsorted(self.rows, [start, stop])
                rows = self.rows[first:last]  # the selected rows of this block
                if len(rows) < stop - start:
                    counts = counts[rows - start]
                if len(rows) <= CHUNK_CELLS:
                    yield Chunk(rows, counts)  # slicing would copy
                    continue
                for begin in range(0, len(rows), CHUNK_CELLS):
                    chunk = slice(begin, begin + CHUNK_CELLS)
                    yield Chunk(rows[chunk], counts[chunk])


def open_cells(path: str | Path, *, layer: str = "", genes: str = "") -> Cells:
    """Open an h5ad file. Counts are read later, in chunks.

    ``layer`` is the layer with the raw counts, empty for ``raw.X`` or ``X``. ``genes`` is the
    ``gene_column`` of :func:`~.genes.read_genes`.

    Raises:
        NoCountsError: if the file has no raw counts, or only spots off the tissue.
        UserError: if the file is missing, damaged, empty or not an h5ad file, or if it lacks the
            layer or column.
    """
    path = Path(path)
    if path.is_symlink():  # messages name the user's own file, not a link to it
        path = Path(os.path.realpath(path))  # unlike Path.resolve, accepts a link to itself
    with opened(path) as file:
        obs = file["obs"]
        n_cells = count_rows(obs)
        matrix_name = find_counts(file, path, layer)
        if n_cells == 0:
            raise UserError(f"{path}: has no cells; leave the file out")
        if matrix_name == "raw/X":
            file_genes = read_genes(file["raw/var"], path, genes, fallback=file["var"])
        else:
            file_genes = read_genes(file["var"], path, genes)
        rows = np.arange(n_cells)
        if ON_TISSUE in obs:
            rows = np.flatnonzero(~np.isin(read_column(obs, ON_TISSUE), FALSE))
    off_tissue = n_cells - len(rows)
    if off_tissue:
        log(f"{path}: {off_tissue:,} of {n_cells:,} spots are off the tissue and are left out")
    if not len(rows):
        raise NoCountsError(f"{path}: all spots are off the tissue; leave the file out")
    removed = {"spots off the tissue": off_tissue, **file_genes.removed}
    file_genes = replace(file_genes, removed=removed)
    return Cells(**vars(file_genes), path=path, rows=rows, _matrix_name=matrix_name)


def cells_of(row: ManifestRow, path: str | Path) -> Cells:
    """Open the file of a manifest row, and select the row's cells without excluded cells."""
    role: Role = "evaluation" if row.role == "evaluation" else "training"
    cells = open_cells(path, layer=row.layer, genes=row.genes).select(row.held_out, role)
    return replace(cells, rows=cells.rows[~are_in_ranges(cells.rows, row.excluded)])


def cells_of_part(folder: str | Path) -> list[tuple[ManifestRow, Cells]]:
    """Open the training cells of a part: a folder with h5ad files and ``files.csv``.

    Reading their counts compares the files with the SHA-256 in ``files.csv``.
    """
    folder = Path(folder)
    rows = [row for row in read_part(folder) if row.role == "training"]
    return [
        (row, replace(cells_of(row, folder / f"{row.file}.h5ad"), sha256=row.sha256, remake=folder))
        for row in rows
    ]


def held_out_text(held_out: bool | float | str, seed: int) -> str:
    """Return the setting ``held_out`` as manifest text, so that all jobs select the same cells.

    The text is ``""`` (none), ``all``, ``fraction=0.1 seed=42`` or ``column=value``.
    """
    if isinstance(held_out, bool):
        return "all" if held_out else ""
    if isinstance(held_out, str):
        return held_out
    return f"fraction={held_out!r} seed={seed}"
