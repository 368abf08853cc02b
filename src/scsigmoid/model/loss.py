"""The masked-token loss of packed batches."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from scsigmoid.model.batches import IGNORED, Batch
from scsigmoid.model.encoder import Encoder

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Loss = Callable[..., Tensor]


def masked_losses(
    encoder: Encoder,
    embedded: Tensor,
    mask: "BlockMask | None",
    batch: Batch,
    keys: Tensor | None = None,
    reduction: str = "none",
) -> Tensor:
    """Return the cross-entropy at each masked position, (masked,) float32.

    The output layer is computed at these positions only. ``embedded``, (tokens, hidden), ``mask``
    and ``keys`` are results of :meth:`Encoder.embed`, :meth:`Encoder.mask` and
    :meth:`Encoder.dropout_keys`. With ``reduction="sum"``, return a scalar.
    """
    residual = encoder.encode(embedded, batch.cu_seqlens, batch.max_seqlen, mask, keys)
    logits = encoder.predict(residual, batch.masked)
    return cross_entropy(logits.float(), batch.targets, ignore_index=IGNORED, reduction=reduction)


def summed_loss(
    encoder: Encoder,
    embedded: Tensor,
    mask: "BlockMask | None",
    batch: Batch,
    keys: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the sum of :func:`masked_losses`, or n weighted sums with ``weights``, (masked, n)."""
    if weights is None:
        return masked_losses(encoder, embedded, mask, batch, keys, "sum")
    losses = masked_losses(encoder, embedded, mask, batch, keys)
    return (losses.unsqueeze(1) * weights).sum(0)


def sum_weights(batch: Batch) -> Tensor:
    """Return weights of the masked genes, (masked, 2) float32, on the CPU.

    With the first column, the weighted sum of the losses is the sum of each cell's mean loss. With
    the second column, it is the sum of all losses.
    """
    # (masked,): the cell of each masked gene, counted from 1
    owner = torch.searchsorted(batch.cu_seqlens, batch.masked, right=True)
    shares = 1 / torch.bincount(owner)[owner].float()
    return torch.stack([shares, torch.ones_like(shares)], dim=1)


def with_two_of_each(batch: Batch) -> Batch:
    """Pad a batch to at least two sequences and two masked positions, with the same loss.

    ``torch.compile`` compiles another graph for sizes of 0 or 1. An empty last sequence and ignored
    targets avoid this, for example for a single long cell.
    """
    missing_sequences = max(0, 3 - len(batch.cu_seqlens))
    missing_masked = max(0, 2 - len(batch.masked))
    return replace(
        batch,
        cu_seqlens=pad(batch.cu_seqlens, (0, missing_sequences), value=len(batch.tokens)),
        masked=pad(batch.masked, (0, missing_masked)),
        targets=pad(batch.targets, (0, missing_masked), value=IGNORED),
    )


def compute_loss(loss: Loss, encoder: Encoder, batch: Batch, *rest: Tensor | None) -> Tensor:
    """Embed a batch and return its loss.

    ``loss`` is :func:`summed_loss` or :func:`masked_losses`, possibly compiled. ``rest`` are its
    arguments after ``batch``. The embedding and the mask of FlexAttention are not part of the
    compiled graph, so one graph serves all lengths.
    """
    batch = with_two_of_each(batch)
    embedded = encoder.embed(batch.tokens, batch.positions)
    mask = encoder.mask(embedded, batch.cu_seqlens)
    return loss(encoder, embedded, mask, batch, *rest)
