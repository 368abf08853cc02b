"""Cells of one's own with a trained model: from Python and for ``scsigmoid embed``.

Cells become tokens as in the workflow (:mod:`scsigmoid.tokens.make`), in a temporary token store;
no corpus and no Snakemake is needed.
"""

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.attention.backends import choose_backend
from scsigmoid.config.schema import Embeddings, Pooling
from scsigmoid.corpus.genes import is_id, organism_of
from scsigmoid.corpus.h5ad import Cells, open_cells
from scsigmoid.corpus.h5ad_writer import as_h5ad
from scsigmoid.corpus.hdf5 import data_frame, listed, opened
from scsigmoid.corpus.matrix_reader import find_counts
from scsigmoid.errors import UserError, naming
from scsigmoid.evaluation.embedding_files import check_finite, write_anndata
from scsigmoid.evaluation.embeddings import (
    check_pooling,
    provenance,
    return_free_memory,
    vectors_of_store,
)
from scsigmoid.model.encoder import Encoder
from scsigmoid.progress import log
from scsigmoid.tokens.make import Tokenizer
from scsigmoid.tokens.store import Packed, TokenStore, grouped, write_shards
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.devices import resolve_device
from scsigmoid.training.export import MODEL, load_encoder, load_vocabulary

if TYPE_CHECKING:
    from anndata import AnnData

# A factor of all values of a cell: it changes no rank.
TARGET_SUM = 10_000
# The models of the package, by name.
SHIPPED = {path.stem: path for path in (Path(__file__).parents[1] / "data").glob("*.safetensors")}
SHARD_CELLS = 8192
BATCH_TOKENS = 16_384
NAMED = 5  # examples in a message


@dataclass(frozen=True)
class Model:
    """A trained encoder and the vocabulary by which it reads cells; :func:`load` makes it.

    Attributes:
        path: ``model.safetensors``.
        encoder: the :class:`torch.nn.Module`, in evaluation mode.
        vocabulary: gene ids, names and medians of its tokens.
        metadata: ``model``, ``attention``, ``context``, ``size``, ``training``, ``step``, ``seed``
            and the encoder's other settings.
    """

    path: Path
    encoder: Encoder
    vocabulary: Vocabulary
    metadata: dict[str, Any]

    @property
    def name(self) -> str:
        """The model's name, as ``sigmoid_2k``."""
        return str(self.metadata["model"])

    def __repr__(self) -> str:
        weights = list(self.encoder.parameters())
        return (
            f"Model({self.name}: {self.metadata['attention']} attention, context "
            f"{self.metadata['context']:,}, {sum(w.numel() for w in weights) / 1e6:.1f}M "
            f"parameters, {self.vocabulary.size - len(SPECIAL):,} genes, {weights[0].device})"
        )


def load(
    path: str | Path,
    *,
    device: str = "auto",
    backend: str = "auto",
    vocabulary: str | Path | None = None,
) -> Model:
    """Load a trained model.

    Args:
        path: ``model.safetensors``, or the folder that holds it; or ``blood``, the small model of
            human blood cells that the package has (docs/evaluation.md says what it is for).
        device: ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.
        backend: attention backend; ``auto`` takes the fastest one.
        vocabulary: ``vocabulary.parquet``, for a model of version 0.1, whose file has none.

    Raises:
        UserError: if the file is missing, damaged, or not of this vocabulary, and if the device is
            not there or cannot run the backend.
    """
    if not isinstance(path, (str, Path)):
        raise UserError(f"path: expected a path or a name, found {type(path).__name__}")
    path = Path(path).expanduser()
    if path.is_dir() and (path / MODEL).is_file():
        path = path / MODEL
    elif str(path) in SHIPPED and not path.exists():
        path = SHIPPED[str(path)]
    encoder, metadata = load_encoder(path, resolve_device(device), backend)
    if backend != "auto":
        choose_backend(metadata["attention"], backend, next(encoder.parameters()).device)
    known = load_vocabulary(path) if vocabulary is None else Vocabulary.read(vocabulary)
    if metadata["vocabulary"] != known.fingerprint:
        raise UserError(
            f"{vocabulary}: not the vocabulary of {path} ({known.fingerprint[:12]} instead "
            f"of {metadata['vocabulary'][:12]}); give the one that it was trained with"
        )
    return Model(path, encoder, known, metadata)


