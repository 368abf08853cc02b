"""Embed your own cells with a trained model, from Python or with ``scsigmoid embed``.

Cells are first written as tokens to a temporary token store (:mod:`scsigmoid.tokens.store`).
"""

import dataclasses
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem
from numpy.typing import NDArray
from scipy.sparse import issparse

from scsigmoid.attention.backends import choose_backend
from scsigmoid.config.schema import Embeddings, Pooling
from scsigmoid.corpus.genes import has_ids, is_id, may_be_read, organism_of
from scsigmoid.corpus.h5ad import Cells, open_cells
from scsigmoid.corpus.h5ad_writer import as_h5ad, storing
from scsigmoid.corpus.hdf5 import format_names, opened, read_data_frame
from scsigmoid.corpus.matrix_reader import find_counts
from scsigmoid.errors import UserError, first_few, shown_as
from scsigmoid.evaluation.embedding_files import check_finite
from scsigmoid.evaluation.embeddings import (
    check_pooling,
    embed_cells,
    provenance,
    return_free_memory,
)
from scsigmoid.files import atomic_path
from scsigmoid.model.encoder import Encoder
from scsigmoid.progress import log, verbosity
from scsigmoid.tokens.make import Tokenizer
from scsigmoid.tokens.store import Packed, TokenStore, grouped, write_shards
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.devices import own_defaults, resolve_device
from scsigmoid.training.export import MODEL, load_encoder, load_vocabulary

KEY = "X_scsigmoid"  # name of the embedding in obsm, and of its settings in uns
TARGET_SUM = 10_000  # any value gives the same ranks
# Files of the models that the package contains, by name.
PACKAGED = {path.stem: path for path in (Path(__file__).parents[1] / "data").glob("*.safetensors")}
SHARD_CELLS = 8192  # maximum number of cells per shard of the temporary token store
BATCH_TOKENS = 16_384  # default of `batch_tokens`


@dataclass(frozen=True)
class Model:
    """A trained encoder and its vocabulary, returned by :func:`load`.

    Attributes:
        path: ``model.safetensors``.
        encoder: the :class:`torch.nn.Module`, in evaluation mode.
        vocabulary: gene ids, names and medians of the tokens.
        metadata: ``model``, ``attention``, ``context``, ``size``, ``training``, ``step``, ``seed``
            and the encoder's other settings.
    """

    path: Path
    encoder: Encoder
    vocabulary: Vocabulary
    metadata: dict[str, Any]

    @property
    def name(self) -> str:
        """The model's name, such as ``sigmoid_2k``."""
        return str(self.metadata["model"])

    def __repr__(self) -> str:
        weights = list(self.encoder.parameters())
        return (
            f"Model({self.name}: {self.metadata['attention']} attention, context "
            f"{self.metadata['context']:,}, {sum(w.numel() for w in weights) / 1e6:.1f}M "
            f"parameters, {self.vocabulary.size - len(SPECIAL):,} genes, {weights[0].device})"
        )


@own_defaults()
def load(path: str | Path, *, device: str = "auto", backend: str = "auto") -> Model:
    """Load a trained model.

    Args:
        path: ``model.safetensors``, its folder, or ``"blood"`` for the packaged small model of
            human blood cells (docs/evaluation.md). If you have a folder of this name, use
            ``"./blood"``.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
        backend: attention backend. ``auto`` selects the fastest.

    Raises:
        UserError: if the file is missing or damaged, or if the device is missing or cannot run the
            backend.
    """
    if not isinstance(path, (str, Path)):
        raise UserError(
            f"path: expected a path or a name, found {type(path).__name__}; give the path of "
            f"{MODEL}"
        )
    path = PACKAGED[path] if isinstance(path, str) and path in PACKAGED else Path(path).expanduser()
    if (path / MODEL).is_file():
        path = path / MODEL
    encoder, metadata = load_encoder(path, resolve_device(device), backend)
    if backend != "auto":
        # Raises an error now, not in the first forward pass, if the device cannot run the backend.
        choose_backend(metadata["attention"], backend, next(encoder.parameters()).device)
    return Model(path, encoder, load_vocabulary(path), metadata)


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
    with adata_token_store(adata, model, layer, genes, verbose) as store:
        return TokenStore.open(store).cells(np.arange(adata.n_obs), model.encoder.settings.genes)


