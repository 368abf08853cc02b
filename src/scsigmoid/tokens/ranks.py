"""Rank tokens: a cell as its genes, from the most to the least expressed.

As Geneformer and TEDDY define it: the value of gene g in a cell is

    count / cell total * target sum / median of g,

over genes with a non-zero count; genes are ordered by descending value.  The cell total counts all
genes of the file, in the vocabulary or not.  Values are computed in double precision in this very
order of operations; equal values are ordered by token, the smaller first.

The loop over cells is compiled by numba and kept in its cache; one thread, no fast math.  It deals
a cell's values to twice as many buckets as there are values, by their bit patterns (which, for
positive numbers, order as the numbers do), and sorts what meets in a bucket by insertion.  Medians
spread the values well, so that takes linear time; crowded buckets, as equal medians make them, are
first sorted roughly by Shell's method.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scsigmoid.tokens.store import token_type

CROWDED = 32


class Ranked(NamedTuple):
    """The tokens of some cells."""

    tokens: NDArray[np.unsignedinteger[Any]]  # packed, of the type of token_type
    offsets: NDArray[np.int64]  # cell i has tokens[offsets[i]:offsets[i + 1]]
    genes: NDArray[np.int32]  # vocabulary genes that each cell expresses, before the cut


def rank_tokens(
    counts: Any,
    token_of_column: NDArray[np.int64],
    medians: NDArray[np.float64],
    target_sum: float,
    maximum_length: int,
) -> Ranked:
    """Turn counts into rank tokens.

    Args:
        counts: raw counts, cells x genes, CSR without stored zeros.
        token_of_column: token of each column, -1 for none; no token twice.
        medians: median of each token.
        target_sum: what the counts of a cell are scaled to.
        maximum_length: cells are cut at this many tokens.
    """
    cells = counts.shape[0]
    tokens = np.empty(counts.nnz, dtype=token_type(len(medians)))
    lengths, genes = np.empty(cells, dtype=np.int32), np.empty(cells, dtype=np.int32)
    written = rank_cells(
        counts.indptr.astype(np.int32, copy=False),
        counts.indices.astype(np.int32, copy=False),
        counts.data.astype(np.int32, copy=False),
        token_of_column.astype(np.int32),
        medians[token_of_column],  # -1 takes any: it is not looked at
        float(target_sum),
        int(maximum_length),
        tokens,
        lengths,
        genes,
    )
    return Ranked(tokens[:written], np.concatenate([[0], np.cumsum(lengths)]), genes)


@njit(cache=True, nogil=True, error_model="numpy")
def rank_cells(
    indptr: NDArray[np.int32],
    columns: NDArray[np.int32],
    counts: NDArray[np.int32],
    token_of_column: NDArray[np.int32],
    median_of_column: NDArray[np.float64],
    target_sum: float,
    maximum_length: int,
    tokens: NDArray[np.unsignedinteger],
    lengths: NDArray[np.int32],
    genes: NDArray[np.int32],
) -> int:
    """Fill ``tokens`` (packed), ``lengths`` and ``genes``; returns the number of tokens."""
    longest = 1
    for cell in range(len(indptr) - 1):
        longest = max(longest, indptr[cell + 1] - indptr[cell])
    found, found_token = np.empty(longest), np.empty(longest, np.int32)
    bits = found.view(np.int64)
    values, value_token = np.empty(longest), np.empty(longest, np.int32)
    bucket = np.empty(longest, np.int32)
    ends = np.empty(2 * longest + 1, np.int32)
    written = 0
    for cell in range(len(indptr) - 1):
        first, last = indptr[cell], indptr[cell + 1]
        sum_of_counts = 0
        for entry in range(first, last):
            sum_of_counts += counts[entry]
        total = float(sum_of_counts)
        n = 0
        for entry in range(first, last):
            column = columns[entry]
            if token_of_column[column] >= 0:
                found[n] = counts[entry] / total * target_sum / median_of_column[column]
                found_token[n] = token_of_column[column]
                n += 1
        genes[cell] = n
        kept = min(n, maximum_length)
        lengths[cell] = kept
        if n == 0:
            continue

        low, high = bits[0], bits[0]
        for i in range(n):
            low, high = min(low, bits[i]), max(high, bits[i])
        scale = (2 * n - 1) / max(float(high - low), 1.0)
        ends[: 2 * n + 1] = 0
        for i in range(n):
            bucket[i] = np.int32(float(high - bits[i]) * scale)
            ends[bucket[i] + 1] += 1
        widest = 0
        for b in range(2 * n):
            widest = max(widest, ends[b + 1])
            ends[b + 1] += ends[b]
        for i in range(n):
            place = ends[bucket[i]]
            values[place], value_token[place] = found[i], found_token[i]
            ends[bucket[i]] = place + 1

        if widest > CROWDED:
            start = 0
            for b in range(2 * n):
                if ends[b] - start > CROWDED:
                    sort(values, value_token, start, ends[b], True)
                start = ends[b]
        stop = n
        if kept < n:  # what lies beyond the bucket of the last one kept needs no order
            b = 0
            while ends[b] < kept:
                b += 1
            stop = ends[b]
        sort(values, value_token, 0, stop, False)
        for i in range(kept):
            tokens[written + i] = value_token[i]
        written += kept
    return written


@njit(cache=True, nogil=True)
def sort(
    values: NDArray[np.float64], tokens: NDArray[np.int32], start: int, stop: int, crowded: bool
) -> None:
    """Sort places ``start`` to ``stop``, exclusive, by descending value, then ascending token.

    By insertion, with Shell's gaps if ``crowded``: values may lie far from their places.
    """
    gap = 1
    while crowded and 9 * gap < stop - start:
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
