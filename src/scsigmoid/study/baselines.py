"""Compute the losses of baselines that predict genes from their frequencies, without attention."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.model.batches import Batch, pack
from scsigmoid.model.masking import Masking
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.records.csv_rows import write_frame
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.shares import validation_indices

#: The class of a token is its rank in the cell (in ``RANKS`` equal parts of the cell) and the
#: length of the cell (in ``LENGTHS`` powers of two). There are ``RANKS * LENGTHS`` classes.
RANKS, LENGTHS = 8, 12
#: Smoothing adds this many tokens to each class, divided among genes by their overall shares.
PRIOR = 2000.0


def baselines(config: Config, results: Path, output: Path) -> None:
    """Write the mean losses of two baselines over the masked genes.

    ``frequencies`` predicts each gene by its share of all training tokens. ``rank and length``
    predicts each gene by its share of the training tokens of the same class (similar rank in cells
    of similar length), and excludes the visible genes of the cell.

    ``output`` is a CSV file with ``dataset`` (``validation`` or an evaluation dataset),
    ``context`` (each context of the study, in tokens), ``baseline`` and ``loss`` (nats).
    """
    vocabulary_size = Vocabulary.read(results / "tokens/vocabulary.parquet").size
    size = config.sizes[config.architecture.size]
    # The folder may also contain parts of an earlier run with more parts.
    parts = [results / f"tokens/training/part-{part}" for part in Plan(config).parts]
    training = TokenStore.open(parts)
    validation = validation_indices(len(training), config.training.validation_cells)
    trained = np.setdiff1d(np.arange(len(training)), validation)
    # Token store, row numbers of the cells, and seed of the masks, by name of the dataset. The
    # masks of "validation" are the same as in the validation loss during training.
    datasets = {"validation": (training, validation, derive(0, "validation"))}
    for dataset in config.datasets:
        store = TokenStore.open(results / "tokens/evaluation" / dataset)
        datasets[dataset] = (store, np.arange(len(store)), derive(config.seed, dataset))
    rows = []
    for context in sorted(
        {tokens for family in config.study.values() for tokens in family.context}
    ):
        # The baselines use only the context, the vocabulary and [CLS] of these settings.
        settings = EncoderSettings.of(
            size, config.architecture, "sigmoid", context, vocabulary_size,
            cls_token=config.tokens.cls,
        )  # fmt: skip
        shares = ClassShares(training, trained, settings)
        log_shares = np.log(shares.overall_shares)
        for name, (store, cells, seed) in datasets.items():
            masking = Masking(
                seed=seed, draw=0, fraction=config.training.mask_fraction, replacement="mask",
                vocabulary_size=vocabulary_size,
            )  # fmt: skip
            batch = pack(store, cells, settings, masking)
            rows += [
                (name, context, "frequencies", -log_shares[batch.targets.numpy()].mean()),
                (name, context, "rank and length", shares.loss(batch)),
            ]
    table = pd.DataFrame(rows, columns=["dataset", "context", "baseline", "loss"])
    write_frame(output, table)


class ClassShares:
    """Smoothed shares of genes among training tokens.

    Attributes:
        overall_shares: share of each gene among all tokens, (vocabulary,).
        class_shares: share of each gene among the tokens of each class, (classes, vocabulary).
    """

    def __init__(
        self, store: TokenStore, rows: NDArray[np.int64], settings: EncoderSettings
    ) -> None:
        """Count the genes in the cells ``rows`` (row numbers) of the store."""
        batch = pack(store, rows, settings)
        lengths = np.diff(batch.cu_seqlens.numpy())
        classes = classes_of(batch.positions.numpy(), np.repeat(lengths, lengths))
        shape = RANKS * LENGTHS, settings.vocabulary_size
        indices = np.ravel_multi_index((classes, batch.tokens.numpy()), shape)
        counts = np.bincount(indices, minlength=math.prod(shape)).reshape(shape)
        counts[:, : len(SPECIAL)] = 0
        overall_counts = counts.sum(0) + 0.5  # genes without a count get a small share, too
        overall_counts[: len(SPECIAL)] = 0
        # Special tokens are never targets. The lower limit only avoids a warning about log(0).
        self.overall_shares = np.maximum(overall_counts / overall_counts.sum(), 1e-300)
        smoothed = counts + PRIOR * self.overall_shares
        self.class_shares = smoothed / smoothed.sum(1, keepdims=True)

    def loss(self, batch: Batch) -> float:
        """Return the mean loss of ``rank and length`` over the masked genes of a batch, in nats."""
        tokens, masked = batch.tokens.numpy(), batch.masked.numpy()
        targets, cu_seqlens = batch.targets.numpy(), batch.cu_seqlens.numpy()
        losses = []
        for begin, end in pairwise(cu_seqlens):
            # Masked genes of this cell, in `masked` and in `targets`.
            in_cell = slice(*np.searchsorted(masked, [begin, end]))
            classes = classes_of(masked[in_cell] - begin, end - begin)
            cell = tokens[begin:end]
            visible = cell[cell >= len(SPECIAL)]  # without [CLS] and [MASK]
            shares = self.class_shares[classes, targets[in_cell]]
            # By class: total share of the genes that are not visible.
            remaining = 1 - self.class_shares[:, visible].sum(1)
            losses.append(-np.log(shares / remaining[classes]))
        return float(np.concatenate(losses).mean())


def classes_of(ranks: NDArray[np.integer], lengths: NDArray[np.integer] | int) -> NDArray[np.int64]:
    """Return the class of each token, from 0 to ``RANKS * LENGTHS - 1``.

    ``ranks`` are ranks within the cells, from 0. ``lengths`` are the numbers of tokens of the cells
    (one number if all tokens are of one cell).
    """
    rank_class = ranks * RANKS // lengths
    # A cell without tokens has length 0.
    length_class = np.minimum(np.log2(np.maximum(lengths, 1)).astype(np.int64), LENGTHS - 1)
    return rank_class + RANKS * length_class
