"""Hashes of the counts of cells."""

import numpy as np
import scipy.sparse as sp

from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.repeated_cells import FEWEST_GENES, hash_cells

GENES = np.array([f"ENSG{index:011d}" for index in range(60)])
NOTHING = np.zeros(0, dtype=np.int64)


def test_hashes_differ_exactly_where_counts_differ(write_h5ad):
    """Cells that differ in one count, in one gene, or have counts swapped between genes."""
    cells = np.zeros((700, len(GENES)), int)
    generator = np.random.default_rng(3)
    base = generator.integers(0, 3, len(GENES))
    for row in range(1, 350):
        cells[row] = base
        cells[row, generator.integers(0, len(GENES), 2)] += generator.integers(0, 3, 2)
        cells[350 + row] = generator.permutation(base)
    opened = open_cells(write_h5ad(sp.csr_matrix(cells.astype(np.float32)), genes=[*GENES]))
    hashed = hash_cells(opened, np.zeros((len(GENES), 0), bool), NOTHING, NOTHING)
    by_counts = np.unique(cells, axis=0, return_inverse=True)[1].ravel()  # numpy 2.0.0: column
    _, by_hash = np.unique(hashed.hashes, return_inverse=True)
    np.testing.assert_array_equal(by_counts[:, None] == by_counts, by_hash[:, None] == by_hash)
    np.testing.assert_array_equal(hashed.is_comparable, (cells > 0).sum(axis=1) >= FEWEST_GENES)
