"""Gene statistics that merge: how many cells express a gene, and the median where it is expressed.

The median is read from a histogram of x = count / cell total on a logarithmic grid (as in DDSketch,
Masson et al. 2019): bin k holds RATIO^-(k+1) < x <= RATIO^-k.  Within a bin the values are taken as
spread evenly over its logarithm, so that genes rarely share a median by accident, which would tie
their ranks.  The exact value lies in the same bin, so the median is off by less than RATIO - 1 =
0.8 % (and what double precision adds).  All that is stored are integers: merging is exact, and its
order does not matter.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from scsigmoid.corpus.h5ad import Cells, cells_of_part
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, parsing
from scsigmoid.progress import track

RATIO = 1.008
BINS = 2880  # down to one transcript in 9 * 10^9
TABULATED = 4096  # counts of which the logarithm is looked up

SCHEMA = pa.schema(
    [
        ("gene_id", pa.string()),
        ("name", pa.string()),
        ("cells", pa.int64()),
        ("bins", pa.list_(pa.int32())),
        ("counts", pa.list_(pa.int64())),
    ]
)


@dataclass(frozen=True)
class GeneStatistics:
    """Statistics of genes over some cells."""

    genes: list[str]  # ids, sorted
    names: list[str]  # their symbols
    histogram: Any  # cells in each bin, genes x BINS: a SciPy CSR matrix of int64
    n_cells: int  # cells read
    target_sum: float  # what the counts of a cell are scaled to in `medians`

    @property
    def cells(self) -> NDArray[np.int64]:
        """Number of cells that express each gene."""
        return np.asarray(self.histogram.sum(axis=1), dtype=np.int64).ravel()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        digest = hashlib.sha256(f"{self.n_cells} {float(self.target_sum).hex()}".encode())
        digest.update("\n".join([*self.genes, *self.names]).encode())
        for part in (self.histogram.indptr, self.histogram.indices, self.histogram.data):
            digest.update(np.ascontiguousarray(part, dtype=np.int64).data)
        return digest.hexdigest()

    def medians(self) -> NDArray[np.float64]:
        """Median of count / cell total * target sum over the cells that express each gene.

        For an even number of cells: the mean of the two middle ones.  NaN for a gene that no cell
        expresses.
        """
        counts = self.histogram.data
        # Bins go from large values to small ones, so a cell's place is counted from the largest.
        # Adding the cells of the genes before makes one search of the searches within each gene.
        ends = np.cumsum(counts)
        cells = self.cells
        found = cells > 0
        before = (np.cumsum(cells) - cells)[found]
        middle = np.zeros(len(before))
        for place in ((cells[found] - 1) // 2, cells[found] // 2):
            entry = np.searchsorted(ends, before + place, side="right")
            into = (before + place - (ends[entry] - counts[entry]) + 0.5) / counts[entry]
            middle += RATIO ** -(self.histogram.indices[entry] + into) / 2
        medians = np.full(len(self.genes), np.nan)
        medians[found] = middle * self.target_sum
        return medians


def gather(
    part_folder: str | Path, target_sum: float, output: str | Path, minimum_genes: int = 0
) -> None:
    """Gather the statistics of the training cells of one part, and write them as Arrow IPC file.

    Cells that express fewer than ``minimum_genes`` do not count.  Memory holds one histogram of the
    part's genes, ``BINS`` numbers of 4 bytes each.

    Raises:
        UserError: for a file that is not the one whose SHA-256 ``files.csv`` has.
    """
    files = [cells for _, cells in cells_of_part(part_folder)]
    names = names_of_genes(files)
    position = {gene: index for index, gene in enumerate(names)}
    histogram = np.zeros((len(names), BINS), dtype=np.uint32)
    counted = 0
    for cells in files:
        rows = np.array([position[gene] for gene in cells.genes], dtype=np.int64)
        for chunk in track(cells.chunks(), label=f"gene statistics of {cells.path.name}"):
            counts = chunk.counts
            if minimum_genes:
                counts = counts[np.diff(counts.indptr) >= minimum_genes]
            count_cells(counts, rows, histogram)
            counted += counts.shape[0]
    write_statistics(
        GeneStatistics([*names], [*names.values()], sparse(histogram), counted, target_sum),
        output,
    )


def names_of_genes(parts: Iterable[Cells | GeneStatistics]) -> dict[str, str]:
    """The name of each gene, by id in order; of several names, the first in alphabetical order."""
    names: dict[str, str] = {}
    for part in parts:
        for gene, name in zip(part.genes, part.names, strict=True):
            names[gene] = min(names.get(gene, name), name)
    return dict(sorted(names.items()))


def count_cells(counts: Any, rows: NDArray[np.int64], histogram: NDArray[np.uint32]) -> None:
    """Add cells to a histogram, rows x ``BINS``.

    ``counts`` are raw, cells x genes, CSR of int32 without stored zeros; ``rows`` has the
    histogram's row of each gene.
    """
    totals = np.asarray(counts.sum(axis=1, dtype=np.int64)).ravel()
    add_counts(
        counts.indptr,
        counts.indices,
        counts.data,
        np.log(np.maximum(totals, 1)),
        np.log(np.maximum(np.arange(TABULATED), 1)),
        math.log(RATIO),
        rows,
        histogram,
    )


def sparse(histogram: NDArray[np.uint32]) -> Any:
    """A dense histogram as CSR; row by row, as SciPy's own takes three times its memory."""
    bins = [np.flatnonzero(row).astype(np.int32) for row in histogram]
    cells = [row[found].astype(np.int64) for row, found in zip(histogram, bins, strict=True)]
    ends = np.cumsum([0, *map(len, bins)])
    if not bins:
        return csr_matrix((0, BINS), dtype=np.int64)
    return csr_matrix((np.concatenate(cells), np.concatenate(bins), ends), shape=histogram.shape)


