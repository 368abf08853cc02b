"""Random masks of the genes of cells.

A counter-based generator, splitmix64 of (seed, cell, draw, rank of the gene), draws the masks. So a
mask does not depend on the batch, the order of cells, the device or the number of processes.
Sigmoid and softmax models are trained with the same masks.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scsigmoid.tokens.vocabulary import MASK, SPECIAL

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]


def _mix(state: UInt64s) -> UInt64s:
    """Compute a step of splitmix64, which is a bijection of 64-bit words."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _word(value: int) -> UInt64s:
    """Convert an integer to a 64-bit word, (1,)."""
    return np.array([value & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Settings of the masks.

    ``draw`` numbers the masks of a cell: the step in training, the trial in evaluation. If
    ``replacement`` is ``mask``, masked genes become [MASK]. If it is ``bert``, 80 % become [MASK],
    10 % a random gene, and 10 % do not change.
    """

    seed: int
    draw: int
    fraction: float
    replacement: str
    vocabulary_size: int

    def mask(
        self,
        packed: npt.NDArray[np.integer],
        cells: npt.NDArray[np.integer],
        cu_seqlens: npt.NDArray[np.integer],
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Mask genes of every cell of a packed batch.

        Of the g > 0 genes of a cell, max(1, round(fraction * g)) are masked, and all subsets of
        this size are equally probable. Special tokens are neither masked nor counted.

        Args:
            packed: (tokens,) tokens of the cells, one cell after the other.
            cells: (cells,) identity of each cell, such as its index in the token store.
            cu_seqlens: (cells + 1,) cumulative lengths.

        Returns:
            The tokens with masked genes replaced (tokens,), the ascending indices of masked genes
            in ``packed`` (masked,), and the original tokens at these indices (masked,).
        """
        lengths = np.diff(cu_seqlens)
        if len(lengths) != len(cells) or cu_seqlens[0] != 0 or cu_seqlens[-1] != len(packed):
            raise ValueError(
                f"cu_seqlens: does not describe {len(cells)} cells of {len(packed)} tokens"
            )
        first_gene = len(SPECIAL)
        tokens = packed.astype(np.int64)
        is_gene = tokens >= first_gene
        gene_positions = np.flatnonzero(is_gene)
        before = np.append(0, np.cumsum(is_gene))[cu_seqlens]  # genes before each cell
        genes = np.diff(before)  # genes of each cell
        # The rank of a gene in its cell does not count a leading [CLS]. If there are no cells,
        # `ranks[:0]` is the array that np.concatenate needs.
        ranks = _mix(np.arange(genes.max(initial=0), dtype=np.uint64))
        of_genes = np.concatenate([ranks[:0], *(ranks[:count] for count in genes.tolist())])

        of_cells = _mix(_mix(_word(self.seed)) ^ _mix(cells.astype(np.int64).view(np.uint64)))
        of_cells = _mix(of_cells ^ _mix(_word(self.draw) + np.uint64(1)))
        keys = _mix(np.repeat(of_cells, genes) ^ of_genes)

        # Mask the genes with the smallest keys. The keys of a cell are distinct, because _mix is a
        # bijection.
        counts = np.rint(self.fraction * genes).astype(np.int64)
        counts = np.minimum(genes, np.maximum(1, counts))  # masked genes of each cell
        thresholds = np.zeros(len(cells), dtype=np.uint64)  # largest key of the masked genes
        spans = zip(before[:-1].tolist(), before[1:].tolist(), counts.tolist(), strict=True)
        for cell, (start, stop, count) in enumerate(spans):
            if count:
                thresholds[cell] = np.partition(keys[start:stop], count - 1)[count - 1]
        selected = np.flatnonzero(keys <= np.repeat(thresholds, genes))

        masked = gene_positions[selected]
        targets = tokens[masked]
        if self.replacement == "mask":
            tokens[masked] = MASK
            return tokens, masked, targets
        # New words, because the keys of masked genes are small. The constant is arbitrary.
        words = _mix(keys[selected] ^ np.uint64(0xD1B54A32D192ED03))
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # in [0, 1)
        gene_count = np.uint64(self.vocabulary_size - first_gene)
        random_genes = first_gene + (_mix(words) % gene_count).astype(np.int64)
        unchanged_or_random = np.where(uniform < 0.9, random_genes, targets)
        tokens[masked] = np.where(uniform < 0.8, MASK, unchanged_or_random)
        return tokens, masked, targets
