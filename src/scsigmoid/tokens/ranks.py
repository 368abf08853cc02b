"""Rank tokens: a cell as its genes, from the most to the least expressed.

As Geneformer and TEDDY define it: the value of gene g in a cell is

    count / cell total * target sum / median of g,

over genes with a non-zero count; genes are ordered by descending value.  The cell total counts all
genes of the file, in the vocabulary or not.  Values are computed in double precision in this very
order of operations; equal values are ordered by token, the smaller first.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Ranked(NamedTuple):
    """The tokens of some cells.

    Attributes:
        tokens: tokens of all cells, one after the other, of the type of :func:`token_type`.
        offsets: cell i has ``tokens[offsets[i]:offsets[i + 1]]``, int64, cells + 1.
        genes: vocabulary genes that each cell expresses, before the cut, int32.
    """

    tokens: NDArray[np.unsignedinteger[Any]]
    offsets: NDArray[np.int64]
    genes: NDArray[np.int32]


def token_type(vocabulary_size: int) -> type[np.unsignedinteger[Any]]:
    """16 bits where the vocabulary allows, else 32."""
    return np.uint16 if vocabulary_size <= 65535 else np.uint32


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
    from scsigmoid.tokens.compiled import rank_cells

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
