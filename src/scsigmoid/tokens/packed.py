"""Tokens of several cells in one array, without padding."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError

Tokens = NDArray[np.unsignedinteger[Any]]


def token_type(vocabulary_size: int) -> type[np.unsignedinteger[Any]]:
    """Return the dtype of tokens: uint16 for up to 65,535 tokens, else uint32."""
    return np.uint16 if vocabulary_size <= 65535 else np.uint32


class Packed(NamedTuple):
    """Cells without padding."""

    tokens: Tokens  # concatenated tokens of all cells, uint16 or uint32
    cu_seqlens: NDArray[np.int32]  # cell i has tokens[cu_seqlens[i]:cu_seqlens[i + 1]]


class TokenizedCells(Protocol):
    """Cells as tokens: :class:`CellTokens` in memory, or a :class:`~.store.TokenStore`."""

    @property
    def lengths(self) -> NDArray[np.integer[Any]]:
        """The number of tokens of each cell."""

    def __len__(self) -> int: ...

    def cells(self, rows: Sequence[int] | NDArray[np.integer[Any]], maximum_length: int) -> Packed:
        """Return the first ``maximum_length`` tokens of each cell, in the order of ``rows``."""


@dataclass(frozen=True)
class CellTokens:
    """The rank tokens of cells in memory.

    Attributes:
        tokens: of all cells, concatenated, uint16 or uint32 (:func:`token_type`).
        offsets: int64, (cells + 1,). Cell i has ``tokens[offsets[i]:offsets[i + 1]]``.
        genes: int32, (cells,), number of tokens of each cell before truncation.
    """

    tokens: Tokens
    offsets: NDArray[np.int64]
    genes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.genes)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each cell."""
        return np.diff(self.offsets)

    def cells(self, rows: Sequence[int] | NDArray[np.integer[Any]], maximum_length: int) -> Packed:
        """Return the first ``maximum_length`` tokens of each cell, in the order of ``rows``."""
        bounds = (self.offsets[row : row + 2] for row in np.asarray(rows).tolist())
        pieces = (self.tokens[start:end][:maximum_length] for start, end in bounds)
        return concatenate(pieces, self.tokens.dtype)


def concatenate(pieces: Iterable[Tokens], dtype: Any) -> Packed:
    """Pack the tokens of cells, one array per cell. ``dtype`` is the dtype without cells."""
    pieces = [np.zeros(0, dtype=dtype), *pieces]
    return Packed(np.concatenate(pieces), cumulative([len(piece) for piece in pieces[1:]]))


def cumulative(lengths: Iterable[int]) -> NDArray[np.int32]:
    """Return ``cu_seqlens`` of cells, (cells + 1,). Raise a UserError if int32 would overflow."""
    cu_seqlens = np.cumsum([0, *lengths], dtype=np.int64)
    if cu_seqlens[-1] > np.iinfo(np.int32).max:
        raise UserError(
            f"tokens: {len(cu_seqlens) - 1:,} cells have {cu_seqlens[-1]:,} tokens, more than the "
            f"{np.iinfo(np.int32).max:,} that can be packed; use fewer cells at once"
        )
    return cu_seqlens.astype(np.int32)
