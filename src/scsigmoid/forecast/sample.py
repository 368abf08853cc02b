"""A sample of the user's cells: how many there are, and how many genes they express."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scsigmoid.config.local_files import expand
from scsigmoid.config.schema import Corpus
from scsigmoid.corpus.held_out import held_out_text, select_role
from scsigmoid.corpus.tenx import is_tenx, open_h5ad_files
from scsigmoid.progress import verbosity
from scsigmoid.tokens.known_genes import with_known_genes
from scsigmoid.tokens.vocabulary import Vocabulary

#: Largest number of sampled cells of a file, and number of blocks of consecutive cells in a sample.
SAMPLE, BLOCKS = 2000, 4


@dataclass(frozen=True)
class Sample:
    """Number of cells in the user's files, and the lengths of some of them."""

    cells: int | None  # number of training cells, or None if a file is 10x, which is not opened
    lengths: NDArray[np.int64]  # number of genes that each sampled cell expresses
    weights: NDArray[np.float64]  # number of cells that each sampled cell represents

    def quantile(self, share: float) -> int:
        """Return the smallest length that a fraction ``share`` of the cells does not exceed."""
        share *= 1 - 1e-9  # the cumulative sum of the weights is rounded
        return int(np.quantile(self.lengths, share, weights=self.weights, method="inverted_cdf"))


def sample_cells(corpus: Corpus, seed: int, vocabulary: Vocabulary | None = None) -> Sample:
    """Count training cells, and the genes that up to :data:`SAMPLE` cells of each file express.

    If a vocabulary is given, only its genes count. A file that is held out as a whole is sampled,
    too, but its cells are not counted.
    """
    total, files = 0, expand(corpus.local)
    # Start with one cell of negligible weight, because the files may have no cells to sample.
    lengths, weights = [np.ones(1, np.int64)], [np.full(1, 1e-9)]
    for file, cells in open_h5ad_files(files):
        is_counted = np.ones(len(cells.genes), bool)
        if vocabulary:
            with verbosity(False):  # the job that makes the vocabulary logs the shares of genes
                cells = with_known_genes(cells, vocabulary.name_of, vocabulary.retired)
            is_counted = np.isin(cells.genes, vocabulary.gene_ids)
        if file.held_out is not True:
            cells = select_role(cells, held_out_text(file.held_out, seed), "training")
            total += cells.n_cells
        # Evenly spaced blocks of cells. In a small file, they overlap or end after its last cell.
        block = SAMPLE // BLOCKS
        starts = np.linspace(0, max(0, cells.n_cells - block), BLOCKS).astype(int)
        indices = np.unique(starts[:, None] + np.arange(block))
        sampled = replace(cells, rows=cells.rows[indices[indices < cells.n_cells]])
        for chunk in sampled.chunks():
            genes_per_cell = np.diff(chunk.counts[:, is_counted].indptr)
            lengths.append(genes_per_cell)
            weights.append(np.full(len(genes_per_cell), cells.n_cells / sampled.n_cells))
    is_known = not any(is_tenx(file.path) for file in files)
    n_cells = max(1, total) if is_known else None  # not 0, because it is a divisor
    return Sample(n_cells, np.concatenate(lengths), np.concatenate(weights))
