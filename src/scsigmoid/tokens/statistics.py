"""Gene statistics: how many cells express a gene, and the median of its relative count in them.

A relative count is x = count / cell total. Each gene has a histogram of x with logarithmic bins, as
in DDSketch (Masson et al. 2019): bin k contains the values RATIO^-(k+1) < x <= RATIO^-k. Histograms
of several parts of the corpus are added to merge them.

The median is estimated from the histogram as if log x were uniform within a bin. Genes with medians
in the same bin therefore rarely have equal estimates, which would tie their ranks. The exact median
is in the same bin as the estimate, so the relative error is below RATIO - 1 = 0.8 %, apart from
rounding.
"""

import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from scsigmoid.corpus.counts import TARGET_SUM
from scsigmoid.corpus.genes import ambiguous_names, group_by_name, is_id
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, parsing
from scsigmoid.progress import track

RATIO = 1.008
BINS = 2880  # enough for x down to one transcript in 9 * 10^9

SCHEMA = pa.schema(
    [
        ("gene_id", pa.string()),
        ("name", pa.string()),
        ("cells", pa.int64()),
        ("bins", pa.list_(pa.int32())),  # non-empty bins of the gene's histogram
        ("counts", pa.list_(pa.int64())),  # number of cells in each of these bins
    ]
)


