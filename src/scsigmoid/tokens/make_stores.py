"""Make the token stores (:mod:`~.store`) of the workflow from h5ad files."""

from pathlib import Path

from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.corpus.metadata import read_metadata
from scsigmoid.tokens.known_genes import with_known_genes
from scsigmoid.tokens.scatter import scatter
from scsigmoid.tokens.store import grouped, store_schema, write_shards
from scsigmoid.tokens.tokenizer import LeftOut, Tokenizer

UNLIMITED = 2**31 - 1  # `maximum_length` of a store that models of any context can use


def tokenize_part(part: str | Path, tokenizer: Tokenizer, output: str | Path) -> None:
    """Tokenize the training cells of a part, in random order over the shards of the store.

    ``part`` is a folder with h5ad files and ``files.csv``, and ``output`` the folder of the store.
    """
    files = cells_of_part(part)  # list of (row of files.csv, cells of this file)
    left_out: LeftOut = {}
    batches = (
        batch
        for row, cells in files
        for batch in tokenizer.batches(cells, row.label, row.file, left_out=left_out)
    )
    count = sum(cells.n_cells for _, cells in files)
    schema = store_schema(tokenizer.vocabulary.size)
    shards = scatter(batches, count, tokenizer.shard_cells, schema, Path(output))
    labels = ", ".join(sorted({row.label for row, _ in files}))
    write_shards(output, shards, tokenizer.metadata(left_out, "scattered", labels))


def tokenize_evaluation(
    h5ad: str | Path, metadata: str | Path, tokenizer: Tokenizer, output: str | Path
) -> None:
    """Tokenize an evaluation dataset in the order of its h5ad file.

    ``metadata`` is the dataset's JSON file, and ``output`` the folder of the store.
    """
    info = read_metadata(metadata)
    # Reading the counts compares the file with the SHA-256, and names `remake` in the error.
    cells = open_cells(h5ad, sha256=info.sha256, remake=Path(h5ad))
    # The vocabulary may name genes by symbol or by other ids, because it is from other files.
    cells = with_known_genes(cells, tokenizer.vocabulary.name_of, tokenizer.vocabulary.retired)
    left_out: LeftOut = {}
    batches = tokenizer.batches(cells, info.label, info.file, info.types, left_out)
    shards = grouped(batches, tokenizer.shard_cells)
    entries = tokenizer.metadata(left_out, "file", info.label, info.dataset, info.sha256)
    write_shards(output, shards, entries)
