"""Packed batches: the tokens of several cells, one after the other, without padding."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.packed import TokenizedCells
from scsigmoid.tokens.vocabulary import CLS

if TYPE_CHECKING:
    from scsigmoid.model.masking import Masking

Integers = npt.NDArray[np.integer]
Int64s = npt.NDArray[np.int64]
#: Target at masked positions that are padding. The cross-entropy ignores it (``ignore_index``).
IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A packed batch: the cells' tokens concatenated, without padding.

    Attributes:
        tokens: (tokens,) int64, genes after masking, with or without [CLS] before each cell.
        positions: (tokens,) int64, 0 to n - 1 within each cell.
        cu_seqlens: (cells + 1,) int32, cumulative lengths.
        masked: (masked,) int64, indices into ``tokens`` of the genes to predict, if any.
        targets: (masked,) int64, the genes to predict.
        cells: (cells,) int64, indices of the cells in the store, always on the CPU.
        max_seqlen: length of the longest cell.
        cls_token: whether each cell starts with [CLS].
    """

    tokens: Tensor
    positions: Tensor
    cu_seqlens: Tensor
    masked: Tensor
    targets: Tensor
    cells: Tensor
    max_seqlen: int
    cls_token: bool

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device. Does not wait for copies from page-locked memory."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """Return the batch in page-locked memory, from which a GPU copies while it computes."""
        return self._mapped(Tensor.pin_memory)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Apply ``change`` to all tensors but ``cells``, which are needed on the CPU only."""
        names = ("tokens", "positions", "cu_seqlens", "masked", "targets")
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in names}
        return replace(self, **changed)


def pack(
    tokens: TokenizedCells,
    indices: Int64s,
    settings: EncoderSettings,
    masking: "Masking | None" = None,
) -> Batch:
    """Read cells of a store, or in memory, into a packed batch. Cells are cut to the context."""
    genes, cu_seqlens = tokens.cells(indices, settings.genes)
    return pack_genes(genes, cu_seqlens, indices, masking, cls_token=settings.cls_token)


def pack_genes(
    genes: Integers,
    offsets: Integers,
    cells: Int64s,
    masking: "Masking | None" = None,
    *,
    cls_token: bool = True,
) -> Batch:
    """Pack cells, unmasked if ``masking`` is None.

    Args:
        genes: (genes,) gene tokens of all cells, without [CLS].
        offsets: (cells + 1,) cumulative numbers of genes, from 0.
        cells: (cells,) index of each cell in the store. The mask of a cell depends on its index.
        cls_token: whether to put [CLS] before each cell.
    """
    tokens = genes.astype(np.int64)
    cu_seqlens = offsets.astype(np.int64)
    if cls_token:
        tokens = np.insert(tokens, cu_seqlens[:-1], CLS)
        cu_seqlens += np.arange(len(cu_seqlens))  # each cell adds a [CLS]
    positions = np.arange(len(tokens)) - np.repeat(cu_seqlens[:-1], np.diff(cu_seqlens))
    masked = targets = np.zeros(0, dtype=np.int64)
    if masking is not None:
        tokens, masked, targets = masking.mask(tokens, cells, cu_seqlens)
    return Batch(
        tokens=torch.from_numpy(tokens),
        positions=torch.from_numpy(positions),
        cu_seqlens=torch.from_numpy(cu_seqlens.astype(np.int32)),
        masked=torch.from_numpy(masked),
        targets=torch.from_numpy(targets),
        cells=torch.from_numpy(np.asarray(cells, dtype=np.int64)),
        max_seqlen=int(np.diff(cu_seqlens).max(initial=0)),
        cls_token=cls_token,
    )


def split_by_tokens(lengths: Integers, budget: int) -> list[slice]:
    """Split cells, in order, into slices of at most ``budget`` tokens or a single longer cell."""
    slices = []
    start = tokens = 0
    for index, length in enumerate(lengths.tolist()):
        if index > start and tokens + length > budget:
            slices.append(slice(start, index))
            start, tokens = index, 0
        tokens += length
    slices.append(slice(start, len(lengths)))
    return slices
