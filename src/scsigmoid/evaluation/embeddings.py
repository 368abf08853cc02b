"""Embed the cells of an evaluation dataset with a trained model."""

from pathlib import Path

import numpy as np

from scsigmoid.config.schema import Embeddings
from scsigmoid.corpus.counts import OWN_ROW
from scsigmoid.corpus.hdf5 import read_obs
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.model.devices import resolve_device
from scsigmoid.model.embedding import embed_cells, provenance
from scsigmoid.model.finite import check_finite
from scsigmoid.model.weights import load_encoder, load_vocabulary
from scsigmoid.progress import log
from scsigmoid.records.identity import check_cells, check_identity, model_of
from scsigmoid.tokens.packed import CellTokens
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import Vocabulary


def embed_dataset(
    checkpoint: Path, store: Path, cells: Path, settings: Embeddings, device: str, output: Path,
    vocabulary: Path | None = None,
) -> None:  # fmt: skip
    """Embed the cells of a token store with a trained model.

    Args:
        checkpoint: the model's ``model.safetensors``.
        store: token store of the dataset.
        cells: the dataset's h5ad file, named after the dataset. Its ``obs`` is copied.
        output: h5ad file, named after the model (:func:`~.embedding_files.write_embedding`).
        vocabulary: None, or the vocabulary of the store, which begins with that of the model. The
            model does not see the other genes, and the embedding has the name of ``output``.

    Raises:
        UserError: if model, tokens and cells do not match, or if the embedding is not finite.
    """
    encoder, metadata = load_encoder(checkpoint, resolve_device(device))
    if vocabulary:
        extended = Vocabulary.read(vocabulary)
        if not extended.starts_with(load_vocabulary(checkpoint)):
            raise UserError(f"{vocabulary}: does not begin with the genes of {checkpoint}; make it")
        metadata |= {"model": output.stem, "vocabulary": extended.fingerprint}
    check_identity(checkpoint, metadata, **model_of(output))
    tokens = TokenStore.open(store, dataset=cells.stem, vocabulary=metadata["vocabulary"])
    check_cells(cells, tokens.identity["cells"])
    label = f"embedding {metadata['model']}"
    known = first_tokens(tokens, encoder.settings.vocabulary_size) if vocabulary else tokens
    values = embed_cells(encoder, known, settings.batch_tokens, label)
    columns = tokens.metadata(["cell", "cell_type"])
    obs = read_obs(cells).iloc[columns["cell"]]
    check_finite(values, obs.index, f"{checkpoint}: embeds", obs.get(OWN_ROW))
    origin = provenance(checkpoint, metadata)
    identity = {**origin, **tokens.identity}
    write_embedding(output, values, columns["cell_type"], columns["cell"], identity, obs)


def first_tokens(tokens: TokenStore, size: int) -> CellTokens:
    """Return cells without the tokens from ``size`` on, in memory. Log how many are left out.

    Raise a UserError if a cell has no other token.
    """
    packed = tokens.cells(range(len(tokens)), tokens.maximum_length)
    is_known = packed.tokens < size
    kept = np.add.reduceat(is_known, packed.cu_seqlens[:-1], dtype=np.int32)
    if not kept.all():
        raise UserError(f"{int((kept == 0).sum())} cells express no gene of the initial model")
    log(f"{100 * (~is_known).mean():.2f} % of the tokens are of genes that the initial model lacks")
    return CellTokens(packed.tokens[is_known], np.cumsum([0, *kept], dtype=np.int64), kept)