@own_defaults()
def embed(
    adata: AnnData,
    model: Model,
    *,
    key: str = KEY,
    layer: str = "",
    genes: str = "",
    pooling: Pooling = "mean",
    batch_tokens: int = BATCH_TOKENS,
    verbose: bool = True,
) -> None:
    """Embed cells and store the embedding in ``adata.obsm[key]``.

    Args:
        adata: raw counts, cells x genes, with Ensembl ids or gene names. May be a view or backed by
            a file, but not a view of a backed file. The counts are copied to a temporary file. For
            files larger than memory, use ``scsigmoid embed``, which reads them in blocks.
        model: from :func:`load`.
        key: name of the embedding in ``obsm`` (cells x hidden, float32) and of its settings in
            ``uns``.
        layer: layer with the raw counts (default: ``raw.X``, else ``X``).
        genes: column of ``var`` with gene ids or names (default: the index, or the only column with
            Ensembl ids if the index has none).
        pooling: ``mean`` over a cell's gene tokens in the last layer, or ``cls``, the hidden state
            of [CLS].
        batch_tokens: maximum number of tokens per forward pass. Fewer tokens need less memory.
        verbose: whether to print progress. Warnings are always printed. All lines go through the
            logger ``scsigmoid`` of :mod:`logging`.

    Raises:
        UserError: if cells have no raw counts, are of another organism or have no gene of the
            vocabulary, or if the embedding is not finite.
    """
    check_types(adata, model)
    check_options(key, batch_tokens)
    if adata.isbacked and adata.is_view:  # anndata cannot write to such views
        raise UserError("adata: is a view of a backed file; embed adata.to_memory() instead")
    settings = Embeddings(pooling=pooling, batch_tokens=batch_tokens)
    check_pooling(settings, model.encoder.settings, model.path)
    origin = adata.uns.get("scsigmoid")  # metadata of files that this package wrote
    is_simulated = isinstance(origin, Mapping) and bool(origin.get("simulated", False))
    with adata_token_store(adata, model, layer, genes, verbose) as store:
        label = f"embedding with {model.name}"
        values = embed_cells(model.encoder, TokenStore.open(store), settings, label)
    check_finite(values, adata.obs, f"{model.path}: embeds")
    adata.obsm[key] = values
    adata.uns[key] = provenance(model.path, model.metadata, settings, is_simulated)


