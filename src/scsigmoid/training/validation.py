"""The loss on cells kept out of training while it goes on, and what attention does with them.

Which cells these are and which of their genes are masked depends on the store alone, not on the
seed, so that the curves of several runs belong to one set of cells.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch

from scsigmoid.attention.reference import weight_statistics
from scsigmoid.config.schema import Training
from scsigmoid.model.encoder import Block
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.seeds import derive
from scsigmoid.training.batches import Batch, Cells, Masking, pack, split_by_tokens
from scsigmoid.training.journal import Layer
from scsigmoid.training.loading import validation_rows
from scsigmoid.training.processes import Processes
from scsigmoid.training.step import Trainer, autocast, summed_loss, with_two_of_each

#: Cells whose attention weights are looked at.
WATCHED = 4


class Validation:
    """The validation cells of a run, packed and masked once."""

    def __init__(
        self, store: Cells, settings: EncoderSettings, training: Training, processes: Processes
    ) -> None:
        """Read the cells; each process takes its share of them."""
        rows = validation_rows(len(store.lengths), training.validation_cells)
        masking = Masking(
            seed=derive(0, "validation"),
            draw=0,
            fraction=training.mask_fraction,
            replacement="mask",
            vocabulary_size=settings.vocabulary_size,
        )
        self.watched = pack(store, rows[:: -(-len(rows) // WATCHED)], settings, masking)
        lengths = np.minimum(store.lengths[rows], settings.genes) + settings.cls_token
        parts = split_by_tokens(lengths, training.micro_batch_tokens)
        mine = parts[processes.rank :: processes.count]
        self._batches = [pack(store, rows[part], settings, masking) for part in mine]

    def loss(self, trainer: Trainer) -> float:
        """Mean cross-entropy over all masked genes of the validation cells, without dropout."""
        encoder, device = trainer.encoder, trainer.device
        total = torch.zeros(2, device=device)
        with torch.no_grad(), autocast(device):
            for kept in self._batches:
                batch = with_two_of_each(kept.to(device))
                embedded = encoder.embed(batch.tokens, batch.positions)
                mask = encoder.mask(embedded, batch.cu_seqlens)
                total[0] += summed_loss(encoder, embedded, mask, batch)
                total[1] += len(kept.masked)
        trainer.processes.sum([total])
        return float(total[0] / total[1])

    def layers(self, trainer: Trainer, step: int) -> list[Layer]:
        """What each layer's attention does with the watched cells, without dropout."""
        encoder, device = trainer.encoder, trainer.device
        batch: Batch = self.watched.to(device)
        spans = list(pairwise(self.watched.cu_seqlens.tolist()))

        def watched() -> Iterator[Layer]:
            x = encoder.embed(batch.tokens, batch.positions)
            mask = encoder.mask(x, batch.cu_seqlens)
            for index, block in enumerate(encoder.blocks):
                assert isinstance(block, Block)
                q, k, v = block.heads(x).unbind(1)
                with torch.autocast(device.type, enabled=False):
                    found = weight_statistics(encoder.settings.attention, q, k, v, spans)
                yield Layer(step=step, layer=index, **found)
                x = block(x, batch.cu_seqlens, batch.max_seqlen, mask, None)

        with torch.no_grad(), autocast(device):
            return list(watched())
