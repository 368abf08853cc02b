"""Embed the cells of an evaluation dataset with a trained model."""

from pathlib import Path

from scsigmoid.config.schema import Embeddings
from scsigmoid.corpus.counts import OWN_ROW
from scsigmoid.corpus.hdf5 import opened, read_data_frame
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.model.devices import resolve_device
from scsigmoid.model.embedding import check_pooling, embed_cells, provenance
from scsigmoid.model.finite import check_finite
from scsigmoid.model.weights import load_encoder
from scsigmoid.records.identity import check_cells, check_identity, model_of
from scsigmoid.tokens.store import TokenStore


def embed_dataset(
    checkpoint: Path, store: Path, cells: Path, settings: Embeddings, device: str, output: Path
) -> None:
    """Embed the cells of a token store with a trained model.

    Args:
        checkpoint: the model's ``model.safetensors``.
        store: token store of the dataset.
        cells: the dataset's h5ad file, named after the dataset. Its ``obs`` is copied.
        output: h5ad file, named after the model (:func:`~.embedding_files.write_embedding`).

    Raises:
        UserError: if model, tokens and cells do not match, or if the embedding is not finite.
    """
    encoder, metadata = load_encoder(checkpoint, resolve_device(device))
    check_identity(checkpoint, metadata, **model_of(output))
    check_pooling(settings.pooling, encoder.settings, checkpoint)
    tokens = TokenStore.open(store, dataset=cells.stem, vocabulary=metadata["vocabulary"])
    check_cells(cells, tokens.identity["cells"])
    label = f"embedding {metadata['model']}"
    values = embed_cells(encoder, tokens, settings.pooling, settings.batch_tokens, label)
    columns = tokens.metadata(["cell", "cell_type"])
    with opened(cells) as file:
        obs = read_data_frame(file["obs"], str(cells))
    obs = obs.iloc[columns["cell"]]
    check_finite(values, obs.index, f"{checkpoint}: embeds", obs.get(OWN_ROW))
    origin = provenance(checkpoint, metadata, settings.pooling)
    identity = {**origin, **tokens.identity}
    write_embedding(output, values, columns["cell_type"], columns["cell"], identity, obs)
