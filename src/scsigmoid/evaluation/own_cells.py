"""Embeds a user's own h5ad file with a given model: no corpus, no Snakemake.

Cells become tokens as in the workflow (:mod:`scsigmoid.tokens.make`), in a temporary token store.
"""

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from scsigmoid.config.schema import Embeddings
from scsigmoid.corpus.conversion import as_h5ad
from scsigmoid.corpus.genes import organism_of
from scsigmoid.corpus.h5ad import Cells, open_cells
from scsigmoid.corpus.storage import data_frame, opened
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import check_finite, write_anndata
from scsigmoid.evaluation.embeddings import check_pooling, provenance, vectors
from scsigmoid.progress import log
from scsigmoid.tokens.make import Tokenizer
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.tokens.writing import grouped, write_shards
from scsigmoid.training.devices import resolve_device
from scsigmoid.training.export import load_encoder

# A factor of all values of a cell: it changes no rank.
TARGET_SUM = 10_000
SHARD_CELLS = 8192
NAMED = 5  # examples in a message


def embed_file(
    path: Path,
    checkpoint: Path,
    vocabulary: Path,
    settings: Embeddings,
    device: str,
    output: Path,
    *,
    layer: str = "",
    genes: str = "",
) -> None:
    """Embed the cells of an h5ad file, or of a 10x file or folder.

    Args:
        path: raw counts; genes by Ensembl id or by name.
        checkpoint: ``model.safetensors``.
        vocabulary: the ``vocabulary.parquet`` that the model was trained with.
        settings: pooling and tokens per forward pass.
        device: ``auto``, ``cpu`` or ``cuda``.
        output: h5ad file with the file's ``obs``, ``obsm["X_<model>"]`` (cells x hidden, float32)
            and, in ``uns["scsigmoid"]``, what it was made with.  Cells without a gene of the
            vocabulary are left out, and named in the log.
        layer: layer that holds the counts; without one ``raw.X``, else ``X``.
        genes: column of ``var`` with the gene ids or names; without one its index.

    Raises:
        UserError: for a file, model or vocabulary that is damaged or does not fit the others, for
            cells of another organism, without raw counts or without a gene of the vocabulary, and
            for a model that gives no finite embedding.
    """
    if output.exists() and path.exists() and output.samefile(path):
        raise UserError(f"{output}: is the input itself; give another file for the embedding")
    known = Vocabulary.read(vocabulary)
    encoder, facts = load_encoder(checkpoint, resolve_device(device))
    if facts["vocabulary"] != known.fingerprint:
        raise UserError(
            f"{vocabulary}: not the vocabulary of {checkpoint} ({known.fingerprint[:12]} instead "
            f"of {facts['vocabulary'][:12]}); give the one that it was trained with"
        )
    check_pooling(settings, encoder.settings, checkpoint)
    with as_h5ad(path) as source, tempfile.TemporaryDirectory(prefix="scsigmoid-") as folder:
        cells = with_known_genes(open_cells(source, layer=layer, genes=genes), known)
        obs, simulated = about(source)
        tokenizer = Tokenizer(vocabulary, TARGET_SUM, encoder.settings.genes, SHARD_CELLS)
        shards = grouped(tokenizer.batches(cells, "", path.stem), SHARD_CELLS)
        write_shards(folder, shards, tokenizer.facts("file", simulated, ""))
        tokens = TokenStore.open(folder)
        values = vectors(encoder, tokens, settings, f"embedding {path.name}")
        rows = tokens.metadata(["cell"])["cell"]
    obs = obs.iloc[rows]
    check_finite(values, obs, f"{checkpoint}: embeds")
    metadata = provenance(checkpoint, facts, settings, simulated)
    write_anndata(output, values, obs, metadata)
    log(f"{output}: {len(rows)} cells, obsm['X_{facts['model']}']")


def about(path: Path) -> tuple[Any, bool]:
    """The file's ``obs``, and whether it says that its cells are simulated."""
    with opened(path) as file:
        marked = file.get("uns/scsigmoid/simulated")
        return data_frame(file["obs"]), bool(marked is not None and marked[()])


def with_known_genes(cells: Cells, vocabulary: Vocabulary) -> Cells:
    """The cells with gene ids of the vocabulary; genes without an Ensembl id are found by name.

    A name counts where it stands for one gene alone, in the file and in the vocabulary.

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
    spelled = [
        "" if gene in by_id or organism_of(gene) != "other" else gene if gene in genes_of else name
        for gene, name in zip(cells.genes, cells.names, strict=True)
    ]
    times = Counter(filter(None, spelled))
    if not by_id:
        check_spelling(cells, times, genes_of)
    shared = {name for name in times if name in genes_of}
    clear = {name for name in shared if times[name] == len(genes_of[name]) == 1}
    clear -= {name for name in clear if genes_of[name] & by_id}
    log(f"{cells.path}: {len(by_id)} genes found by Ensembl id, {len(clear)} by name")
    if shared - clear:
        few = ", ".join(sorted(shared - clear)[:NAMED])
        log(
            f"{cells.path}: {len(shared - clear)} names stand for several genes, which are left "
            f"out ({few}{', ...' if len(shared - clear) > NAMED else ''})"
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
