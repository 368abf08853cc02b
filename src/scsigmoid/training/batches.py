"""From stored cells to packed batches.

The sequence of global batches depends on the seed and the number of cells alone: both arms of a
pair, and any division of the work, see the same cells in the same order with the same masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scsigmoid.config.schema import Training
from scsigmoid.model.masking import mask_tokens
from scsigmoid.seeds import derive
from scsigmoid.tokens.vocabulary import CLS, MASK, SPECIAL

Integers = npt.NDArray[np.integer]
Int64s = npt.NDArray[np.int64]


class Cells(Protocol):
    """What batches need of a token store."""

    @property
    def lengths(self) -> Integers:
        """(cells,) genes stored of each cell."""

    def cells(self, rows: Int64s, maximum_length: int, /) -> tuple[Integers, Integers]:
        """Gene tokens of the cells, each cut at ``maximum_length``, and their ``cu_seqlens``."""


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Which genes are masked; see :func:`scsigmoid.model.masking.mask_tokens`.

    Attributes:
        seed: the run's seed for masks.
        draw: which mask of a cell: the step in training, the trial in evaluation.
        fraction: share of a cell's genes that is masked.
        replacement: ``mask`` or ``bert``.
        vocabulary_size: tokens, the special ones included.
    """

    seed: int
    draw: int
    fraction: float
    replacement: str
    vocabulary_size: int


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Packed cells: the tokens of all of them behind each other, no padding.

    Attributes:
        tokens: (tokens,) int64, [CLS] and the genes of each cell, masked ones replaced.
        positions: (tokens,) int64, 0 to n - 1 within each cell.
        cu_seqlens: (cells + 1,) int32, cumulative lengths.
        masked: (masked,) int64, places in ``tokens`` to be predicted; empty without masking.
        targets: (masked,) int64, the genes there.
        cells: (cells,) int64, rows of the store.
        max_seqlen: length of the longest cell.
    """

    tokens: Tensor
    positions: Tensor
    cu_seqlens: Tensor
    masked: Tensor
    targets: Tensor
    cells: Tensor
    max_seqlen: int

    def to(self, device: torch.device) -> "Batch":
        """The batch on another device."""
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return Batch(**moved)


def pack(store: Cells, indices: Int64s, context: int, masking: Masking | None = None) -> Batch:
    """Read cells of a store into a packed batch.

    Args:
        store: where the cells are.
        indices: rows of the store.
        context: longest sequence in tokens, [CLS] included; longer cells lose their last ranks.
        masking: what is masked; nothing if None.
    """
    genes, cu_seqlens = store.cells(indices, context - 1)
    return pack_genes(genes, np.diff(cu_seqlens), indices, masking)


def pack_genes(
    genes: Integers, lengths: Integers, cells: Int64s, masking: Masking | None = None
) -> Batch:
    """Pack cells, with [CLS] in front of each.

    Args:
        genes: (genes,) gene tokens of all cells behind each other.
        lengths: (cells,) genes of each cell.
        cells: (cells,) identity of each cell: its mask depends on it.
        masking: what is masked; nothing if None.
    """
    count = len(lengths)
    cu_seqlens = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.asarray(lengths, dtype=np.int64) + 1, out=cu_seqlens[1:])
    starts = cu_seqlens[:-1]
    is_gene = np.ones(int(cu_seqlens[-1]), dtype=bool)
    is_gene[starts] = False
    tokens = np.full(len(is_gene), CLS, dtype=np.int64)
    tokens[is_gene] = genes
    positions = np.arange(len(tokens)) - np.repeat(starts, np.diff(cu_seqlens))
    masked = targets = np.zeros(0, dtype=np.int64)
    if masking is not None:
        tokens, masked, targets = mask_tokens(
            tokens,
            cells,
            cu_seqlens,
            seed=masking.seed,
            draw=masking.draw,
            fraction=masking.fraction,
            replacement=masking.replacement,
            mask_token=MASK,
            vocabulary=(len(SPECIAL), masking.vocabulary_size),
        )
    return Batch(
        tokens=torch.from_numpy(tokens),
        positions=torch.from_numpy(positions),
        cu_seqlens=torch.from_numpy(cu_seqlens.astype(np.int32)),
        masked=torch.from_numpy(masked),
        targets=torch.from_numpy(targets),
        cells=torch.from_numpy(np.asarray(cells, dtype=np.int64)),
        max_seqlen=int(np.diff(cu_seqlens).max(initial=0)),
    )


class CellOrder:
    """The endless sequence of cells: every epoch a permutation of its own.

    Global batch g (from 0) is the slice [g * size, (g + 1) * size) of that sequence, so a batch may
    hold the end of one epoch and the start of the next, and every cell is seen once per epoch.
    """

    def __init__(self, cells: int, seed: int) -> None:
        if cells < 1:
            raise ValueError("an order of no cells")
        self.cells = cells
        self.seed = seed
        self._epoch = -1
        self._permutation = np.zeros(0, dtype=np.int64)

    def permutation(self, epoch: int) -> Int64s:
        """The order of cells in an epoch; the last one asked for is kept."""
        if epoch != self._epoch:
            generator = np.random.Generator(np.random.PCG64(derive(self.seed, "order", epoch)))
            self._permutation = generator.permutation(self.cells)
            self._epoch = epoch
        return self._permutation

    def batch(self, index: int, size: int) -> Int64s:
        """Rows of the store that make up global batch ``index``."""
        start, end = index * size, (index + 1) * size
        parts = []
        while start < end:
            epoch, offset = divmod(start, self.cells)
            parts.append(self.permutation(epoch)[offset : offset + end - start])
            start += len(parts[-1])
        return np.concatenate(parts)


def split_by_tokens(lengths: Integers, budget: int) -> list[slice]:
    """Divide cells, in order, into runs of at most ``budget`` tokens; a longer cell goes alone."""
    slices = []
    start = tokens = 0
    for index, length in enumerate(lengths.tolist()):
        if index > start and tokens + length > budget:
            slices.append(slice(start, index))
            start, tokens = index, 0
        tokens += length
    slices.append(slice(start, len(lengths)))
    return slices


class GlobalBatches:
    """The global batches of a training run, each as micro-batches within a budget of tokens."""

    def __init__(
        self, store: Cells, context: int, training: Training, seed: int, vocabulary_size: int
    ) -> None:
        self.store = store
        self.context = context
        self.training = training
        self.vocabulary_size = vocabulary_size
        self.order = CellOrder(len(store.lengths), seed)
        self.mask_seed = derive(seed, "masks")

    def __getitem__(self, step: int) -> Sequence[Batch]:
        """The micro-batches of a step, counted from 1."""
        training = self.training
        indices = self.order.batch(step - 1, training.global_batch)
        lengths = np.minimum(self.store.lengths[indices], self.context - 1) + 1
        masking = Masking(
            seed=self.mask_seed,
            draw=step,
            fraction=training.mask_fraction,
            replacement=training.mask_replacement,
            vocabulary_size=self.vocabulary_size,
        )
        return [
            pack(self.store, indices[part], self.context, masking)
            for part in split_by_tokens(lengths, training.micro_batch_tokens)
        ]