def tokenize(adata: "AnnData", model: Model, *, layer: str = "", genes: str = "") -> Packed:
    """Turn cells into rank tokens: each cell's genes from the most to the least expressed.

    Args:
        adata: raw counts, cells x genes; a view or backed by a file as well.
        model: whose vocabulary and context are taken.
        layer: as for :func:`embed`.
        genes: as for :func:`embed`.

    Returns:
        ``tokens``, those of all cells without padding and without [CLS], uint16 or uint32, and
        ``cu_seqlens``, int32, cells + 1: cell i has ``tokens[cu_seqlens[i]:cu_seqlens[i + 1]]``.
        ``model.vocabulary.gene_ids[token]`` is a token's gene.

    Raises:
        UserError: as for :func:`embed`.
    """
    check_given(adata, model)
    with as_file(adata, layer, genes) as path, token_store(model, path, layer, genes) as store:
        tokens = TokenStore.open(store)
        check_complete(tokens, adata)
        return tokens.cells(np.arange(len(tokens)), model.encoder.settings.genes)


def embed(
    adata: "AnnData",
    model: Model,
    *,
    key: str = "X_scsigmoid",
    layer: str = "",
    genes: str = "",
    pooling: Pooling = "mean",
    batch_tokens: int = BATCH_TOKENS,
    devices: int = 1,
) -> None:
    """Embed cells; the embedding becomes ``adata.obsm[key]``.

    Args:
        adata: raw counts, cells x genes, with Ensembl ids or gene names; a view or backed by a file
            as well, but no view of a backed one.  One copy of the counts is held on disk meanwhile;
            for files that exceed the memory, ``scsigmoid embed`` reads them in blocks.
        model: of :func:`load`.
        key: where in ``obsm`` the embedding goes: cells x hidden, float32.  ``uns[key]`` says what
            it was made with.
        layer: layer that holds the raw counts; without one ``raw.X``, else ``X``.
        genes: column of ``var`` with the gene ids or names; without one its index or, where that
            has no Ensembl ids and one column has, that column.
        pooling: ``mean`` of a cell's gene tokens in the last layer, or ``cls``, the hidden state of
            [CLS].
        batch_tokens: tokens per forward pass; bounds the GPU's memory.
        devices: GPUs that share the cells, if the model is on one; on the CPU, processes.  A script
            with several needs ``if __name__ == "__main__":``, as for :mod:`multiprocessing`.

    Raises:
        UserError: for cells without raw counts, of another organism, or without a gene of the
            vocabulary, and if the embedding is not finite.
    """
    check_given(adata, model)
    check_options(key, batch_tokens=batch_tokens, devices=devices)
    if adata.isbacked and adata.is_view:  # which anndata lets nobody write to
        raise UserError("adata: a view of a backed file; embed adata.to_memory(), or the whole")
    settings = Embeddings(pooling=pooling, batch_tokens=batch_tokens)
    check_pooling(settings, model.encoder.settings, model.path)
    with as_file(adata, layer, genes) as path, token_store(model, path, layer, genes) as store:
        check_complete(TokenStore.open(store), adata)
        label = f"embedding with {model.name}"
        values = vectors_of_store(model.encoder, store, settings, label, devices)
    check_finite(values, adata.obs, f"{model.path}: embeds")
    adata.obsm[key] = values
    simulated = bool(adata.uns.get("scsigmoid", {}).get("simulated", False))
    adata.uns[key] = provenance(model.path, model.metadata, settings, simulated)


def embed_file(
    path: Path,
    model: Model,
    settings: Embeddings,
    output: Path,
    *,
    layer: str = "",
    genes: str = "",
    keep_all: bool = False,
    devices: int = 1,
) -> None:
    """Embed the cells of an h5ad file, or of a 10x file or folder, in bounded memory.

    Args:
        path: raw counts; genes by Ensembl id or by name.
        model: of :func:`load`.
        settings: pooling and tokens per forward pass.
        output: h5ad file with the file's ``obs``, ``obsm["X_<model>"]`` (cells x hidden, float32)
            and, in ``uns["scsigmoid"]``, what it was made with.  Cells without a gene of the
            vocabulary are left out, and named in the log.
        layer, genes, devices: as for :func:`embed`.
        keep_all: whether the output also has the input's ``X``, ``layers``, ``var``, ``obsm``, …;
            they are held in memory.

    Raises:
        UserError: for a file that is damaged or does not fit the model, for cells of another
            organism, without raw counts or without a gene of the vocabulary, and if the embedding
            is not finite.
    """
    import anndata

    if output.exists() and path.exists() and output.samefile(path):
        raise UserError(f"{output}: is the input itself; give another file for the embedding")
    check_pooling(settings, model.encoder.settings, model.path)
    with as_h5ad(path) as source:
        with token_store(model, source, layer, genes, path.stem) as store:
            label = f"embedding {path.name}"
            values = vectors_of_store(model.encoder, store, settings, label, devices)
            rows = TokenStore.open(store).metadata(["cell"])["cell"]
        obs, simulated = about(source)
        whole = anndata.read_h5ad(source)[rows].copy() if keep_all else None
    obs = obs.iloc[rows]
    check_finite(values, obs, f"{model.path}: embeds")
    metadata = provenance(model.path, model.metadata, settings, simulated)
    write_anndata(output, values, obs, metadata, whole)
    log(f"{output}: {len(rows)} cells, obsm['X_{model.name}']")


