"""``scsigmoid embed``: embed the cells of a file with a trained model, in bounded memory.

Cells are first written as tokens to a temporary token store (:mod:`scsigmoid.tokens.store`).
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import torch
from anndata import AnnData
from anndata.io import write_elem

from scsigmoid.cells.embedding import BATCH_TOKENS, KEY, check_options, origin
from scsigmoid.cells.model import Model
from scsigmoid.corpus.counts import OWN_ROW, Cells
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.h5ad_writer import storing
from scsigmoid.corpus.hdf5 import read_obs
from scsigmoid.corpus.tenx import as_h5ad
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path
from scsigmoid.model.devices import own_defaults
from scsigmoid.model.embedding import embed_cells, return_free_memory
from scsigmoid.model.embedding_processes import embed_store, started
from scsigmoid.model.finite import check_finite
from scsigmoid.progress import log
from scsigmoid.tokens.known_genes import with_known_genes
from scsigmoid.tokens.store import TokenStore, grouped, write_shards
from scsigmoid.tokens.tokenizer import LeftOut, Tokenizer

SHARD_CELLS = 8192  # maximum number of cells per shard of the temporary token store


@own_defaults()
def embed_file(
    path: Path,
    model: Model,
    output: Path,
    *,
    key: str = KEY,
    layer: str = "",
    genes: str = "",
    batch_tokens: int = BATCH_TOKENS,
    force: bool = False,
    devices: Sequence[torch.device] = (),
) -> None:
    """Embed the cells of an h5ad file, or of a 10x file or folder, in bounded memory.

    Args:
        path: raw counts, with genes by Ensembl id or by name.
        output: h5ad file with the ``obs`` of the input, the embedding in ``obsm[key]`` (cells x
            hidden, float32) and its settings in ``uns[key]``. Cells without a gene of the
            vocabulary are left out, and the log lists them.
        key, layer, genes, batch_tokens: as for :func:`scsigmoid.embed`.
        force: whether to replace an output that exists now. An output that appears later is kept.
        devices: devices that embed the cells together, each in a process of its own, which loads
            ``model.path`` (default: the device of ``model``, in this process).

    Raises:
        UserError: as for :func:`scsigmoid.embed`, or if a file is damaged, the output exists or
            appears meanwhile, the output is the input, the model, a pipe or a device, or a process
            of ``devices`` fails.
    """
    check_options(key, batch_tokens)
    for name, file in {"input": path, "model": model.path}.items():
        if output.exists() and file.exists() and output.samefile(file):
            raise UserError(f"{output}: is the {name} itself; give another file for the embedding")
    exists = os.path.lexists(output)
    if exists and not force:
        raise UserError(f"{output}: exists; give another file, or --force to replace it")
    with (
        # An output that appears meanwhile, perhaps of another command, is kept.
        atomic_path(output, overwrite=exists) as temporary,
        as_h5ad(path) as source,
        started(model.path, devices) as workers,  # they load the model while this process reads
    ):
        obs = read_obs(source, str(path))
        cells = open_cells(source, layer=layer, genes=genes, title=str(path))
        with token_store(model, cells, path.stem) as store:
            tokens = TokenStore.open(store)
            rows = tokens.metadata(["cell"])["cell"]
            obs = obs.iloc[rows]
            # If anndata cannot write the data, raise the error before the slow embedding.
            with storing(str(path)):
                AnnData(obs=obs).write_h5ad(temporary)
            how = batch_tokens, f"embedding {path.name}"
            if workers:
                values = embed_store(workers, store, model.encoder.settings, *how)
            else:
                values = embed_cells(model.encoder, tokens, *how)
        check_finite(values, obs.index, f"{model.path}: embeds", obs.get(OWN_ROW))
        metadata = origin(model, obs.index.astype(str), values)  # the names that anndata stores
        with h5py.File(temporary, "r+") as file:
            write_elem(file["obsm"], key, values)
            write_elem(file["uns"], key, metadata)
    log(f"{output}: {len(rows)} cells, obsm[{key!r}]")


@contextmanager
def token_store(model: Model, cells: Cells, name: str) -> Iterator[Path]:
    """Make a temporary token store of a file. ``name`` is the file's name in the store."""
    with tempfile.TemporaryDirectory(prefix="scsigmoid-") as folder:
        cells = with_known_genes(cells, model.vocabulary.name_of, model.vocabulary.retired)
        maximum_length = model.encoder.settings.genes  # number of genes in the model's context
        tokenizer = Tokenizer(model.vocabulary, maximum_length, SHARD_CELLS)
        left_out: LeftOut = {}
        batches = tokenizer.batches(cells, label="", file=name, left_out=left_out)
        shards = grouped(batches, SHARD_CELLS)
        metadata = tokenizer.metadata(left_out, order="file", label="")
        write_shards(folder, shards, metadata)
        return_free_memory()
        yield Path(folder)
