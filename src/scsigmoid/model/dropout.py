"""Dropout that depends on the cell, not on who computes it.

Whether an activation is dropped follows from the run's seed, the step, the cell, the token's place
in it, the layer and the channel, by a counter-based generator.  So both arms of a pair, any device
and any division of a batch among processes drop the same ones, and no state is carried along.
"""

import torch
from torch import Tensor, nn

from scsigmoid.seeds import derive

_WORDS = 2**32
# Odd, with irregular bits: the words of neighbouring places differ in many of theirs.
_SPREAD = 0x9E3779B1 - _WORDS
_SITES = 0x85EBCA6B


def mix(words: Tensor) -> Tensor:
    """A bijection of 32-bit words that scatters counters, int32 to int32 with wrap-around.

    The finaliser "lowbias32" of https://github.com/skeeto/hash-prospector; torch shifts in the
    sign, hence the masks.
    """
    words = (words ^ ((words >> 16) & 0xFFFF)) * 0x7FEB352D
    words = (words ^ ((words >> 15) & 0x1FFFF)) * (0x846CA68B - _WORDS)
    return words ^ ((words >> 16) & 0xFFFF)


def cell_keys(cells: Tensor, seed: int, step: int) -> Tensor:
    """What dropout in a step depends on: (cells,) int32 of the cells' identities, (cells,) int64.

    Args:
        cells: rows of the store, below 2^31.
        seed: the run's.
        step: the optimiser's.
    """
    drawn = derive(seed, "dropout", step)
    keys = mix(cells.to(torch.int32) ^ (drawn % 2**31))
    return mix(keys ^ (drawn // 2**31 % 2**31))


def token_keys(of_cells: Tensor, positions: Tensor) -> Tensor:
    """Keys of tokens, (tokens,) int32.

    Args:
        of_cells: (tokens,) int32, the key of each token's cell.
        positions: (tokens,) int64, places in the cell.
    """
    return mix(of_cells ^ (positions.to(torch.int32) * _SPREAD))


class KeyedDropout(nn.Module):
    """Inverted dropout with a counter-based generator in place of a random state.

    Args:
        share: of the activations that are dropped, at least 0 and below 1.
        site: number of this dropout in the model; each drops others.
    """

    def __init__(self, share: float, site: int) -> None:
        super().__init__()
        # Integers, because torch.compile takes a module's numbers with a point for variables.
        self.dropped = round(share * _WORDS)
        self.site = (site * _SITES + _WORDS // 2) % _WORDS - _WORDS // 2

    def forward(self, x: Tensor, keys: Tensor | None) -> Tensor:
        """Of ``x`` (tokens, channels) what is kept; all of it without ``keys`` (tokens,) int32."""
        if keys is None or not self.dropped:
            return x
        channels = torch.arange(x.shape[1], dtype=torch.int32, device=x.device) * _SPREAD
        words = mix((keys ^ self.site).unsqueeze(1) ^ channels)
        dropped = words < self.dropped - _WORDS // 2
        return (x * (_WORDS / (_WORDS - self.dropped))).masked_fill(dropped, 0.0)
