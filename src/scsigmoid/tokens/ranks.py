"""Rank tokens: the genes of a cell, ordered by descending expression.

As in Geneformer and TEDDY, the value of gene g in a cell is

    count / cell total * target sum / median of g.

Genes with a non-zero count are ordered by descending value, and equal values by ascending token.
The cell total includes genes outside the vocabulary. Values are computed in double precision, in
the order of operations above.

The loop over cells is compiled by numba with one thread and without fast math. The n genes of a
cell are sorted in two steps:

1. As integers, the bit patterns of positive floats have the same order as the floats. The range of
   these integers is divided into 2 n buckets of equal width, and the values are distributed to
   them.
2. Buckets with many values are sorted by Shell sort. Then all values are sorted by insertion.

This takes linear time, unless many values are in one bucket, for example if many genes have the
same count and the same median.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scsigmoid.corpus.counts import TARGET_SUM, Cells, Chunk
from scsigmoid.corpus.genes import check_shared
from scsigmoid.progress import log, track
from scsigmoid.tokens.packed import CellTokens, token_type
from scsigmoid.tokens.vocabulary import Vocabulary

CROWDED = 32  # buckets with more values are sorted by Shell sort


def tokenize(cells: Cells, vocabulary: Vocabulary, maximum_length: int) -> CellTokens:
    """Return the rank tokens of cells, in memory. Log how many cells are truncated.

    Arguments and errors are as for :func:`ranked_chunks`.
    """
    parts = [part for _, part in ranked_chunks(cells, vocabulary, maximum_length)]
    genes = np.concatenate([part.genes for part in parts])
    log_truncated(cells, int((genes > maximum_length).sum()), maximum_length)
    return CellTokens(
        np.concatenate([part.tokens for part in parts]), ends(genes, maximum_length), genes
    )


def ranked_chunks(
    cells: Cells, vocabulary: Vocabulary, maximum_length: int
) -> Iterator[tuple[Chunk, CellTokens]]:
    """Yield counts in chunks, and their rank tokens.

    Args:
        cells: cells of a file or in memory, with the vocabulary's gene ids.
        vocabulary: genes and their medians.
        maximum_length: cells are truncated to this number of tokens.

    Raises:
        UserError: if the cells have too few genes of the vocabulary, or values that are not counts.
    """
    cells = cells.with_ids(vocabulary.retired)
    token_of_column = vocabulary.tokens(cells.genes)
    check_shared(cells, vocabulary.name_of, cells.title, "the vocabulary")
    progress = track(
        cells.chunks(), label=f"tokenizing {Path(cells.title).name}", unit="cells",
        total=cells.n_cells, size=lambda chunk: len(chunk.rows),
    )  # fmt: skip
    for chunk in progress:
        arguments = token_of_column, vocabulary.medians, maximum_length
        yield chunk, rank_tokens(chunk.counts, *arguments)


def log_truncated(cells: Cells, truncated: int, maximum_length: int) -> None:
    """Log the number of truncated cells, if any."""
    if truncated:
        log(
            f"{cells.title}: {truncated:,} of {cells.n_cells:,} cells "
            f"({100 * truncated / cells.n_cells:.1f} %) express more than {maximum_length:,} genes "
            "of the vocabulary and are cut"
        )


def rank_tokens(
    counts: Any,
    token_of_column: NDArray[np.int64],
    medians: NDArray[np.float64],
    maximum_length: int,
) -> CellTokens:
    """Convert counts to rank tokens.

    Args:
        counts: raw counts, CSR matrix without stored zeros, shape (cells, genes).
        token_of_column: unique token of each gene, or -1 outside the vocabulary, shape (genes,).
        medians: median of each token's gene, shape (vocabulary size,).
        maximum_length: cells are truncated to this number of tokens.
    """
    tokens = np.empty(counts.nnz, dtype=token_type(len(medians)))
    genes = rank_cells(
        counts.indptr.astype(np.int32, copy=False),
        counts.indices.astype(np.int32, copy=False),
        counts.data.astype(np.int32, copy=False),
        token_of_column.astype(np.int32),
        medians[token_of_column],  # the value for token -1 is arbitrary and not used
        int(maximum_length),
        tokens,
    )
    offsets = ends(genes, maximum_length)
    return CellTokens(tokens[: offsets[-1]].copy(), offsets, genes)


def ends(genes: NDArray[np.int32], maximum_length: int) -> NDArray[np.int64]:
    """Return ``offsets`` for :class:`~.packed.CellTokens`."""
    return np.concatenate([[0], np.cumsum(np.minimum(genes, maximum_length), dtype=np.int64)])


@njit(cache=True, nogil=True, error_model="numpy")
def rank_cells(
    indptr: NDArray[np.int32],
    columns: NDArray[np.int32],
    counts: NDArray[np.int32],
    token_of_column: NDArray[np.int32],
    median_of_column: NDArray[np.float64],
    maximum_length: int,
    tokens: NDArray[np.unsignedinteger],
) -> NDArray[np.int32]:
    """Fill ``tokens``, and return ``genes``, both as for :class:`~.packed.CellTokens`.

    ``indptr``, ``columns`` and ``counts`` are the arrays of the CSR matrix. ``tokens`` has room for
    all non-zero counts.
    """
    cells = len(indptr) - 1
    genes = np.zeros(cells, np.int32)
    longest = 1  # largest number of non-zero counts of a cell
    for cell in range(cells):
        longest = max(longest, indptr[cell + 1] - indptr[cell])
    # These arrays are reused for every cell. `values` are in the order of columns, `ranked` are the
    # same values in the order of buckets.
    values, value_tokens = np.empty(longest), np.empty(longest, np.int32)
    bits = values.view(np.int64)
    ranked, ranked_tokens = np.empty(longest), np.empty(longest, np.int32)
    bucket = np.empty(longest, np.int32)  # bucket of each value
    ends = np.empty(2 * longest + 1, np.int32)  # after step 1, the end of each bucket in `ranked`
    written = 0
    for cell in range(cells):
        first, stop = indptr[cell], indptr[cell + 1]
        total = counts[first:stop].sum()
        n = 0
        for entry in range(first, stop):
            column = columns[entry]
            if token_of_column[column] >= 0:
                values[n] = counts[entry] / total * TARGET_SUM / median_of_column[column]
                value_tokens[n] = token_of_column[column]
                n += 1
        if n == 0:
            continue
        genes[cell] = n
        kept = min(n, maximum_length)

        # Step 1: distribute the values to buckets. Bucket 0 contains the largest value.
        low, high = bits[:n].min(), bits[:n].max()
        scale = (2 * n - 1) / max(float(high - low), 1.0)
        ends[: 2 * n + 1] = 0
        # First, ends[b + 1] is the number of values in bucket b,
        for i in range(n):
            bucket[i] = np.int32(float(high - bits[i]) * scale)
            ends[bucket[i] + 1] += 1
        # then ends[b] is the start of bucket b,
        largest = 0  # number of values in the largest bucket
        for b in range(2 * n):
            largest = max(largest, ends[b + 1])
            ends[b + 1] += ends[b]
        # and, after bucket b is filled, its end.
        for i in range(n):
            place = ends[bucket[i]]
            ranked[place], ranked_tokens[place] = values[i], value_tokens[i]
            ends[bucket[i]] = place + 1

        # Step 2: sort crowded buckets, then all values.
        if largest > CROWDED:
            start = 0
            for b in range(2 * n):
                if ends[b] - start > CROWDED:
                    sort(ranked, ranked_tokens, start, ends[b], is_crowded=True)
                start = ends[b]
        # Sort up to the end of the first bucket with end >= kept. It has the last kept token.
        last_bucket = np.searchsorted(ends[: 2 * n], kept)
        sort(ranked, ranked_tokens, 0, ends[last_bucket], is_crowded=False)
        tokens[written : written + kept] = ranked_tokens[:kept]
        written += kept
    return genes


@njit(cache=True, nogil=True)
def sort(
    values: NDArray[np.float64], tokens: NDArray[np.int32], start: int, stop: int, is_crowded: bool
) -> None:
    """Sort ``values[start:stop]`` and their tokens in place, by descending value, then by token.

    If ``is_crowded``, use Shell sort, which is faster if values are far from their place. Otherwise
    use insertion sort, which is Shell sort with a gap of 1 only.
    """
    gap = 1  # Knuth's gaps are 1, 4, 13, ...
    while is_crowded and 9 * gap < stop - start:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(start + gap, stop):
            value, token = values[i], tokens[i]
            j = i - gap
            while j >= start and (values[j] < value or (values[j] == value and tokens[j] > token)):
                values[j + gap], tokens[j + gap] = values[j], tokens[j]
                j -= gap
            values[j + gap], tokens[j + gap] = value, token
        gap //= 3