@dataclass(frozen=True)
class GeneStatistics:
    """Statistics of genes over a set of cells."""

    names: dict[str, str]  # gene symbols by gene id, sorted by id
    histogram: Any  # number of cells in each bin: SciPy CSR matrix of int64, shape (genes, BINS)
    n_cells: int  # number of cells that were counted
    ambiguous: frozenset[str] = frozenset()  # names that do not identify a gene, e.g. Y_RNA

    @property
    def genes(self) -> list[str]:
        return list(self.names)

    @property
    def cells(self) -> NDArray[np.int64]:
        """The number of cells that express each gene: int64, shape (genes,)."""
        return np.asarray(self.histogram.sum(axis=1), dtype=np.int64).ravel()

    def medians(self) -> NDArray[np.float64]:
        """Return the median of count / cell total * 10,000 over the cells that express a gene.

        The shape is (genes,). Medians of genes that are not expressed are NaN. The median of an
        even number of values is the mean of the two middle values.
        """
        # The histogram describes a sequence of values: gene after gene, and the values of a gene
        # from the largest to the smallest. Stored entry i of the histogram stands for `counts[i]`
        # values, at positions `ends[i] - counts[i]` to `ends[i] - 1` of the sequence.
        counts = self.histogram.data
        ends = np.cumsum(counts)
        cells = self.cells
        is_expressed = cells > 0
        starts = (np.cumsum(cells) - cells)[is_expressed]  # position of each gene's first value
        middle = np.zeros(len(starts))
        # The two middle values, which are the same value if the number of cells is odd.
        for rank in ((cells[is_expressed] - 1) // 2, cells[is_expressed] // 2):
            position = starts + rank
            entry = np.searchsorted(ends, position, side="right")
            # Place of the value within its bin, from 0 to 1.
            fraction = (position - (ends[entry] - counts[entry]) + 0.5) / counts[entry]
            value = RATIO ** -(self.histogram.indices[entry] + fraction)
            middle += value / 2
        medians = np.full(len(self.names), np.nan)
        medians[is_expressed] = middle * TARGET_SUM
        return medians


def gather(part: str | Path, output: str | Path, minimum_genes: int = 0) -> None:
    """Write the gene statistics of the training cells of one part as an Arrow IPC file.

    ``part`` is a folder with h5ad files and their ``files.csv``. Cells that express fewer than
    ``minimum_genes`` genes are not counted. The memory is ``4 * BINS`` bytes per gene.
    """
    files = [cells for _, cells in cells_of_part(part)]
    names = names_of_genes(
        pair for cells in files for pair in zip(cells.genes, cells.names, strict=True)
    )
    row_of_gene = {gene: row for row, gene in enumerate(names)}
    histogram = np.zeros((len(names), BINS), dtype=np.uint32)
    n_cells = 0
    for cells in files:
        rows = np.array([row_of_gene[gene] for gene in cells.genes], dtype=np.int64)
        progress = track(
            cells.chunks(), label=f"gene statistics of {Path(cells.title).name}", unit="cells",
            total=cells.n_cells, size=lambda chunk: len(chunk.rows),
        )  # fmt: skip
        for chunk in progress:
            counts = chunk.counts
            if minimum_genes:
                counts = counts[np.diff(counts.indptr) >= minimum_genes]
            count_cells(counts, rows, histogram)
            n_cells += counts.shape[0]
    sparse = csr_matrix(histogram).astype(np.int64)
    ambiguous = frozenset().union(*map(ambiguous_names, files))
    write_statistics(GeneStatistics(names, sparse, n_cells, ambiguous), output)


def names_of_genes(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return, from pairs (id, name), the most frequent name of each gene by gene id, sorted by id.

    Of equally frequent names, the alphabetically first is returned. A name that equals the id is
    returned only if the gene has no other name.
    """
    counts_of_gene: dict[str, Counter[str]] = {}  # how often each gene has each name
    for gene, name in pairs:
        counts_of_gene.setdefault(gene, Counter())[name] += 1
    names = {}
    for gene, counts in sorted(counts_of_gene.items()):
        names[gene] = min(counts, key=lambda name: (name == gene, -counts[name], name))
    return names


def count_cells(counts: Any, rows: NDArray[np.int64], histogram: NDArray[np.uint32]) -> None:
    """Add cells to a histogram in place. Values below the last bin are counted in the last bin.

    ``counts`` are raw counts: a CSR matrix of int32 without stored zeros, shape (cells, genes).
    ``rows`` is the row of each gene in ``histogram``, whose shape is (number of rows, ``BINS``).
    """
    totals = np.asarray(counts.sum(axis=1, dtype=np.int64)).ravel()
    log_totals = np.log(np.maximum(totals, 1))  # `np.repeat` drops cells with total 0
    minus_log_x = np.repeat(log_totals, np.diff(counts.indptr)) - np.log(counts.data)
    bins = np.minimum((minus_log_x / math.log(RATIO)).astype(np.int64), BINS - 1)
    np.add.at(histogram.reshape(-1), rows[counts.indices] * BINS + bins, np.uint32(1))


def merge(first: GeneStatistics, second: GeneStatistics) -> GeneStatistics:
    """Return the sum of two gene statistics, which is exact and independent of the order."""
    names = names_of_genes([*first.names.items(), *second.names.items()])
    histogram = sum_rows(first, names, {}) + sum_rows(second, names, {})
    n_cells, ambiguous = first.n_cells + second.n_cells, first.ambiguous | second.ambiguous
    return GeneStatistics(names, histogram, n_cells, ambiguous)


def sum_rows(statistics: GeneStatistics, genes: Iterable[str], retired: Mapping[str, str]) -> Any:
    """Return the histogram of ``statistics`` with one row for each id in ``genes``.

    ``retired`` maps the ids that are not in ``genes`` to ids in ``genes``. Rows with the same new
    id are added.
    """
    row_of_gene = {gene: row for row, gene in enumerate(genes)}
    new_rows = [row_of_gene[retired.get(gene, gene)] for gene in statistics.names]
    # Element (new row, old row) is 1. The product with the histogram moves and adds its rows.
    ones, old_rows = np.ones(len(new_rows), dtype=np.int64), range(len(new_rows))
    selection = csr_matrix((ones, (new_rows, old_rows)), shape=(len(row_of_gene), len(new_rows)))
    histogram = selection @ statistics.histogram
    histogram.sort_indices()
    return histogram


def merge_by_name(
    statistics: GeneStatistics, preferred: Container[str] = ()
) -> tuple[GeneStatistics, dict[str, str]]:
    """Merge gene ids of an organism that have the same name, except for ambiguous names.

    The merged ids are ids of one gene in different Ensembl releases, or the symbol that a file has
    in place of an id. Each gene keeps its id in ``preferred``, or else its Ensembl id that most
    cells express. Also return a mapping from each replaced id to the id that replaces it.
    """
    cells = dict(zip(statistics.names, statistics.cells.tolist(), strict=True))
    retired: dict[str, str] = {}
    for ids in group_by_name(statistics.names, statistics.ambiguous).values():
        kept = max(ids, key=lambda gene: (gene in preferred, is_id(gene), cells[gene], gene))
        retired |= {gene: kept for gene in ids if gene != kept}
    names = {gene: name for gene, name in statistics.names.items() if gene not in retired}
    merged = replace(statistics, names=names, histogram=sum_rows(statistics, names, retired))
    return merged, dict(sorted(retired.items()))


def write_statistics(statistics: GeneStatistics, output: str | Path) -> None:
    """Write gene statistics as an Arrow IPC file."""
    metadata = {
        "cells": str(statistics.n_cells),
        "ratio": repr(RATIO),
        "ambiguous": json.dumps(sorted(statistics.ambiguous)),
    }
    histogram = statistics.histogram
    offsets = pa.array(histogram.indptr, type=pa.int32())
    bins = pa.ListArray.from_arrays(offsets, pa.array(histogram.indices, type=pa.int32()))
    counts = pa.ListArray.from_arrays(offsets, pa.array(histogram.data, type=pa.int64()))
    columns = [statistics.genes, [*statistics.names.values()], statistics.cells, bins, counts]
    table = pa.table(columns, schema=SCHEMA.with_metadata(metadata))
    with atomic_path(output) as temporary, pa.ipc.new_file(str(temporary), table.schema) as writer:
        writer.write_table(table)


def read_statistics(path: str | Path) -> GeneStatistics:
    """Read gene statistics from a file that :func:`write_statistics` wrote."""
    if not Path(path).is_file():
        raise UserError(f"{path}: no such gene statistics; make them with scsigmoid statistics")
    with parsing(path, "gene statistics of this version"):
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all().combine_chunks()
            table.validate(full=True)
        metadata = table.schema.metadata or {}
        if not table.schema.equals(SCHEMA) or metadata.get(b"ratio") != repr(RATIO).encode():
            raise ValueError("its columns or histogram bins differ")
        offsets = np.cumsum([0, *pc.list_value_length(table["bins"]).to_pylist()])
        data, bins = (pc.list_flatten(table[name]).to_numpy() for name in ("counts", "bins"))
        return GeneStatistics(
            dict(zip(table["gene_id"].to_pylist(), table["name"].to_pylist(), strict=True)),
            csr_matrix((data, bins, offsets), shape=(table.num_rows, BINS)),
            int(metadata[b"cells"]),
            frozenset(json.loads(metadata[b"ambiguous"])),
        )
