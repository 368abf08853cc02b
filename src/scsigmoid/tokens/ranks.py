"""Rank tokens: a cell as its genes, from the most to the least expressed.

As Geneformer and TEDDY define it: the value of gene g in a cell is

    count / cell total * target sum / median of g,

over genes with a non-zero count; genes are ordered by descending value.  The cell total counts all
genes of the file, in the vocabulary or not.  Values are computed in double precision in this very
order of operations; equal values are ordered by token, the smaller first.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_CELLS = 1 << 16


class Ranked(NamedTuple):
    """The tokens of some cells.

    Attributes:
        tokens: tokens of all cells, one after the other, int64.
        offsets: cell i has ``tokens[offsets[i]:offsets[i + 1]]``, int64, cells + 1.
        genes: vocabulary genes that each cell expresses, before the cut, int32.
    """

    tokens: NDArray[np.int64]
    offsets: NDArray[np.int64]
    genes: NDArray[np.int32]


def rank_tokens(
    counts: Any,
    token_of_column: NDArray[np.int64],
    medians: NDArray[np.float64],
    target_sum: float,
    maximum_length: int,
) -> Ranked:
    """Turn counts into rank tokens.

    Args:
        counts: raw counts, cells x genes, CSR without stored zeros, at most 65,536 cells.
        token_of_column: token of each column, -1 for none.
        medians: median of each token.
        target_sum: what the counts of a cell are scaled to.
        maximum_length: cells are cut at this many tokens.
    """
    n_cells = counts.shape[0]
    if n_cells > MOST_CELLS:
        raise ValueError(f"at most {MOST_CELLS} cells at once, found {n_cells}")
    row = np.repeat(np.arange(n_cells), np.diff(counts.indptr))
    totals = np.bincount(row, weights=counts.data, minlength=n_cells)
    tokens = token_of_column[counts.indices]
    known = tokens >= 0
    row, tokens, found = row[known], tokens[known], counts.data[known]
    if not ascending(token_of_column):
        # keys of 16 bits, where they suffice, because NumPy sorts those by radix
        narrow = np.uint16 if len(medians) <= MOST_CELLS else np.int64
        order = np.argsort(tokens.astype(narrow), kind="stable")
        order = order[np.argsort(row[order].astype(np.uint16), kind="stable")]
        row, tokens, found = row[order], tokens[order], found[order]
    falling = -(found / totals[row] * target_sum / medians[tokens])

    genes = np.bincount(row, minlength=n_cells)
    lengths = np.minimum(genes, maximum_length)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ranked = np.empty(offsets[-1], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(genes)]).tolist()
    # A sort per cell stays in the cache: seven times as fast as one sort of all cells.  A stable
    # one keeps equal values in the order of their tokens.
    for cell, (start, stop) in enumerate(pairwise(starts)):
        order = np.argsort(falling[start:stop], kind="stable")[:maximum_length]
        ranked[offsets[cell] : offsets[cell + 1]] = tokens[start:stop][order]
    return Ranked(ranked, offsets, genes.astype(np.int32))


def ascending(token_of_column: NDArray[np.int64]) -> bool:
    """Whether the columns that have tokens are in the order of their tokens."""
    known = token_of_column[token_of_column >= 0]
    return bool((np.diff(known) > 0).all())
