"""Monte-Carlo validation loss (appendix, "Validation Loss").

In each of T trials a share of every cell's gene tokens becomes [MASK]; a cell's loss is the mean
over its trials of the mean cross-entropy at its masked places.  The masks depend on the cell, the
trial and the genes within the context alone, so both arms of a pair see the same ones.
"""

import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from scsigmoid.config.schema import ValidationLoss
from scsigmoid.evaluation.embeddings import batches, open_tokens
from scsigmoid.evaluation.sources import source_of
from scsigmoid.measurements import Measurement, write_measurements
from scsigmoid.model.encoder import Encoder
from scsigmoid.seals import sealed_path
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training.batches import Batch, Masking, pack_genes
from scsigmoid.training.devices import resolve_device
from scsigmoid.training.export import load_encoder
from scsigmoid.training.step import IGNORED, autocast, with_two_of_each

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Losses = Callable[[Encoder, Tensor, "BlockMask | None", Batch], Tensor]


def validation_loss(
    checkpoint: Path,
    store: Path,
    dataset: str,
    model: str,
    settings: ValidationLoss,
    seed: int,
    device: str,
    output_csv: Path,
    output_parquet: Path,
) -> None:
    """Measure a model's validation loss on a dataset.

    Args:
        checkpoint: the model's ``model.safetensors``.
        store: token store of the dataset.
        dataset: the dataset's name.
        model: the model's name.
        settings: trials, masked share, confidence of the interval, tokens per forward pass.
        seed: the configuration's seed.
        device: ``auto``, ``cpu`` or ``cuda``.
        output_csv: the mean over cells, in nats, with the interval of :func:`mean_interval`.
        output_parquet: one row a cell: ``cell`` (int64, row in the dataset's file), ``loss``
            (float64, nats).

    Raises:
        UserError: if the model and the tokens do not belong together.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = resolve_device(device)
    encoder, facts = load_encoder(checkpoint, place)
    tokens = open_tokens(store, facts["vocabulary"])
    # On a GPU one graph serves all batches, as in training.
    compute = torch.compile(place_losses, dynamic=True) if place.type == "cuda" else place_losses
    losses = cell_losses(encoder, tokens, settings, mask_seed(seed, dataset), compute)
    mean, low, high = mean_interval(losses, settings.confidence)
    with sealed_path(output_parquet) as temporary:
        cells = tokens.metadata(["cell"])["cell"]
        pq.write_table(pa.table({"cell": cells, "loss": losses}), temporary)
    write_measurements(
        output_csv,
        [
            Measurement(
                dataset=dataset,
                model=model,
                attention=facts["attention"],
                context=facts["context"],
                metric="validation_loss",
                value=mean,
                low=low,
                high=high,
                n=len(losses),
                seed=seed,
                simulated=tokens.simulated,
                source=source_of(output_csv, checkpoint, store),
            )
        ],
    )


def mask_seed(seed: int, dataset: str) -> int:
    """Seed of the masks: the same for all models."""
    return derive(seed, "validation_loss", dataset)


def place_losses(
    encoder: Encoder, embedded: Tensor, mask: "BlockMask | None", batch: Batch
) -> Tensor:
    """Cross-entropy at each masked place, (masked,) float32; only these pass the output layer.

    Args:
        encoder: the model.
        embedded: (tokens, hidden), the batch's embedded tokens.
        mask: the attention's mask, where it takes one.
        batch: see :class:`Batch`.
    """
    residual = encoder.encode(embedded, batch.cu_seqlens, batch.max_seqlen, mask)
    logits = encoder.predict(residual, batch.masked)
    return cross_entropy(logits.float(), batch.targets, ignore_index=IGNORED, reduction="none")


def cell_losses(
    encoder: Encoder,
    tokens: TokenStore,
    settings: ValidationLoss,
    seed: int,
    compute: Losses = place_losses,
) -> NDArray[np.float64]:
    """Validation loss of each cell, (cells,), in nats.

    Args:
        encoder: in evaluation mode, on its device.
        tokens: the cells.
        settings: trials, masked share and tokens per forward pass.
        seed: of the masks.
        compute: :func:`place_losses`, or the same compiled.
    """
    context = encoder.settings.context
    place = next(encoder.parameters()).device
    identity = tokens.metadata(["cell"])["cell"]
    losses = np.empty(len(tokens))
    for rows in batches(tokens, context, settings.batch_tokens, "validation loss"):
        genes, cu_seqlens = tokens.cells(np.arange(rows.start, rows.stop), context - 1)
        total = torch.zeros(rows.stop - rows.start, dtype=torch.float64, device=place)
        for trial in range(settings.trials):
            masking = Masking(
                seed=seed,
                draw=trial,
                fraction=settings.mask_fraction,
                replacement="mask",
                vocabulary_size=encoder.settings.vocabulary_size,
            )
            batch = pack_genes(genes, np.diff(cu_seqlens), identity[rows], masking)
            owner = torch.searchsorted(batch.cu_seqlens, batch.masked, right=True) - 1
            share = 1 / torch.bincount(owner)[owner].double()
            if place.type == "cuda":  # so that a GPU computes while the next trial is prepared
                batch, owner, share = batch.pinned(), owner.pin_memory(), share.pin_memory()
            batch = with_two_of_each(batch.to(place))
            owner, share = (part.to(place, non_blocking=True) for part in (owner, share))
            with torch.no_grad(), autocast(place):
                embedded = encoder.embed(batch.tokens, batch.positions)
                mask = encoder.mask(embedded, batch.cu_seqlens)
                places = compute(encoder, embedded, mask, batch)[: len(owner)]
            total.index_add_(0, owner, places.double() * share)
        losses[rows] = (total / settings.trials).cpu().numpy()
    return losses


def mean_interval(values: NDArray[np.float64], confidence: float) -> tuple[float, float, float]:
    """Mean and its two-sided normal interval: mean +- z * s / sqrt(n), over cells.

    The masks of the trials are held fixed; the interval says how much the mean would vary with
    other cells.

    Returns:
        Mean, lower and upper end; the ends are NaN for fewer than two values.
    """
    mean = float(values.mean())
    if len(values) < 2:
        return mean, math.nan, math.nan
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    half = z * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half
