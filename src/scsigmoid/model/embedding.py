"""Embed cells with a trained model: one vector per cell.

It is the mean of the last hidden states (after the final layer normalization) over a cell's gene
tokens, without [CLS]. The paper does not say how it pools them.
"""

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scsigmoid.files import sha256
from scsigmoid.model.batches import Batch, pack, split_by_tokens
from scsigmoid.model.devices import autocast
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.progress import track
from scsigmoid.tokens.packed import TokenizedCells

TRIM_EVERY = 16  # number of batches after which return_free_memory is called


def embed_cells(
    encoder: Encoder, tokens: TokenizedCells, batch_tokens: int, label: str
) -> NDArray[np.float32]:
    """Return the embedding of every cell, (cells, hidden), float32.

    Args:
        encoder: a trained encoder, on any device.
        tokens: cells of a token store, or in memory.
        batch_tokens: maximum number of tokens per forward pass.
        label: text of the progress bar.
    """
    batches = make_batches(tokens, encoder.settings, batch_tokens)
    values = np.empty((len(tokens), encoder.settings.hidden), dtype=np.float32)
    parts = embed_batches(encoder, tokens, batches)
    progress = track(
        parts, label=label, unit="cells", total=len(tokens), size=lambda part: len(part[1])
    )
    for rows, part in progress:
        values[rows] = part
    return values


def embed_batches(
    encoder: Encoder, tokens: TokenizedCells, batches: Iterable[slice]
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield batches, slices of consecutive cells, with their embeddings, (cells, hidden), float32.

    On a GPU, a batch is read and its kernels are launched while the GPU computes the batch before.
    """
    device = next(encoder.parameters()).device
    is_gpu = device.type == "cuda"
    waiting: list[tuple[slice, Tensor, torch.cuda.Event | None]] = []  # the batch before
    for number, rows in enumerate(batches):
        with torch.inference_mode(), autocast(device):
            batch = pack(tokens, np.arange(rows.start, rows.stop), encoder.settings)
            # The copies to and from page-locked memory do not wait for the GPU.
            batch = (batch.pinned() if is_gpu else batch).to(device)
            hidden = encoder(batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen)
            values = pool(hidden.float(), batch).to("cpu", non_blocking=True)
        waiting.append(
            (rows, values, torch.cuda.current_stream().record_event() if is_gpu else None)
        )
        if len(waiting) > 1 or not is_gpu:
            yield finished(*waiting.pop(0))
        if number % TRIM_EVERY == 0:
            return_free_memory()
    for last in waiting:
        yield finished(*last)


def finished(
    rows: slice, values: Tensor, copied: "torch.cuda.Event | None"
) -> tuple[slice, NDArray[np.float32]]:
    """Return a batch and its values on the CPU after the event ``copied``."""
    if copied is not None:
        copied.synchronize()
    return rows, values.numpy()


def return_free_memory() -> None:
    """Make glibc return unused memory to the system.

    Batches differ in size, so glibc cannot reuse all freed blocks: up to several KB per cell.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def provenance(checkpoint: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model of an embedding, for ``uns`` of its file."""
    return {
        **{name: metadata[name] for name in ("model", "attention", "context", "step")},
        "checkpoint": sha256(checkpoint),
        "vocabulary": metadata["vocabulary"],
    }


def make_batches(
    tokens: TokenizedCells, settings: EncoderSettings, batch_tokens: int
) -> list[slice]:
    """Return batches as slices of consecutive cells, with at most ``batch_tokens`` tokens each."""
    # Cells are cut to the model's context, and [CLS] is one more token if the model has it.
    lengths = np.minimum(tokens.lengths, settings.genes) + settings.cls_token
    return split_by_tokens(lengths, batch_tokens)


def pool(hidden: Tensor, batch: Batch) -> Tensor:
    """Return one vector per cell, (cells, hidden), from the hidden states (tokens, hidden)."""
    lengths = batch.cu_seqlens.diff().long()
    # unsafe: without the checks of the lengths, for which the host would wait for the GPU
    sums = torch.segment_reduce(hidden, "sum", lengths=lengths, axis=0, unsafe=True)
    if not batch.cls_token:
        return sums / lengths.unsqueeze(1)
    cls_states = hidden[batch.cu_seqlens[:-1].long()]
    return (sums - cls_states) / (lengths - 1).unsqueeze(1)
