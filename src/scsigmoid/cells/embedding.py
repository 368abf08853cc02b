"""Tokenize and embed your own cells with a trained model, in memory."""

import zlib
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from scsigmoid.cells.model import Model, check_model
from scsigmoid.corpus.counts import OWN_ROW, open_source
from scsigmoid.corpus.memory import AnnDataInMemory
from scsigmoid.errors import UserError, first_few
from scsigmoid.model.devices import own_defaults
from scsigmoid.model.embedding import embed_cells, provenance, return_free_memory
from scsigmoid.model.finite import check_finite
from scsigmoid.progress import verbosity
from scsigmoid.tokens import ranks
from scsigmoid.tokens.known_genes import with_known_genes
from scsigmoid.tokens.packed import CellTokens, Packed, cumulative

KEY = "X_scsigmoid"  # name of the embedding in obsm, and of its settings in uns
BATCH_TOKENS = 16_384  # default of `batch_tokens`


@own_defaults()
def tokenize(
    adata: AnnData, model: Model, *, layer: str = "", genes: str = "", verbose: bool = True
) -> Packed:
    """Return cells as tokens: each cell's genes from the most to the least expressed.

    Args:
        adata: raw counts, cells x genes. May be a view or backed by a file.
        model: from :func:`load`. Its vocabulary and context are used.
        layer, genes, verbose: as for :func:`embed`.

    Returns:
        ``tokens`` (uint16 or uint32) of all cells, without padding and without [CLS], and
        ``cu_seqlens`` (int32, cells + 1). Cell i has ``tokens[cu_seqlens[i]:cu_seqlens[i + 1]]``.
        The gene of a token is ``model.vocabulary.gene_ids[token]``.

    Raises:
        UserError: as for :func:`embed`.
    """
    check_types(adata, model)
    with verbosity(verbose):
        tokens = read_tokens(adata, model, layer, genes)
    return Packed(tokens.tokens, cumulative(tokens.lengths))


@own_defaults()
def embed(
    adata: AnnData,
    model: Model,
    *,
    key: str = KEY,
    layer: str = "",
    genes: str = "",
    batch_tokens: int = BATCH_TOKENS,
    verbose: bool = True,
) -> None:
    """Embed cells and store the embedding in ``adata.obsm[key]``.

    Args:
        adata: raw counts, cells x genes, with Ensembl ids or gene names. May be a view or backed by
            a file, but not a view of a backed file. The tokens of all cells are in memory, at most
            4 bytes per token. For files larger than memory, use ``scsigmoid embed``.
        model: from :func:`load`.
        key: name of the embedding in ``obsm`` (cells x hidden, float32) and of its settings in
            ``uns``.
        layer: layer with the raw counts (default: ``raw.X``, else ``X``).
        genes: column of ``var`` with gene ids or names (default: the index, or the only column with
            Ensembl ids if the index has none).
        batch_tokens: maximum number of tokens per forward pass. Fewer tokens need less memory.
        verbose: whether to print progress. Warnings are always printed. All lines go through the
            logger ``scsigmoid`` of :mod:`logging`.

    Raises:
        UserError: if cells have no raw counts, are of another organism or have no gene of the
            vocabulary, or if the embedding is not finite.
    """
    check_types(adata, model)
    check_options(key, batch_tokens)
    check_writable(adata)
    with verbosity(verbose):
        tokens = read_tokens(adata, model, layer, genes)
        label = f"embedding with {model.name}"
        values = embed_cells(model.encoder, tokens, batch_tokens, label)
    subject = f"{model.path}: embeds"
    check_finite(values, adata.obs.index, subject, adata.obs.get(OWN_ROW))
    adata.obsm[key] = values
    adata.uns[key] = origin(model, adata.obs_names, values)


def origin(model: Model, names: Iterable[Any], values: NDArray[np.float32]) -> dict[str, Any]:
    """Return the model and the cells of an embedding, for ``uns``. ``names`` are of the cells."""
    hashes = {"cell_hashes": cell_hashes(names, values)}
    return provenance(model.path, model.metadata) | hashes


def cell_hashes(names: Iterable[Any], values: NDArray[Any]) -> NDArray[np.uint32]:
    """Return a hash of each cell's name and embedding. It does not depend on other cells."""
    rows = np.ascontiguousarray(values, "<f4")
    starts = (zlib.crc32(str(name).encode(errors="replace")) for name in names)
    return np.array([*map(zlib.crc32, rows, starts)], np.uint32)


def read_tokens(adata: AnnData, model: Model, layer: str, genes: str) -> CellTokens:
    """Return the tokens of all cells of an AnnData.

    Raise a UserError if a cell has no gene of the vocabulary, because ``obsm`` needs all cells.
    """
    for name, value in {"layer": layer, "genes": genes}.items():
        if not isinstance(value, str | None):
            raise UserError(f"{name}: expected a name, found {type(value).__name__}; give a string")
    vocabulary = model.vocabulary
    source = open_source(AnnDataInMemory(adata), layer, genes)
    cells = with_known_genes(source, vocabulary.name_of, vocabulary.retired)
    tokens = ranks.tokenize(cells, vocabulary, model.encoder.settings.genes)
    return_free_memory()
    empty = np.flatnonzero(tokens.genes == 0)
    if len(empty):
        raise UserError(
            f"adata: {len(empty)} of {adata.n_obs} cells express no gene of the vocabulary "
            f"({first_few(adata.obs_names[empty])}); leave them out, as "
            "scanpy.pp.filter_cells(adata, min_genes=100) does with almost empty cells"
        )
    return tokens


def check_types(adata: object, model: object, name: str = "adata") -> None:
    """Raise a UserError if an argument is not an AnnData (``name`` in messages) or a Model."""
    if not isinstance(adata, AnnData):
        found = type(adata).__name__
        raise UserError(f"{name}: expected an AnnData, found {found}; read the file first")
    if not isinstance(adata.obs, pd.DataFrame):  # of anndata.experimental.read_lazy
        raise UserError(f"{name}: is read lazily; use {name}.to_memory() instead")
    check_model(model)


def check_writable(adata: AnnData, name: str = "adata") -> None:
    """Raise a UserError if anndata cannot write to an AnnData (``name`` in messages)."""
    if adata.isbacked and adata.is_view:
        raise UserError(f"{name}: is a view of a backed file; use {name}.to_memory() instead")


def check_options(key: object, batch_tokens: object) -> None:
    """Raise a UserError if ``key`` is not a name for ``obsm`` or ``batch_tokens`` is not >= 1."""
    # HDF5 reads "." as the name of obsm itself.
    if not isinstance(key, str) or key in ("", ".") or not key.isprintable() or "/" in key:
        raise UserError(f"key: is {key!r}; give a name for obsm, without '/'")
    if not isinstance(batch_tokens, Integral) or batch_tokens < 1:
        raise UserError(f"batch_tokens: is {batch_tokens!r}; use an integer of at least 1")