@contextmanager
def token_store(
    model: Model, path: Path, layer: str, genes: str, name: str = "adata"
) -> Iterator[Path]:
    """A temporary token store of a file's cells, by the model's vocabulary and context."""
    with tempfile.TemporaryDirectory(prefix="scsigmoid-") as folder:
        cells = with_known_genes(open_cells(path, layer=layer, genes=genes), model.vocabulary)
        places = model.encoder.settings.genes
        tokenizer = Tokenizer(model.vocabulary, TARGET_SUM, places, SHARD_CELLS)
        shards = grouped(tokenizer.batches(cells, "", name), SHARD_CELLS)
        write_shards(folder, shards, tokenizer.metadata("file", False, ""))
        return_free_memory()
        yield Path(folder)


def check_given(adata: object, model: object) -> None:
    """Refuse paths, tables and arrays in place of cells or of a model."""
    from anndata import AnnData

    if not isinstance(adata, AnnData):
        raise UserError(f"adata: expected an AnnData, found {type(adata).__name__}; read the file")
    if not isinstance(model, Model):
        raise UserError(f"model: expected that of load(...), found {type(model).__name__}; load it")


def check_options(key: object, **counted: object) -> None:
    """Refuse what is no name in ``obsm``, and of ``counted`` what is no number from 1."""
    if not isinstance(key, str) or not key:
        raise UserError(f"key: is {key!r}; give the name that the embedding gets in obsm")
    for name, value in counted.items():
        if not isinstance(value, Integral) or value < 1:
            raise UserError(f"{name}: is {value!r}; take at least 1")


@contextmanager
def as_file(adata: "AnnData", layer: str, genes: str) -> Iterator[Path]:
    """An AnnData's counts and gene names as an h5ad file; messages call it ``adata``."""
    import anndata
    import pandas as pd

    def named(var: Any) -> Any:
        kept = ("feature_name", "feature_types", "feature_type", genes)
        return var[[name for name in var if name in kept or any(map(is_id, var[name]))]]

    def read(matrix: Any) -> Any:
        if matrix is None:
            return None
        return matrix.to_memory() if hasattr(matrix, "to_memory") else matrix[:]

    if layer and layer not in adata.layers:
        there = ", ".join(adata.layers) or "none"
        raise UserError(f"adata: no layer {layer!r} (there: {there}); name the one with raw counts")
    if genes and not any(genes in cells.var for cells in (adata, adata.raw) if cells is not None):
        there = listed(genes, [str(name) for name in adata.var])
        raise UserError(f"adata: var has no column {genes!r} for the genes; its columns: {there}")
    part = anndata.AnnData(
        X=None if layer else read(adata.X),
        obs=pd.DataFrame(index=adata.obs_names),
        var=named(adata.var),
        layers={layer: read(adata.layers[layer])} if layer else None,
    )
    if adata.raw is not None and not layer:
        raw = adata.raw
        part.raw = anndata.AnnData(X=read(raw.X), obs=part.obs, var=named(raw.var))
    with tempfile.TemporaryDirectory(prefix="scsigmoid-") as folder:
        path = Path(folder) / "adata.h5ad"
        part.write_h5ad(path)
        with naming(path, "adata"):
            if adata.layers and not layer:
                check_counts(path, list(adata.layers))
            yield path


def check_counts(path: Path, layers: list[str]) -> None:
    """Where neither ``raw.X`` nor ``X`` holds counts, point to the layers, which the file lacks."""
    with opened(path) as file:
        try:
            find_counts(file, path)
        except UserError as error:
            there = listed("counts", layers)
            raise UserError(f"{error}, or give the 'layer' that has them (of {there})") from None


