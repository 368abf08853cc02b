"""Open the cells of h5ad files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scsigmoid.corpus.counts import CANDIDATES, LAYER, Cells, open_source
from scsigmoid.corpus.hdf5 import FALSE, StoredFrame, opened
from scsigmoid.corpus.matrix_reader import Matrix, NoCountsError, stored_matrix
from scsigmoid.files import verified
from scsigmoid.progress import log

ON_TISSUE = "in_tissue"  # column of obs in spatial data; 0 for spots off the tissue


class StoredTables:
    """The data frames and matrices of an open h5ad file (:class:`~.counts.Tables`)."""

    def __init__(self, file: Any, title: str) -> None:
        import h5py

        self._file, self._title = file, title
        self.matrices = [name for name in CANDIDATES if name in file]
        if isinstance(layers := file.get("layers"), h5py.Group):
            self.matrices += [f"{LAYER}{name}" for name in layers]

    def frame(self, name: str) -> StoredFrame:
        return StoredFrame(self._file[name], self._title)

    def matrix(self, name: str) -> Matrix:
        return stored_matrix(self._file[name], self._title, name.replace("/", "."))


@dataclass(frozen=True)
class H5adFile:
    """An h5ad file (:class:`~.counts.Source`)."""

    path: Path
    title: str  # name of the file in messages
    sha256: str = ""  # expected SHA-256; empty if unknown
    remake: Path = Path()  # file or folder that jobs make again if it is deleted, for messages

    @contextmanager
    def opened(self, *, is_complete: bool = False) -> Iterator[StoredTables]:
        checked = verified(self.path, self.sha256, self.remake) if is_complete else nullcontext()
        with checked, opened(self.path, self.title) as file:
            yield StoredTables(file, self.title)


def open_cells(
    path: str | Path,
    *,
    layer: str = "",
    genes: str = "",
    title: str = "",
    sha256: str = "",
    remake: Path = Path(),
) -> Cells:
    """Open an h5ad file. Counts are read later, in chunks. Spots off the tissue are left out.

    Args:
        layer, genes: as for :func:`~.counts.open_source`.
        title: name of the file in messages (default: its path, without symbolic links).
        sha256: SHA-256 that reading all counts checks (default: not checked).
        remake: file or folder that jobs make again if it is deleted, for messages.

    Raises:
        NoCountsError: if the file has no raw counts, or only spots off the tissue.
        UserError: if the file is missing, damaged, empty or not an h5ad file, or if it lacks the
            layer or column.
    """
    path = Path(path)
    if path.is_symlink():  # messages name the user's own file, not a link to it
        path = Path(os.path.realpath(path))  # unlike Path.resolve, accepts a link to itself
    source = H5adFile(path, title or str(path), sha256, remake)
    cells = open_source(source, layer, genes)
    is_off_tissue = np.isin(cells.obs([ON_TISSUE])[ON_TISSUE], FALSE)
    n_off_tissue = int(is_off_tissue.sum())
    if n_off_tissue:
        log(
            f"{cells.title}: {n_off_tissue:,} of {cells.n_cells:,} spots are off the tissue and "
            "are left out"
        )
    if is_off_tissue.all():
        raise NoCountsError(f"{cells.title}: all spots are off the tissue; leave the file out")
    removed = {"spots off the tissue": n_off_tissue, **cells.removed}
    return replace(cells.select(~is_off_tissue), removed=removed)
