"""Embeddings of cells: packed inference, one vector a cell, written as AnnData.

``mean`` averages the last hidden states (after the final layer normalisation) over a cell's gene
tokens, [CLS] left out; ``cls`` takes the hidden state of [CLS].  The paper does not say which it
used.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scsigmoid.config.schema import Embeddings
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, sha256
from scsigmoid.progress import track
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training.batches import Batch, pack, split_by_tokens
from scsigmoid.training.devices import resolve_device
from scsigmoid.training.export import load_encoder
from scsigmoid.training.step import autocast


@dataclass(frozen=True)
class Embedding:
    """The embedding of a dataset by one model.

    Attributes:
        path: where it was read from.
        values: cells x hidden, float32, finite.
        labels: cell type of each cell.
        cells: row of each cell in the dataset's h5ad file, int64.
        metadata: ``model``, ``attention``, ``context``, ``pooling``, ``checkpoint``,
            ``vocabulary`` and ``simulated``.
    """

    path: Path
    values: NDArray[np.float32]
    labels: NDArray[np.str_]
    cells: NDArray[np.int64]
    metadata: dict[str, Any]


def embed(
    checkpoint: Path, store: Path, model: str, settings: Embeddings, device: str, output: Path
) -> None:
    """Embed the cells of a token store with a trained model.

    Args:
        checkpoint: the model's ``model.safetensors``.
        store: token store of the dataset.
        model: the model's name; the embedding becomes ``obsm["X_<model>"]``.
        settings: pooling and tokens per forward pass.
        device: ``auto``, ``cpu`` or ``cuda``.
        output: the h5ad file: ``obs["cell_type"]``, cell rows as index, the embedding (float32)
            and, in ``uns["scsigmoid"]``, what it was made with.

    Raises:
        UserError: if the model and the tokens do not belong together, or the embedding is not
            finite.
    """
    place = resolve_device(device)
    encoder, facts = load_encoder(checkpoint, place)
    tokens = open_tokens(store, facts["vocabulary"])
    values = np.empty((len(tokens), encoder.settings.hidden), dtype=np.float32)
    with torch.inference_mode(), autocast(place):
        for rows in batches(tokens, facts["context"], settings.batch_tokens, f"embedding {model}"):
            batch = pack(tokens, np.arange(rows.start, rows.stop), facts["context"]).to(place)
            hidden = encoder(batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen)
            values[rows] = pool(hidden.float(), batch, settings.pooling).cpu().numpy()
    columns = tokens.metadata(["cell", "cell_type"])
    metadata = {
        "model": model,
        "attention": facts["attention"],
        "context": facts["context"],
        "pooling": settings.pooling,
        "checkpoint": sha256(checkpoint),
        "vocabulary": facts["vocabulary"],
        "simulated": tokens.simulated,
    }
    check_finite(values, f"{checkpoint}: embeds")
    write_embedding(output, values, columns["cell_type"], columns["cell"], metadata)


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
    tokens: TokenStore, context: int, batch_tokens: int, label: str
) -> Iterable[slice]:
    """Runs of consecutive cells that fit ``batch_tokens`` tokens, with progress."""
    lengths = np.minimum(tokens.lengths, context - 1) + 1
    return track(split_by_tokens(lengths, batch_tokens), label=label)


def pool(hidden: Tensor, batch: Batch, pooling: str) -> Tensor:
    """One vector a cell, (cells, hidden), from the hidden states (tokens, hidden) of a batch."""
    starts = batch.cu_seqlens[:-1].long()
    if pooling == "cls":
        return hidden[starts]
    lengths = batch.cu_seqlens.diff().long()
    sums = torch.segment_reduce(hidden, "sum", lengths=lengths, axis=0)
    return (sums - hidden[starts]) / (lengths - 1).unsqueeze(1)


def check_finite(values: NDArray[np.float32], subject: str) -> None:
    """Refuse NaN and infinity, with the number of cells and the first of them."""
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(broken):
        raise UserError(
            f"{subject} {len(broken)} of {len(values)} cells as NaN or infinity (the first is "
            f"number {broken[0]}); the model diverged: check its journal and train it again"
        )


def write_embedding(
    output: Path,
    values: NDArray[np.float32],
    labels: NDArray[Any],
    cells: NDArray[np.int64],
    metadata: Mapping[str, Any],
) -> None:
    """Write an embedding as AnnData; the same bytes for the same values."""
    import anndata
    import pandas as pd

    adata = anndata.AnnData(
        obs=pd.DataFrame(
            {"cell_type": pd.Categorical(labels.astype(str))}, index=pd.Index(cells.astype(str))
        ),
        obsm={f"X_{metadata['model']}": values},
        uns={"scsigmoid": dict(metadata)},
    )
    with atomic_path(output) as temporary:
        adata.write_h5ad(temporary)


def read_embedding(path: Path) -> Embedding:
    """Read what :func:`embed` wrote.

    Raises:
        UserError: if the file is missing or holds something else, or values are not finite.
    """
    import anndata

    if not path.is_file():
        raise UserError(f"{path}: no such embedding; run the target that makes it")
    try:
        adata = anndata.read_h5ad(path)
        # anndata reads scalars as NumPy's
        metadata = {
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in adata.uns["scsigmoid"].items()
        }
        values = np.asarray(adata.obsm[f"X_{metadata['model']}"], dtype=np.float32)
        labels = adata.obs["cell_type"].to_numpy().astype(str)
        cells = adata.obs_names.to_numpy().astype(np.int64)
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(
            f"{path}: damaged, or not an embedding of this project; delete it and run again"
        ) from error
    check_finite(values, f"{path}: holds")
    return Embedding(path, values, labels, cells, metadata)


def read_arms(paths: Mapping[str, Path]) -> dict[str, Embedding]:
    """Read the embeddings of one dataset by several models, of the same cells in the same order.

    Args:
        paths: model name to file.

    Raises:
        UserError: if the cells or their types differ between models, or a cell type is missing
            from one.
    """
    arms = {name: read_embedding(path) for name, path in paths.items()}
    first, *others = arms.values()
    for other in others:
        missing = sorted({*first.labels.tolist()} ^ {*other.labels.tolist()})
        if missing:
            lacking = first if missing[0] in other.labels else other
            raise UserError(
                f"{lacking.path}: has no cell of type {missing[0]!r}, which the other model has; "
                "embed the same cells with both models"
            )
        if not np.array_equal(first.cells, other.cells):
            raise UserError(
                f"{other.path}: holds other cells than {first.path} ({len(other.cells)} and "
                f"{len(first.cells)} cells); embed the same cells with both models"
            )
        if not np.array_equal(first.labels, other.labels):
            raise UserError(
                f"{other.path}: has other cell types than {first.path} for the same cells; embed "
                "them again"
            )
    return arms
