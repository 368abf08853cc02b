"""Loops over cells, compiled by numba and kept in its cache.  One thread, no fast math.

The order of a cell is found by dealing its values to twice as many buckets as it has values, by
their bit patterns (which, for positive numbers, order as the numbers do), and sorting what meets in
a bucket by insertion.  Medians spread the values well, so that takes linear time; crowded buckets,
as equal medians make them, are first sorted roughly by Shell's method.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

CROWDED = 32


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
    """Fill ``tokens`` (of all cells behind each other), ``lengths`` and ``genes``.

    See :func:`scsigmoid.tokens.ranks.rank_tokens`.

    Returns:
        The number of tokens.
    """
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
    """Sort by descending value, then ascending token: by insertion, with Shell's gaps if crowded.

    Args:
        values: sorted in place between ``start`` and ``stop``.
        tokens: moved along.
        start: first place.
        stop: last place, exclusive.
        crowded: whether values may lie far from their places.
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


@njit(cache=True, nogil=True)
def place_cells(
    tokens: NDArray[np.unsignedinteger],
    offsets: NDArray[np.int32],
    places: NDArray[np.int64],
    placed: NDArray[np.unsignedinteger],
) -> None:
    """Copy the tokens of cells to other places.

    Args:
        tokens: of all cells.
        offsets: cell i has ``tokens[offsets[i]:offsets[i + 1]]``.
        places: where in ``placed`` the tokens of cell i go.
        placed: is filled.
    """
    for cell in range(len(places)):
        first = offsets[cell]
        for entry in range(offsets[cell + 1] - first):
            placed[places[cell] + entry] = tokens[first + entry]


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
    """Count cells in the bins of their genes; see :mod:`scsigmoid.tokens.statistics`.

    The values are put in the order of their genes first, so that one row of the histogram, which
    fits in the cache, is worked on at a time.

    Args:
        indptr: (cells + 1,) of the counts, which are stored as CSR.
        columns: column of each count.
        counts: positive.
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


@njit(cache=True, nogil=True)
def compressed(
    histogram: NDArray[np.uint32],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """A dense matrix as CSR: ``indptr``, columns and values."""
    ends = np.zeros(len(histogram) + 1, np.int64)
    for row in range(len(histogram)):
        ends[row + 1] = ends[row] + np.count_nonzero(histogram[row])
    columns, values = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.int64)
    place = 0
    for row in range(len(histogram)):
        for column in range(histogram.shape[1]):
            if histogram[row, column] > 0:
                columns[place], values[place] = column, histogram[row, column]
                place += 1
    return ends, columns, values