def check_complete(tokens: TokenStore, adata: "AnnData") -> None:
    """Refuse cells without a gene of the vocabulary: the embedding has a row for each cell."""
    without = np.setdiff1d(np.arange(adata.n_obs), tokens.metadata(["cell"])["cell"])
    if len(without):
        first: NDArray[np.str_] = adata.obs_names[without[:NAMED]].to_numpy()
        raise UserError(
            f"adata: {len(without)} of {adata.n_obs} cells express no gene of the vocabulary "
            f"({', '.join(map(str, first))}{', ...' if len(without) > NAMED else ''}); leave them "
            "out, as scanpy.pp.filter_cells(adata, min_genes=100) does with almost empty cells"
        )


def about(path: Path) -> tuple[Any, bool]:
    """The file's ``obs``, and whether it says that its cells are simulated."""
    with opened(path) as file:
        marked = file.get("uns/scsigmoid/simulated")
        return data_frame(file["obs"]), bool(marked is not None and marked[()])


def with_known_genes(cells: Cells, vocabulary: Vocabulary) -> Cells:
    """The cells with gene ids of the vocabulary; genes without an Ensembl id are found by name.

    A name counts where it stands for one gene alone, in the file and in the vocabulary; ``HLA.A``,
    as R spells it, is ``HLA-A``.

    Raises:
        UserError: for genes of another organism, or if neither ids nor names are known.
    """
    by_id = vocabulary.token_of.keys() & set(cells.genes)
    if not by_id:
        check_organism(cells, vocabulary)
    genes = vocabulary.gene_ids[len(SPECIAL) :]
    genes_of: dict[str, set[str]] = {}
    for gene, name in zip(genes, vocabulary.names[len(SPECIAL) :], strict=True):
        genes_of.setdefault(name, set()).add(gene)
    known = {name.replace("-", "."): name for name in genes_of} | {name: name for name in genes_of}
    spelled = [
        ""
        if gene in by_id or organism_of(gene) != "other"
        else known.get(gene) or known.get(name, name)
        for gene, name in zip(cells.genes, cells.names, strict=True)
    ]
    times = Counter(filter(None, spelled))
    if not by_id:
        check_spelling(cells, times, genes_of)
    shared = {name for name in times if name in genes_of}
    clear = {name for name in shared if times[name] == len(genes_of[name]) == 1}
    clear -= {name for name in clear if genes_of[name] & by_id}
    log(f"{cells.path}: {len(by_id):,} genes found by id, {len(clear):,} by name")
    if shared - clear:
        few = ", ".join(sorted(shared - clear)[:NAMED])
        log(
            f"{cells.path}: {len(shared - clear)} names stand for several genes, here or in the "
            f"vocabulary, and are left out ({few}{', ...' if len(shared - clear) > NAMED else ''})"
        )
    if not by_id and not clear:
        raise UserError(
            f"{cells.path}: no gene in common with the vocabulary, by id or by the name of one "
            f"gene alone (it has {cells.genes[0]!r}, the vocabulary {vocabulary.gene_ids[-1]!r}, "
            f"{vocabulary.names[-1]!r}); name genes by Ensembl id"
        )
    found = [
        min(genes_of[name]) if name in clear else gene
        for gene, name in zip(cells.genes, spelled, strict=True)
    ]
    return dataclasses.replace(cells, genes=found)


def check_organism(cells: Cells, vocabulary: Vocabulary) -> None:
    """Refuse Ensembl ids of other organisms than the vocabulary's."""
    theirs, ours = (
        {*map(organism_of, genes)} - {"other"} for genes in (cells.genes, vocabulary.gene_ids)
    )
    if theirs and ours and not theirs & ours:
        raise UserError(
            f"{cells.path}: genes of another organism ({', '.join(sorted(theirs))} instead of "
            f"{', '.join(sorted(ours))}); map them to orthologues or take a model of that "
            "organism"
        )


def check_spelling(cells: Cells, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that are known in capitals only, as mouse genes are in a human vocabulary."""
    capitals = {name.upper(): name for name in known}
    other = [name for name in names if name not in known and name.upper() in capitals]
    if len(other) > sum(name in known for name in names):
        raise UserError(
            f"{cells.path}: genes are spelled as those of another organism ({other[0]!r}, the "
            f"vocabulary has {capitals[other[0].upper()]!r}); take a model of that organism, or "
            "name genes by Ensembl id"
        )
