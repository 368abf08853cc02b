"""Losses of baselines without attention, from gene frequencies."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scsigmoid.config.schema import Config
from scsigmoid.files import write_text
from scsigmoid.model.masking import Masking
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.batches import Batch, pack, validation_rows

#: Number of classes of tokens: by rank within the cell (eighths) and by length of the cell (powers
#: of two).
RANKS, LENGTHS = 8, 12
#: Smoothing: number of tokens with the overall gene frequencies that is added to each class.
PRIOR = 2000.0


def baselines(config: Config, results: Path, output: Path) -> None:
    """Write the mean losses over masked genes of two baselines without attention.

    The baseline ``frequencies`` predicts each gene by its share of all training tokens. The
    baseline ``rank and length`` predicts it by its share of the training tokens of similar rank in
    cells of similar length, and excludes the genes of the cell that are not masked.

    Args:
        config: the configuration of the study.
        results: results folder with tokens.
        output: CSV file with ``dataset`` (``validation`` or an evaluation dataset), ``baseline``
            and ``loss`` (nats).
    """
    size = Vocabulary.read(results / "tokens/vocabulary.parquet").size
    longest = max(context for family in config.study.values() for context in family.context)
    settings = EncoderSettings.of(
        config.sizes[config.architecture.size],
        config.architecture,
        "sigmoid",
        longest,
        size,
        cls_token=config.tokens.cls,
    )
    training = TokenStore.open(sorted((results / "tokens/training").glob("part-*")))
    held_out = validation_rows(len(training), config.training.validation_cells)
    shares = ClassShares(training, np.setdiff1d(np.arange(len(training)), held_out), settings)
    overall = np.log(shares.mean_share)
    sets = {"validation": (training, held_out, derive(0, "validation"))}
    for dataset in config.datasets:
        store = TokenStore.open(results / "tokens/evaluation" / dataset)
        sets[dataset] = (store, np.arange(len(store)), derive(config.seed, dataset))
    rows = []
    for name, (store, cells, seed) in sets.items():
        masking = Masking(
            seed=seed,
            draw=0,
            fraction=config.training.mask_fraction,
            replacement="mask",
            vocabulary_size=size,
        )
        batch = pack(store, cells, settings, masking)
        losses = {
            "frequencies": -overall[batch.targets.numpy()].mean(),
            "rank and length": shares.loss(batch),
        }
        for baseline, loss in losses.items():
            rows.append({"dataset": name, "baseline": baseline, "loss": loss})
    write_text(output, pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"))


class ClassShares:
    """Shares of genes: ``mean_share`` in all tokens, ``shares`` in each class (rows), smoothed."""

    def __init__(
        self, store: TokenStore, rows: NDArray[np.int64], settings: EncoderSettings
    ) -> None:
        """Count the genes of these cells (row numbers) of the store."""
        batch = pack(store, rows, settings)
        lengths = np.diff(batch.cu_seqlens.numpy())
        classes = classes_of(batch.positions.numpy(), np.repeat(lengths, lengths))
        size = settings.vocabulary_size
        flat = classes * size + batch.tokens.numpy()
        counts = np.bincount(flat, minlength=RANKS * LENGTHS * size).reshape(-1, size)
        counts[:, : len(SPECIAL)] = 0
        total = counts.sum(0) + 0.5
        total[: len(SPECIAL)] = 0
        self.mean_share = np.maximum(total / total.sum(), 1e-300)
        smooth = counts + PRIOR * self.mean_share
        self.shares = smooth / smooth.sum(1, keepdims=True)

    def loss(self, batch: Batch) -> float:
        """Return the mean loss over the masked genes of a batch, in nats."""
        tokens, masked = batch.tokens.numpy(), batch.masked.numpy()
        targets, edges = batch.targets.numpy(), batch.cu_seqlens.numpy()
        losses = []
        for begin, end in pairwise(edges):
            inside = slice(*np.searchsorted(masked, [begin, end]))
            classes = classes_of(masked[inside] - begin, end - begin)
            visible = tokens[begin:end]
            remaining = 1 - self.shares[:, visible[visible >= len(SPECIAL)]].sum(1)
            losses.append(-np.log(self.shares[classes, targets[inside]] / remaining[classes]))
        return float(np.concatenate(losses).mean())


def classes_of(ranks: NDArray[np.integer], lengths: NDArray[np.integer] | int) -> NDArray[np.int64]:
    """Return the class of each token, from its rank in the cell and the length of the cell."""
    length = np.minimum(np.log2(np.maximum(lengths, 1)).astype(np.int64), LENGTHS - 1)
    return (ranks * RANKS // lengths) + RANKS * length
