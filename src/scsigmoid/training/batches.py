"""From stored cells to packed batches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scsigmoid.model.masking import mask_tokens
from scsigmoid.model.sizes import EncoderSettings
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
    """Packed cells: their tokens one after the other, no padding.

    Attributes:
        tokens: (tokens,) int64, the genes of each cell, with or without [CLS] in front, masked
            ones replaced.
        positions: (tokens,) int64, 0 to n - 1 within each cell.
        cu_seqlens: (cells + 1,) int32, cumulative lengths.
        masked: (masked,) int64, places in ``tokens`` to be predicted; empty without masking.
        targets: (masked,) int64, the genes there.
        cells: (cells,) int64, rows of the store; always on the CPU.
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
        """The batch on another device; from page-locked memory without waiting for the copy."""
        return self._mapped(
            lambda tensor: tensor if tensor is self.cells else tensor.to(device, non_blocking=True)
        )

    def pinned(self) -> "Batch":
        return self._mapped(Tensor.pin_memory)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        changed: dict[str, Any] = {
            name: change(value) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return Batch(**changed)


def pack(
    store: Cells, indices: Int64s, settings: EncoderSettings, masking: Masking | None = None
) -> Batch:
    """Read cells of a store into a packed batch.

    Args:
        store: where the cells are.
        indices: rows of the store.
        settings: how many genes of a cell are read, and whether [CLS] is in front.
        masking: what is masked; nothing if None.
    """
    genes, cu_seqlens = store.cells(indices, settings.genes)
    return pack_genes(genes, np.diff(cu_seqlens), indices, masking, cls_token=settings.cls_token)


def pack_genes(
    genes: Integers,
    lengths: Integers,
    cells: Int64s,
    masking: Masking | None = None,
    *,
    cls_token: bool = True,
) -> Batch:
    """Pack cells.

    Args:
        genes: (genes,) packed gene tokens.
        lengths: (cells,) genes of each cell.
        cells: (cells,) identity of each cell: its mask depends on it.
        masking: what is masked; nothing if None.
        cls_token: whether [CLS] is put in front of each cell.
    """
    count = len(lengths)
    cu_seqlens = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.asarray(lengths, dtype=np.int64) + cls_token, out=cu_seqlens[1:])
    starts = cu_seqlens[:-1]
    is_gene = np.ones(int(cu_seqlens[-1]), dtype=bool)
    if cls_token:
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