@njit(cache=True, nogil=True)
def add_counts(
    indptr: NDArray[np.int32],
    columns: NDArray[np.int32],
    counts: NDArray[np.int32],
    log_totals: NDArray[np.float64],
    log_counts: NDArray[np.float64],
    log_ratio: float,
    row_of_column: NDArray[np.int64],
    histogram: NDArray[np.uint32],
) -> None:
    """Count cells in the bins of their genes.

    The values are put in the order of their genes first, so that one row of the histogram, which
    fits in the cache, is worked on at a time.

    Args:
        indptr, columns, counts: of a CSR matrix, cells x genes; counts are positive.
        log_totals: (cells,) logarithm of each cell's total.
        log_counts: logarithms of 0, 1, 2, ...; larger counts than it holds are computed.
        log_ratio: logarithm of the ratio of a bin's bounds.
        row_of_column: row of the histogram for each column.
        histogram: (rows, bins), is added to; the last bin takes all that is smaller, too.
    """
    starts = np.zeros(len(row_of_column) + 1, np.int64)
    for column in columns:
        starts[column + 1] += 1
    starts = np.cumsum(starts)
    place = starts[:-1].copy()
    bins = np.empty(len(columns), np.int32)
    for cell in range(len(indptr) - 1):
        for entry in range(indptr[cell], indptr[cell + 1]):
            count, column = counts[entry], columns[entry]
            log_count = log_counts[count] if count < len(log_counts) else np.log(float(count))
            found = int((log_totals[cell] - log_count) / log_ratio)
            bins[place[column]] = min(found, histogram.shape[1] - 1)
            place[column] += 1
    for column in range(len(row_of_column)):
        row = histogram[row_of_column[column]]
        for entry in range(starts[column], starts[column + 1]):
            row[bins[entry]] += np.uint32(1)


def merge(parts: Iterable[GeneStatistics]) -> GeneStatistics:
    """Add statistics, one after the other.  Exact, and independent of the order."""
    return reduce(added, parts)


def added(one: GeneStatistics, other: GeneStatistics) -> GeneStatistics:
    """The sum of two statistics; see :func:`merge`."""
    if one.target_sum != other.target_sum:
        raise UserError("gene statistics: made with different tokens.target_sum; make them again")
    names = names_of_genes([one, other])
    position = {gene: index for index, gene in enumerate(names)}
    histogram = spread(one, position) + spread(other, position)
    histogram.sort_indices()
    cells = one.n_cells + other.n_cells
    return GeneStatistics([*names], [*names.values()], histogram, cells, one.target_sum)


def spread(statistics: GeneStatistics, position: Mapping[str, int]) -> Any:
    """The histogram with its genes moved to other rows, which keep their order."""
    histogram = statistics.histogram
    lengths = np.zeros(len(position) + 1, dtype=np.int64)
    rows = np.array([position[gene] for gene in statistics.genes], dtype=np.int64)
    lengths[rows + 1] = np.diff(histogram.indptr)
    return csr_matrix(
        (histogram.data, histogram.indices, np.cumsum(lengths)), shape=(len(position), BINS)
    )


def write_statistics(statistics: GeneStatistics, output: str | Path) -> None:
    histogram = statistics.histogram
    offsets = pa.array(histogram.indptr, type=pa.int32())
    table = pa.table(
        [
            statistics.genes,
            statistics.names,
            statistics.cells,
            pa.ListArray.from_arrays(offsets, pa.array(histogram.indices, type=pa.int32())),
            pa.ListArray.from_arrays(offsets, pa.array(histogram.data, type=pa.int64())),
        ],
        schema=SCHEMA.with_metadata(
            {
                "cells": str(statistics.n_cells),
                "target_sum": repr(float(statistics.target_sum)),
                "ratio": repr(RATIO),
                "fingerprint": statistics.fingerprint,
            }
        ),
    )
    with atomic_path(output) as temporary, pa.ipc.new_file(str(temporary), table.schema) as writer:
        writer.write_table(table)


def read_statistics(path: str | Path) -> GeneStatistics:
    """Read what :func:`write_statistics` wrote.

    Raises:
        UserError: if the file is missing, damaged or was made with another grid.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: no such gene statistics; make them first")
    with parsing(path, "gene statistics of this version"):
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all().combine_chunks()
            table.validate(full=True)
        metadata = table.schema.metadata or {}
        if not table.schema.equals(SCHEMA) or metadata.get(b"ratio") != repr(RATIO).encode():
            raise ValueError("other columns or another grid")
        ends = np.cumsum([0, *pc.list_value_length(table["bins"]).to_pylist()])
        data, bins = (pc.list_flatten(table[name]).to_numpy() for name in ("counts", "bins"))
        statistics = GeneStatistics(
            table["gene_id"].to_pylist(),
            table["name"].to_pylist(),
            csr_matrix((data, bins, ends), shape=(table.num_rows, BINS)),
            int(metadata[b"cells"]),
            float(metadata[b"target_sum"]),
        )
        if statistics.fingerprint != metadata[b"fingerprint"].decode():
            raise ValueError("its content differs from its fingerprint")
    return statistics
