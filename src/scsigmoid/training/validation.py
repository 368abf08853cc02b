"""The loss on cells kept out of training while it goes on, and what attention does with them.

Which cells these are and which of their genes are masked depends on the store alone, not on the
seed, so that the curves of several runs belong to one set of cells.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from scsigmoid.attention.reference import weight_statistics
from scsigmoid.config.schema import Training
from scsigmoid.files import write_text
from scsigmoid.model.encoder import Block
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.seeds import derive
from scsigmoid.training.batches import Batch, Cells, Masking, pack, split_by_tokens
from scsigmoid.training.loading import validation_rows
from scsigmoid.training.processes import Processes
from scsigmoid.training.step import Trainer, autocast, summed_loss, with_two_of_each

#: Cells whose attention weights are looked at.
WATCHED = 4


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What the attention of one layer does with the watched cells, over all heads and rows.

    Attributes:
        step: the optimiser's; before its update.
        layer: from 0.
        score_max: largest |q . k / sqrt(dim)|.
        weight_max: largest attention weight.
        row_sum_low, row_sum, row_sum_high: 5th, 50th and 95th percentile of the rows' sums of
            weights; 1 for softmax.
        keys: median over rows of exp(entropy) of a row's weights over their sum: to how many keys
            a token attends; 0 for a row whose weights all vanish.
        value_mean: |mean of v|^2 over the mean of |v|^2, of each head and cell, averaged: the share
            of the values that all keys of a cell have in common.
    """

    step: int
    layer: int
    score_max: float
    weight_max: float
    row_sum_low: float
    row_sum: float
    row_sum_high: float
    keys: float
    value_mean: float


LAYER_COLUMNS = tuple(field.name for field in fields(Layer))


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


class LayerFile:
    """``layers.csv``: a row for each layer and validation."""

    def __init__(self, path: Path, step: int) -> None:
        """Keep the rows up to ``step``: what came later is measured again."""
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines()[1:] if step and path.exists() else []
        kept = [line for line in lines if int(line.split(",")[0]) <= step]
        write_text(path, "\n".join([",".join(LAYER_COLUMNS), *kept]) + "\n")

    def append(self, layers: list[Layer]) -> None:
        """Add the rows of a validation."""
        with self.path.open("a", encoding="utf-8", newline="\n") as handle:
            handle.writelines(",".join(map(repr, astuple(layer))) + "\n" for layer in layers)