@own_defaults()
def embed_file(
    path: Path,
    model: Model,
    settings: Embeddings,
    output: Path,
    *,
    key: str = KEY,
    layer: str = "",
    genes: str = "",
    force: bool = False,
) -> None:
    """Embed the cells of an h5ad file, or of a 10x file or folder, in bounded memory.

    Args:
        path: raw counts, with genes by Ensembl id or by name.
        output: h5ad file with the ``obs`` of the input, the embedding in ``obsm[key]`` (cells x
            hidden, float32) and its settings in ``uns[key]``. Cells without a gene of the
            vocabulary are left out, and the log lists them.
        key, layer, genes: as for :func:`embed`.
        force: whether to replace an output that exists now. An output that appears later is kept.

    Raises:
        UserError: as for :func:`embed`, or if a file is damaged, the output exists or appears
            meanwhile, or the output is the input, the model, a pipe or a device.
    """
    check_options(key, settings.batch_tokens)
    for name, file in {"input": path, "model": model.path}.items():
        if output.exists() and file.exists() and output.samefile(file):
            raise UserError(f"{output}: is the {name} itself; give another file for the embedding")
    exists = os.path.lexists(output)
    if exists and not force:
        raise UserError(f"{output}: exists; give another file, or --force to replace it")
    check_pooling(settings, model.encoder.settings, model.path)
    # An output that appears meanwhile, perhaps of another command, is kept.
    with atomic_path(output, overwrite=exists) as temporary, as_h5ad(path) as source:
        obs, is_simulated = read_obs(source)
        with token_store(model, source, layer, genes, path.stem) as store:
            tokens = TokenStore.open(store)
            rows = tokens.metadata(["cell"])["cell"]
            obs = obs.iloc[rows]
            # If anndata cannot write the data, raise the error before the slow embedding.
            with storing(str(path)):
                AnnData(obs=obs).write_h5ad(temporary)
            values = embed_cells(model.encoder, tokens, settings, f"embedding {path.name}")
        check_finite(values, obs, f"{model.path}: embeds")
        metadata = provenance(model.path, model.metadata, settings, is_simulated)
        with h5py.File(temporary, "r+") as file:
            write_elem(file["obsm"], key, values)
            write_elem(file["uns"], key, metadata)
    log(f"{output}: {len(rows)} cells, obsm[{key!r}]")


@contextmanager
def token_store(model: Model, path: Path, layer: str, genes: str, name: str) -> Iterator[Path]:
    """Make a temporary token store of a file. ``name`` is the file's name in the store."""
    with tempfile.TemporaryDirectory(prefix="scsigmoid-") as folder:
        cells = with_known_genes(open_cells(path, layer=layer, genes=genes), model.vocabulary)
        maximum_length = model.encoder.settings.genes  # number of genes in the model's context
        tokenizer = Tokenizer(model.vocabulary, TARGET_SUM, maximum_length, SHARD_CELLS)
        shards = grouped(tokenizer.batches(cells, label="", file=name), SHARD_CELLS)
        metadata = tokenizer.metadata(order="file", simulated=False, label="")
        write_shards(folder, shards, metadata)
        return_free_memory()
        yield Path(folder)


@contextmanager
def adata_token_store(
    adata: AnnData, model: Model, layer: str, genes: str, verbose: bool
) -> Iterator[Path]:
    """Make a temporary token store of an AnnData. Unless ``verbose``, log only warnings.

    Raise a UserError if a cell has no gene of the vocabulary, because ``obsm`` needs all cells.
    """
    with (
        verbosity(verbose),
        as_file(adata, layer, genes) as path,
        token_store(model, path, layer, genes, "adata") as store,
    ):
        rows = TokenStore.open(store).metadata(["cell"])["cell"]
        missing = np.setdiff1d(np.arange(adata.n_obs), rows)
        if len(missing):
            raise UserError(
                f"adata: {len(missing)} of {adata.n_obs} cells express no gene of the vocabulary "
                f"({first_few(adata.obs_names[missing])}); leave them out, as "
                "scanpy.pp.filter_cells(adata, min_genes=100) does with almost empty cells"
            )
        yield store


def check_types(adata: object, model: object) -> None:
    if not isinstance(adata, AnnData):
        raise UserError(
            f"adata: expected an AnnData, found {type(adata).__name__}; read the file first"
        )
    if not isinstance(model, Model):
        raise UserError(
            f"model: expected the result of load(...), found {type(model).__name__}; load the model"
        )


def check_options(key: object, batch_tokens: object) -> None:
    """Raise a UserError if ``key`` is not a name for ``obsm`` or ``batch_tokens`` is not >= 1."""
    # HDF5 reads "." as the name of obsm itself.
    if not isinstance(key, str) or key in ("", ".") or not key.isprintable() or "/" in key:
        raise UserError(f"key: is {key!r}; give a name for obsm, without '/'")
    if not isinstance(batch_tokens, Integral) or batch_tokens < 1:
        raise UserError(f"batch_tokens: is {batch_tokens!r}; use an integer of at least 1")


