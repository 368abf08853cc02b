"""Simulated embeddings, tokens and counts that the evaluation's speed is measured on.

Nothing of biology is meant: vectors are drawn around a centre for each type, with variances that
fall as 1 / rank, and counts from a distribution for each type.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scsigmoid.evaluation.embedding_files import Embedding
from scsigmoid.tokens.store import Packed

HIDDEN = 768
# Molecules of a cell, and genes, of simulated counts.
COUNTS, GENES = 1_500, 20_000
# Of the log-normal distribution of lengths.
MEDIAN_LENGTH, SIGMA_LENGTH = 1830, 0.65


def simulated_arms(cells: Sequence[int]) -> dict[str, Embedding]:
    """Both arms' vectors of cells of so many types; types lie further apart in sigmoid's."""
    generator = np.random.default_rng(0)
    labels = np.repeat([f"type {kind:02d}" for kind in range(len(cells))], cells)
    spread = (1 / np.sqrt(1 + np.arange(HIDDEN))).astype(np.float32)
    turn = np.linalg.qr(generator.standard_normal((HIDDEN, HIDDEN)))[0].astype(np.float32)
    arms = {}
    for model, apart in (("sigmoid_4k", 1.0), ("softmax_4k", 0.8)):
        centres = generator.standard_normal((len(cells), HIDDEN), dtype=np.float32) * apart
        values = generator.standard_normal((len(labels), HIDDEN), dtype=np.float32)
        values += np.repeat(centres, cells, axis=0)
        metadata = {
            "model": model,
            "attention": model.split("_")[0],
            "context": 4096,
            "simulated": True,
        }
        values *= spread
        arms[model] = Embedding(
            Path(model), values @ turn, labels, np.arange(len(labels)), metadata
        )
    return arms


class SimulatedTokens:
    """Cells of random genes in memory, with lengths as in Fig. 1: a store as far as it is read."""

    def __init__(self, cells: int, vocabulary: int, context: int) -> None:
        generator = np.random.default_rng(0)
        lengths = generator.lognormal(np.log(MEDIAN_LENGTH), SIGMA_LENGTH, cells)
        self.lengths = np.clip(lengths, 100, context - 1).astype(np.int32)
        genes = np.arange(4, vocabulary)
        self.genes = [generator.choice(genes, n, replace=False) for n in self.lengths]

    def __len__(self) -> int:
        return len(self.lengths)

    def cells(self, rows: NDArray[np.int64], maximum_length: int) -> Packed:
        """See :meth:`scsigmoid.tokens.store.TokenStore.cells`."""
        genes = [self.genes[row][:maximum_length] for row in rows]
        ends = np.cumsum([0, *map(len, genes)])
        return Packed(np.concatenate(genes), ends.astype(np.int32))

    def metadata(self, columns: Sequence[str]) -> dict[str, NDArray[np.int64]]:
        """Row of each cell."""
        return {name: np.arange(len(self)) for name in columns}


def write_counts(path: Path, cells: NDArray[np.int64]) -> None:
    """Counts of so many cells of each type: ``COUNTS`` molecules a cell, ``GENES`` genes."""
    import anndata
    import pandas as pd
    from scipy.sparse import csr_matrix, vstack

    generator = np.random.default_rng(2)
    blocks = []
    for count in cells:
        share = generator.gamma(0.3, size=GENES).cumsum()
        genes = np.searchsorted(share / share[-1], generator.random((count, COUNTS)))
        ends = np.arange(0, genes.size + 1, COUNTS)
        block = csr_matrix((np.ones(genes.size, np.float32), genes.ravel(), ends), (count, GENES))
        block.sum_duplicates()
        blocks.append(block)
    kinds = np.repeat([f"type {kind:02d}" for kind in range(len(cells))], cells)
    obs = pd.DataFrame({"cell_type": pd.Categorical(kinds)})
    obs.index = obs.index.map(str)
    var = pd.DataFrame(index=[f"ENSG9{gene:010d}" for gene in range(GENES)])
    anndata.AnnData(vstack(blocks, format="csr"), obs=obs, var=var).write_h5ad(path)
