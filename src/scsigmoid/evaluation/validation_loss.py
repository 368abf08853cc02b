"""Monte-Carlo validation loss (appendix, "Validation Loss").

In each of T trials, a share of every cell's gene tokens is replaced by [MASK]. The loss of a cell
in a trial is the mean cross-entropy at its masked positions. The loss of a cell is the mean over
trials, and the loss of a dataset is the mean over cells, which all have the same weight. Masks
depend only on the seed, the cell, the trial and the genes within the context, so models with the
same context see the same masks.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from scsigmoid.config.schema import ValidationLoss
from scsigmoid.errors import UserError
from scsigmoid.model.batches import pack_genes
from scsigmoid.model.devices import autocast, resolve_device
from scsigmoid.model.embedding import make_batches
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.loss import Loss, compute_loss, masked_losses
from scsigmoid.model.masking import Masking
from scsigmoid.model.weights import MODEL, load_encoder
from scsigmoid.progress import log, track
from scsigmoid.records.identity import check_identity, model_of, write_table
from scsigmoid.records.measurements import (
    Interval,
    Measurement,
    donor_mean,
    mean_interval,
    source_of,
    write_measurements,
)
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore


def validation_loss(
    checkpoint: Path, store: Path, dataset: str, settings: ValidationLoss, seed: int, device: str,
    output_csv: Path, output_parquet: Path,
) -> None:  # fmt: skip
    """Measure a model's validation loss on a dataset.

    Args:
        checkpoint: the model's ``model.safetensors``.
        store: token store of the dataset.
        output_csv: CSV file, named after the model, with mean losses in nats, see below.
        output_parquet: Parquet file with one row per cell: ``cell`` (int64, row in the dataset's
            file), ``donor`` (empty if unknown), ``loss`` (float64, nats).

    The CSV file has these metrics:

    - ``validation_loss``: mean over cells, without an interval,
    - ``validation_loss_over_masks``: the same mean, with Student's interval over trials,
    - ``validation_loss_over_donors``: mean over ``n`` donors, with Student's interval over donors.

    Raises:
        UserError: if the model or the tokens are not the expected ones.
    """
    encoder, metadata = load_encoder(checkpoint, resolve_device(device))
    check_identity(checkpoint, metadata, **model_of(output_csv))
    if not hasattr(encoder, "output"):
        raise UserError(f"{checkpoint}: has no output layer; use the {MODEL} that training wrote")
    tokens = TokenStore.open(store, dataset=dataset, vocabulary=metadata["vocabulary"])
    identity = {"model": metadata["model"], **tokens.identity}
    compute: Loss = masked_losses
    if next(encoder.parameters()).is_cuda:
        torch.compiler.reset()  # free the graphs of previous models
        compute = torch.compile(masked_losses, dynamic=True)  # one graph for all batches
    mask_seed = derive(seed, "validation_loss", dataset)  # the same for all models
    losses, trial_losses = cell_losses(encoder, tokens, settings, mask_seed, compute)
    cells = tokens.metadata(["cell", "donor"])
    log(f"{dataset} {output_csv.stem}: validation loss {losses.mean():.4f}")
    write_table(output_parquet, pa.table({**cells, "loss": losses}), identity)
    mean, count = float(losses.mean()), len(losses)
    over_masks = mean_interval(trial_losses, settings.confidence)
    rows = {  # interval, n and note of each metric
        "validation_loss": (Interval(mean), count, ""),
        "validation_loss_over_donors": donor_mean(losses, cells["donor"], settings.confidence),
        "validation_loss_over_masks": (over_masks._replace(value=mean), count, ""),
    }
    fields = {name: metadata[name] for name in ("model", "attention", "context", "vocabulary")}
    source = source_of(output_csv, checkpoint, store)
    measurements = [
        Measurement(
            dataset=dataset, metric=metric, n=n, note=note, seed=seed,
            source=source, **interval._asdict(), **fields,
        )
        for metric, (interval, n, note) in rows.items()
    ]  # fmt: skip
    write_measurements(output_csv, measurements)


def cell_losses(
    encoder: Encoder, tokens: TokenStore, settings: ValidationLoss, seed: int,
    compute: Loss = masked_losses,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """Return the loss (nats) of each cell, (cells,), and of the dataset in each trial, (trials,).

    ``compute`` is :func:`masked_losses`, compiled or not.
    """
    device = next(encoder.parameters()).device
    cell_ids = tokens.metadata(["cell"])["cell"]
    losses = np.empty(len(tokens))
    # Element i is the sum of the losses of all cells in the first i trials.
    sums_over_cells = torch.zeros(settings.trials + 1, dtype=torch.float64, device=device)
    batches = make_batches(tokens, encoder.settings, settings.batch_tokens)
    progress = track(
        batches, label="validation loss", unit="cells", total=len(tokens),
        size=lambda cells: cells.stop - cells.start,
    )  # fmt: skip
    for cells in progress:
        rows = np.arange(cells.start, cells.stop)
        genes, cu_seqlens = tokens.cells(rows, encoder.settings.genes)
        # Sum of the losses of each cell in the trials so far.
        sums_over_trials = torch.zeros(len(rows), dtype=torch.float64, device=device)
        for trial in range(settings.trials):
            masking = Masking(
                seed=seed, draw=trial, fraction=settings.mask_fraction, replacement="mask",
                vocabulary_size=encoder.settings.vocabulary_size,
            )  # fmt: skip
            cls = encoder.settings.cls_token
            batch = pack_genes(genes, cu_seqlens, cell_ids[cells], masking, cls_token=cls)
            # The cell of each masked token, and the token's weight in the mean of this cell.
            owner = torch.searchsorted(batch.cu_seqlens, batch.masked, right=True) - 1
            weight = 1 / torch.bincount(owner)[owner].double()
            if device.type == "cuda":
                # The GPU computes while the CPU prepares the next trial.
                batch, owner, weight = batch.pinned(), owner.pin_memory(), weight.pin_memory()
            batch = batch.to(device)
            owner = owner.to(device, non_blocking=True)
            weight = weight.to(device, non_blocking=True)
            with torch.no_grad(), autocast(device):
                token_losses = compute_loss(compute, encoder, batch)
            # compute_loss pads a batch that has fewer than two masked tokens.
            token_losses = token_losses[: len(owner)]
            sums_over_trials.index_add_(0, owner, token_losses.double() * weight)
            sums_over_cells[trial + 1] += sums_over_trials.sum()
        losses[cells] = (sums_over_trials / settings.trials).cpu().numpy()
    return losses, (sums_over_cells.diff() / len(tokens)).cpu().numpy()