@contextmanager
def as_file(adata: AnnData, layer: str, genes: str) -> Iterator[Path]:
    """Write counts and genes to a temporary h5ad file, named ``adata`` in error messages.

    Nothing else is read from ``adata``, so its other parts may have any content.
    """
    # Other keys are not layers with a name: None is X in anndata 0.13.
    layers = [name for name in adata.layers if isinstance(name, str)]
    if layer and layer not in layers:
        names = ", ".join(layers) or "none"
        raise UserError(
            f"adata: has no layer {layer!r}; set 'layer' to the layer with raw counts (layers: "
            f"{names})"
        )
    columns = [str(name) for data in (adata, adata.raw) if data is not None for name in data.var]
    if genes and genes not in columns:
        names = format_names(genes, columns)
        raise UserError(f"adata: var has no column {genes!r} for the genes; its columns: {names}")
    with tempfile.TemporaryDirectory(prefix="scsigmoid-") as folder:
        path = Path(folder) / "adata.h5ad"
        with storing("adata"), h5py.File(path, "w") as file:
            # Numbers instead of cell names, because an h5ad file cannot store every name.
            numbers = pd.Index([*map(str, range(adata.n_obs))], dtype=object)
            write_elem(file, "obs", pd.DataFrame(index=numbers))
            write_elem(file, "var", gene_columns(adata.var, genes))
            if layer:
                write_elem(file, f"layers/{layer}", read_matrix(adata.layers[layer]))
            elif adata.X is not None:
                write_elem(file, "X", read_matrix(adata.X))
            if adata.raw is not None and not layer:
                write_elem(file, "raw/X", read_matrix(adata.raw.X))
                write_elem(file, "raw/var", gene_columns(adata.raw.var, genes))
        with shown_as(path, "adata"):
            if layers and not layer:
                check_counts(path, layers)
            yield path


def gene_columns(var: Any, genes: str) -> pd.DataFrame:
    """Return the columns of ``var`` that :func:`scsigmoid.corpus.genes.read_genes` may read.

    Index and columns are text of dtype object, which every version of anndata can store. Missing
    values are "". Raise a UserError if two such columns have the same name, but different values.
    """

    def as_text(values: Any) -> NDArray[np.object_]:
        series = pd.Series(values).astype(object)
        pairs = zip(series, series.isna(), strict=True)
        return np.array(["" if is_missing else str(value) for value, is_missing in pairs], object)

    index = as_text(var.index)
    needs_ids = not has_ids(index)
    columns: dict[str, NDArray[np.object_]] = {}
    for position, name in enumerate(map(str, var.columns)):
        values = var.iloc[:, position]
        if may_be_read(name, genes) or (needs_ids and any(map(is_id, values))):
            texts = as_text(values)
            if not np.array_equal(columns.setdefault(name, texts), texts):
                raise UserError(
                    f"adata: var has several columns {name!r} with different values; remove all "
                    "but one"
                )
    return pd.DataFrame(columns, index=pd.Index(index, dtype=object), dtype=object)


def read_matrix(matrix: Any) -> Any:
    """Return a matrix in memory, which may be backed by a file."""
    if isinstance(matrix, np.ndarray) or issparse(matrix):
        return matrix
    return matrix.to_memory() if hasattr(matrix, "to_memory") else matrix[:]


def check_counts(path: Path, layers: list[str]) -> None:
    """Raise an error if neither ``raw.X`` nor ``X`` contains counts. The error lists the layers."""
    try:
        with opened(path) as file:
            find_counts(file, path)
    except UserError as error:
        names = format_names("counts", layers)
        message = f"{error}, or set 'layer' to the layer with counts (layers: {names})"
        raise UserError(message) from None


