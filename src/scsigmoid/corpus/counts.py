"""Raw counts in an h5ad file: which matrix holds them, and how they are read in blocks of rows."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.matrix_reader import Block, blocks_of
from scsigmoid.corpus.storage import listed
from scsigmoid.errors import UserError

CANDIDATES = ("raw/X", "X")
SAMPLE = 65536
FEW = 1024
TOLERANCE = 1e-6  # CELLxGENE files hold counts that are integers only up to 1e-11


class Matrix:
    """A stored matrix, cells x genes: dense, CSR or CSC.

    Attributes:
        shape: cells and genes.
    """

    def __init__(self, stored: Any, path: Path, name: str) -> None:
        """Look at the matrix without reading it.

        Args:
            stored: the HDF5 group (sparse) or dataset (dense).
            path: the file, for messages.
            name: the matrix, for messages.

        Raises:
            UserError: if it is no matrix of numbers.
        """
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
                f"{path}: {name} holds no numbers; store the raw integer counts in raw.X"
            )
        self.shape: tuple[int, int] = (int(cells), int(genes))

    def sample(self) -> NDArray[np.float64]:
        """The first non-zero values: those of a few chunks, or of ``SAMPLE`` stored ones."""
        if self.kind != "dense":
            values = self._stored["data"][:SAMPLE]
        elif self._stored.chunks is None:
            values = self._stored[: max(1, SAMPLE // max(1, self.shape[1]))].ravel()
        else:  # chunk by chunk, because a row may lie in as many chunks as it has genes
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
        """Blocks of rows that together hold the wanted ones.

        Args:
            wanted: rows, ascending.
            gene_of_column: gene of each column, or -1; the counts of a gene's columns are added.
            genes: number of genes.

        Yields:
            CSR matrices of int32, rows x genes, without stored zeros or repeated entries.

        Raises:
            UserError: for values that are no counts.
        """
        from scipy.sparse import csr_matrix

        from scsigmoid.corpus.compiled import counts_of_genes

        for start, block in blocks_of(self._stored, self.kind, self.shape, wanted):
            values = self._integers(block, start)
            ends, found, counts = counts_of_genes(
                block.indptr, block.indices, values, gene_of_column, genes
            )
            shape = (block.shape[0], genes)
            yield Block(start, csr_matrix((counts, found, ends), shape=shape, copy=False))

    def _integers(self, block: Any, start: int) -> NDArray[np.int32]:
        values = block.data
        rounded = np.rint(values)
        whole = bool((rounded == values).all())  # as nearly all files are
        if whole and (not len(values) or (values.min() >= 0 and values.max() < 2**31)):
            return values.astype(np.int32)
        wrong = ~(integral(values) & (rounded >= 0) & (rounded < 2**31))
        if wrong.any():
            index = int(np.argmax(wrong))
            row = start + int(np.searchsorted(block.indptr, index, side="right")) - 1
            kind = "a negative count" if values[index] < 0 else "a count that is no integer"
            if values[index] >= 2**31:
                kind = "a count beyond 2,147,483,647"
            raise UserError(
                f"{self.path}: {self.name} holds {kind} ({values[index]:g} in row {row}); "
                "store the raw integer counts in raw.X"
            )
        return rounded.astype(np.int32)


def integral(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are integers, up to the tolerance; NaN and infinity are not."""
    with np.errstate(invalid="ignore"):
        return np.abs(values - np.rint(values)) <= TOLERANCE


def find_counts(file: Any, path: Path, layer: str = "") -> str:
    """Name of the matrix that holds raw counts: ``raw/X``, else ``X``; or the layer asked for.

    Most values of raw counts are positive integers and next to none of normalised or scaled values
    are, so a sample of the first values tells them apart.  Whether every value is a count is
    checked when it is read.

    Raises:
        UserError: if there is no such layer, or no matrix with raw counts.
    """
    import h5py

    layers = file.get("layers")
    present = list(layers) if isinstance(layers, h5py.Group) else []
    if layer and layer not in present:
        raise UserError(f"{path}: has no layer {layer!r}; its layers: {listed(layer, present)}")
    seen = []
    for name in [f"layers/{layer}"] if layer else CANDIDATES:
        if name not in file:
            continue
        matrix = Matrix(file[name], path, name.replace("/", "."))
        fraction = first_fraction(matrix)
        if fraction is None:
            return name
        seen.append(f"{matrix.name} holds values such as {fraction:.4g}")
    for name in present:
        with suppress(UserError):  # whatever else a layer is
            if first_fraction(Matrix(layers[name], path, name)) is None:
                seen.append(f"layers[{name!r}] holds some: give it as 'layer'")
    where = f"layers.{layer}" if layer else "raw.X or X"
    raise UserError(
        f"{path}: no raw counts in {where} ({', '.join(seen) or 'there is neither'}); store the "
        "integer counts in raw.X"
    )


def first_fraction(matrix: Matrix) -> float | None:
    """A value that is no count, where few of the first values are; None of raw counts."""
    values = matrix.sample()
    whole = integral(values)
    return None if 2 * whole.sum() >= len(values) else float(values[np.argmin(whole)])
