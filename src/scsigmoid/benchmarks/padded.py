"""The paper's layout in this project's encoder: every cell padded to the context.

A padded batch is a stream of cells * context tokens.  All layers of the encoder take it as it is;
only attention looks at it cell by cell, and only the output layer leaves the padding out.  So
padded and packed models are the same but for what is compared.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.vocabulary import PAD
from scsigmoid.training.batches import Batch


@dataclass(frozen=True)
class PaddedAttention:
    """Attention of padded cells.

    Attributes:
        prepare: from the valid tokens of each cell, (cells,) int32, and the encoder's settings:
            what all layers share, made once a batch outside the compiled graph.
        attend: from q, k and v, (cells, context, heads, dim), and what ``prepare`` made: their
            attention, of the same shape.  What it gives in the padding is not used.
    """

    prepare: Callable[[Tensor, EncoderSettings], Any]
    attend: Callable[[Tensor, Tensor, Tensor, Any], Tensor]


def padded(batch: Batch, context: int) -> Batch:
    """A packed batch with each cell padded to the context.

    ``cu_seqlens`` goes on counting valid tokens.  Targets, and the tokens that are masked, stay the
    same ones.
    """
    lengths = torch.diff(batch.cu_seqlens).long()
    cells = len(lengths)
    starts = torch.arange(cells) * context
    places = torch.repeat_interleave(starts, lengths) + batch.positions
    tokens = torch.full((cells * context,), PAD, dtype=torch.int64)
    tokens[places] = batch.tokens
    return replace(
        batch,
        tokens=tokens,
        positions=torch.arange(context).repeat(cells),
        masked=places[batch.masked],
        max_seqlen=context,
    )


def constant_shape(tensor: Tensor) -> Tensor:
    """The tensor, whose shape ``torch.compile`` shall take for a constant, as batches of one
    padded shape have it; the number of masked places alone varies."""
    torch._dynamo.mark_static(tensor)
    return tensor


class PaddedBlock(Block):
    """A block of the encoder with another attention."""

    def __init__(self, settings: EncoderSettings, layer: int, attention: PaddedAttention) -> None:
        super().__init__(settings, layer)
        self.padded_attention = attention

    def attend(self, qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, mask: Any) -> Tensor:
        q, k, v = (x.unflatten(0, (-1, self.settings.context)) for x in qkv.unbind(1))
        return self.padded_attention.attend(q, k, v, mask).flatten(0, 1)


class PaddedEncoder(Encoder):
    """The encoder for batches that :func:`padded` made."""

    def __init__(self, settings: EncoderSettings, attention: PaddedAttention) -> None:
        super().__init__(settings)
        self.padded_attention = attention
        self.blocks = nn.ModuleList(
            PaddedBlock(settings, layer, attention) for layer in range(settings.layers)
        )

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return constant_shape(super().embed(tokens, positions))

    def dropout_keys(
        self, cells: Tensor, positions: Tensor, cu_seqlens: Tensor, seed: int, step: int
    ) -> Tensor | None:
        keys = super().dropout_keys(cells, positions, cu_seqlens, seed, step)
        return None if keys is None else constant_shape(keys)

    def for_tokens(self, of_cells: Tensor, cu_seqlens: Tensor, tokens: int) -> Tensor:
        return of_cells.repeat_interleave(self.settings.context)

    def mask(self, embedded: Tensor, cu_seqlens: Tensor) -> Any:
        """What ``prepare`` of the attention makes."""
        return self.padded_attention.prepare(torch.diff(cu_seqlens), self.settings)
