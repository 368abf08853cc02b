"""Dropout that depends on the cell, not on the batch, device or process.

A counter-based generator without state decides whether an activation is dropped, from the seed,
step, cell, position of the token in the cell, layer and channel. So sigmoid and softmax models, all
devices and all divisions of a batch among processes drop the same activations.
"""

import torch
from torch import Tensor, nn

from scsigmoid.seeds import derive

_WORDS = 2**32  # number of 32-bit words
# Odd factors with irregular bits. Products with neighboring numbers (of positions, channels, or
# dropout modules) differ in many bits. Subtracting _WORDS from a word above 2^31 makes it signed.
_FACTOR = 0x9E3779B1 - _WORDS  # for positions and channels
_SITE_FACTOR = 0x85EBCA6B  # for dropout modules


def mix(words: Tensor) -> Tensor:
    """Mix 32-bit words by a bijection, int32 to int32 with wrap-around.

    This is "lowbias32" of https://github.com/skeeto/hash-prospector. ``&`` clears sign bits that
    torch shifts in.
    """
    words = (words ^ ((words >> 16) & 0xFFFF)) * 0x7FEB352D
    words = (words ^ ((words >> 15) & 0x1FFFF)) * (0x846CA68B - _WORDS)
    return words ^ ((words >> 16) & 0xFFFF)


def cell_keys(cells: Tensor, seed: int, step: int) -> Tensor:
    """Return the dropout keys of cells in a step, (cells,) int32.

    ``cells`` are indices in the token store, (cells,) int64 below 2^31.
    """
    bits = derive(seed, "dropout", step)  # 63 bits, of which 62 are used
    low, high = bits % 2**31, bits // 2**31 % 2**31
    return mix(mix(cells.to(torch.int32) ^ low) ^ high)


def token_keys(of_cells: Tensor, positions: Tensor) -> Tensor:
    """Combine the keys of the tokens' cells, (tokens,) int32, with positions, (tokens,) int64."""
    return mix(of_cells ^ (positions.to(torch.int32) * _FACTOR))


class KeyedDropout(nn.Module):
    """Inverted dropout of each activation with ``probability``, at least 0 and below 1.

    ``site`` is the index of this module among the dropout modules of the model, which determines
    the dropped activations: 0 after the embedding, then two in each block.
    """

    def __init__(self, probability: float, site: int) -> None:
        super().__init__()
        # An activation is dropped if its random word, from 0 to 2^32 - 1, is below this threshold.
        # An integer, because torch.compile does not treat a float attribute as a constant.
        self.threshold = round(probability * _WORDS)
        # site * _SITE_FACTOR as a signed 32-bit word
        self.site_word = (site * _SITE_FACTOR + _WORDS // 2) % _WORDS - _WORDS // 2

    def forward(self, x: Tensor, keys: Tensor | None) -> Tensor:
        """Drop activations of ``x`` (tokens, channels), or none if ``keys`` is None.

        ``keys``, (tokens,) int32, is the result of :func:`token_keys`.
        """
        if keys is None or not self.threshold:
            return x
        channels = torch.arange(x.shape[1], dtype=torch.int32, device=x.device) * _FACTOR
        words = mix((keys ^ self.site_word).unsqueeze(1) ^ channels)
        is_dropped = words < self.threshold - _WORDS // 2  # signed words, from -2^31
        scale = _WORDS / (_WORDS - self.threshold)  # 1 / (1 - probability)
        return (x * scale).masked_fill(is_dropped, 0.0)
