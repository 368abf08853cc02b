"""Embeddings of cells: packed inference, one vector a cell, written as AnnData.

``mean`` averages the last hidden states (after the final layer normalisation) over a cell's gene
tokens, without [CLS]; ``cls`` takes the hidden state of [CLS], where models have one.  The paper
does not say which it used.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scsigmoid.config.schema import Embeddings
from scsigmoid.corpus.hdf5 import data_frame, opened
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import check_finite, write_embedding
from scsigmoid.files import sha256
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.progress import track
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training.batches import Batch, pack, split_by_tokens
from scsigmoid.training.devices import resolve_device
from scsigmoid.training.export import load_encoder
from scsigmoid.training.step import autocast


def embed(
    checkpoint: Path,
    store: Path,
    cells: Path,
    model: str,
    settings: Embeddings,
    device: str,
    output: Path,
) -> None:
    """Embed the cells of a token store with a trained model.

    Args:
        checkpoint: the model's ``model.safetensors``.
        store: token store of the dataset.
        cells: the dataset's h5ad file, for its ``obs``.
        model: the model's name; the embedding becomes ``obsm["X_<model>"]``.
        settings: pooling and tokens per forward pass.
        device: ``auto``, ``cpu`` or ``cuda``.
        output: the h5ad file: the dataset's ``obs`` with the cell type that is evaluated, the
            embedding (float32) and, in ``uns["scsigmoid"]``, what it was made with.

    Raises:
        UserError: if the model, the tokens and the cells do not belong together, or the embedding
            is not finite.
    """
    encoder, facts = load_encoder(checkpoint, resolve_device(device))
    check_pooling(settings, encoder.settings, checkpoint)
    tokens = open_tokens(store, facts["vocabulary"])
    values = vectors(encoder, tokens, settings, f"embedding {model}")
    columns = tokens.metadata(["cell", "cell_type"])
    with opened(cells) as file:
        obs = data_frame(file["obs"])
    if columns["cell"].max() >= len(obs):
        raise UserError(f"{cells}: not the file that {store} was made from; make the tokens again")
    obs = obs.iloc[columns["cell"]]
    check_finite(values, obs, f"{checkpoint}: embeds")
    metadata = provenance(checkpoint, facts | {"model": model}, settings, tokens.simulated)
    write_embedding(output, values, columns["cell_type"], columns["cell"], metadata, obs)


def vectors(
    encoder: Encoder, tokens: TokenStore, settings: Embeddings, label: str
) -> NDArray[np.float32]:
    """The embedding of every cell of a store, (cells, hidden), in packed batches."""
    place = next(encoder.parameters()).device
    values = np.empty((len(tokens), encoder.settings.hidden), dtype=np.float32)
    with torch.inference_mode(), autocast(place):
        for rows in batches(tokens, encoder.settings, settings.batch_tokens, label):
            batch = pack(tokens, np.arange(rows.start, rows.stop), encoder.settings).to(place)
            hidden = encoder(batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen)
            values[rows] = pool(hidden.float(), batch, settings, encoder.settings).cpu().numpy()
    return values


def check_pooling(settings: Embeddings, encoder: EncoderSettings, checkpoint: Path) -> None:
    """Refuse to take the hidden state of [CLS] from a model that reads none.

    Raises:
        UserError: naming the model.
    """
    if settings.pooling == "cls" and not encoder.cls_token:
        raise UserError(
            f"{checkpoint}: was trained with tokens.cls: false, so that there is no <cls> to take "
            "an embedding from; pool the mean"
        )


def provenance(
    checkpoint: Path, facts: Mapping[str, Any], settings: Embeddings, simulated: bool
) -> dict[str, Any]:
    """What an embedding was made with: ``uns["scsigmoid"]`` of its file.

    Args:
        checkpoint: the model's file; its SHA-256 is the model's fingerprint.
        facts: the metadata of :func:`~scsigmoid.training.export.load_encoder`.
        settings: the pooling.
        simulated: whether any cell is simulated.
    """
    return {
        "model": facts["model"],
        "attention": facts["attention"],
        "context": facts["context"],
        "pooling": settings.pooling,
        "checkpoint": sha256(checkpoint),
        "vocabulary": facts["vocabulary"],
        "simulated": simulated,
    }


def open_tokens(store: Path, vocabulary: str) -> TokenStore:
    """Open the token store of an evaluation dataset.

    Args:
        store: the store.
        vocabulary: fingerprint of the model's vocabulary.

    Raises:
        UserError: if the tokens are missing, damaged or of another vocabulary, or a cell has none.
    """
    tokens = TokenStore.open(store, vocabulary=vocabulary)
    empty = np.flatnonzero(tokens.lengths == 0)
    if len(empty) or not len(tokens):
        raise UserError(
            f"{store}: {len(empty)} of {len(tokens)} cells have no gene of the vocabulary; "
            "leave them out of the dataset"
        )
    return tokens


def batches(
    tokens: TokenStore, settings: EncoderSettings, batch_tokens: int, label: str
) -> Iterable[slice]:
    """Runs of consecutive cells that fit ``batch_tokens`` tokens, with progress."""
    lengths = np.minimum(tokens.lengths, settings.genes) + settings.cls_token
    return track(split_by_tokens(lengths, batch_tokens), label=label)


def pool(hidden: Tensor, batch: Batch, settings: Embeddings, encoder: EncoderSettings) -> Tensor:
    """One vector a cell, (cells, hidden), from the hidden states (tokens, hidden) of a batch."""
    starts = batch.cu_seqlens[:-1].long()
    if settings.pooling == "cls":
        return hidden[starts]
    lengths = batch.cu_seqlens.diff().long()
    sums = torch.segment_reduce(hidden, "sum", lengths=lengths, axis=0)
    if not encoder.cls_token:
        return sums / lengths.unsqueeze(1)
    return (sums - hidden[starts]) / (lengths - 1).unsqueeze(1)