def read_obs(path: Path) -> tuple[Any, bool]:
    """Return a file's ``obs``, and True if its ``uns`` marks the cells as simulated."""
    with opened(path) as file:
        mark = file.get("uns/scsigmoid/simulated")
        is_simulated = isinstance(mark, h5py.Dataset) and bool(np.any(mark[()]))
        return read_data_frame(file["obs"]), is_simulated


def with_known_genes(cells: Cells, vocabulary: Vocabulary) -> Cells:
    """Replace gene names by the ids of the vocabulary. Genes with an id of the vocabulary keep it.

    A name is replaced only if exactly one gene of the file and one gene of the vocabulary have it.
    Names in R's spelling are replaced, too, such as ``HLA.A`` for ``HLA-A``. Raise a UserError if
    genes are of another organism, or if no gene of the file is in the vocabulary.
    """
    cells = cells.with_ids(vocabulary.retired)
    found_by_id = vocabulary.token_of.keys() & set(cells.genes)
    organisms = {*map(organism_of, cells.genes)} - {"other"}
    expected = {*map(organism_of, vocabulary.gene_ids)} - {"other"}
    if not found_by_id and organisms and expected and not organisms & expected:
        raise UserError(
            f"{cells.path}: genes of another organism ({', '.join(sorted(organisms))} instead of "
            f"{', '.join(sorted(expected))}); map them to orthologs or use a model of that "
            "organism"
        )
    id_of = {name: gene_id for gene_id, name in vocabulary.name_of.items()}
    names = known_names(cells, found_by_id, id_of)  # "" for genes that keep their id
    # Number of genes of each name.
    counts_in_file = Counter(filter(None, names))
    counts_in_vocabulary = Counter(vocabulary.name_of.values())
    unique = {
        name
        for name, count in counts_in_file.items()
        # If the file also contains the gene's id, two genes of the file would get this id.
        if count == counts_in_vocabulary[name] == 1 and id_of[name] not in found_by_id
    }
    log(f"{cells.path}: {len(found_by_id):,} genes found by id, {len(unique):,} by name")
    if ambiguous := sorted(counts_in_file.keys() - unique):
        log(
            f"{cells.path}: {len(ambiguous)} names belong to several genes, in the file or in the "
            f"vocabulary, and are left out ({first_few(ambiguous)})"
        )
    if not found_by_id and not unique:
        kind = "Ensembl id" if has_ids([*vocabulary.token_of]) else "symbol"
        raise UserError(
            f"{cells.path}: no gene in common with the vocabulary, by id or by name (the file "
            f"has {cells.genes[0]!r}, the vocabulary {vocabulary.gene_ids[-1]!r}, "
            f"{vocabulary.names[-1]!r}); name genes by {kind}, as the vocabulary does, set 'genes' "
            f"to the column of var with the {kind}s, or use a model of their organism"
        )
    genes = [
        id_of[name] if name in unique else gene
        for gene, name in zip(cells.genes, names, strict=True)
    ]
    return dataclasses.replace(cells, genes=genes)


def known_names(cells: Cells, found_by_id: set[str], id_of: Mapping[str, str]) -> list[str]:
    """Return the name of each gene of a file, as the vocabulary spells it.

    The name is "" if the gene is found by id, or if the vocabulary does not have the name. A gene
    with an Ensembl id is not the gene of the vocabulary that has the same name and another Ensembl
    id.

    Args:
        cells: the file.
        found_by_id: the genes of the file that are in the vocabulary.
        id_of: the ids of the vocabulary's genes by name.
    """
    # Names by spelling. A name's own spelling replaces the R spelling of another name.
    by_spelling = {name.replace("-", "."): name for name in id_of} | {name: name for name in id_of}
    known = []
    for gene, symbol in zip(cells.genes, cells.names, strict=True):
        # Without an id, the file's gene may itself be a name.
        name = by_spelling.get(gene) or by_spelling.get(symbol, "")
        has_other_id = name and is_id(gene) and is_id(id_of[name])
        known.append("" if gene in found_by_id or has_other_id else name)
    return known
