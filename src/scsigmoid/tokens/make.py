"""Turns h5ad files into token stores."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scsigmoid.corpus.h5ad import Cells, open_cells
from scsigmoid.corpus.rows import FILES, read_manifest
from scsigmoid.errors import UserError
from scsigmoid.progress import track
from scsigmoid.tokens.ranks import rank_tokens
from scsigmoid.tokens.store import store_schema, write_store
from scsigmoid.tokens.vocabulary import Vocabulary

# column of the store: column of obs
OBS = {"donor": "donor_id", "tissue": "tissue", "assay": "assay"}
PRIMARY = "is_primary_data"


def tokenize_part(
    part_folder: str | Path,
    vocabulary: str | Path,
    target_sum: float,
    maximum_length: int,
    shard_cells: int,
    output_folder: str | Path,
) -> None:
    """Tokenize the training cells of one part.

    Args:
        part_folder: folder with h5ad files and ``files.csv``.
        vocabulary: ``vocabulary.parquet``.
        target_sum: what the counts of a cell are scaled to.
        maximum_length: cells are cut at this many tokens: the longest context less one, for [CLS].
        shard_cells: cells per file of the store.
        output_folder: the token store.
    """
    folder = Path(part_folder)
    rows = read_manifest(folder / FILES)
    known = Vocabulary.read(vocabulary)

    def batches() -> Iterator[pa.RecordBatch]:
        for row in rows:
            cells = open_cells(folder / f"{row.file}.h5ad", None, row.held_out, "training")
            yield from tokenized(cells, row.label, row.file, known, target_sum, maximum_length)

    write_store(
        output_folder,
        batches(),
        vocabulary=known.fingerprint,
        vocabulary_size=known.size,
        maximum_length=maximum_length,
        shard_cells=shard_cells,
        simulated=any(row.simulated == "true" for row in rows),
        label=", ".join(sorted({row.label for row in rows})),
    )


def tokenize_evaluation(
    h5ad: str | Path,
    facts: str | Path,
    vocabulary: str | Path,
    target_sum: float,
    maximum_length: int,
    shard_cells: int,
    output_folder: str | Path,
) -> None:
    """Tokenize an evaluation dataset.

    Args:
        h5ad: the evaluated cells.
        facts: the JSON file beside them.
        vocabulary: ``vocabulary.parquet``.
        target_sum: as for training.
        maximum_length: as for training.
        shard_cells: cells per file of the store.
        output_folder: the token store.
    """
    stated: dict[str, Any] = json.loads(Path(facts).read_text(encoding="utf-8"))
    known = Vocabulary.read(vocabulary)
    cells = open_cells(h5ad, stated["label"])
    write_store(
        output_folder,
        tokenized(cells, stated["label"], stated["file"], known, target_sum, maximum_length),
        vocabulary=known.fingerprint,
        vocabulary_size=known.size,
        maximum_length=maximum_length,
        shard_cells=shard_cells,
        simulated=stated["simulated"],
        label=stated["label"],
    )


def tokenized(
    cells: Cells,
    label: str,
    file: str,
    vocabulary: Vocabulary,
    target_sum: float,
    maximum_length: int,
) -> Iterator[pa.RecordBatch]:
    """Rank tokens of cells, in batches for the store.

    Raises:
        UserError: if the file shares no gene with the vocabulary, or a cell expresses none of it.
    """
    token_of_column = vocabulary.tokens(cells.genes)
    if (token_of_column < 0).all():
        raise UserError(
            f"{cells.path}: no gene in common with the vocabulary (it has {cells.genes[0]!r}, the "
            f"vocabulary {vocabulary.gene_ids[-1]!r}); name genes as in the training files"
        )
    schema = store_schema(vocabulary.size)
    token = schema.field("input_ids").type.value_type
    obs = cells.obs([label, *OBS.values(), PRIMARY])
    done = 0
    for chunk in track(cells.chunks(), label=f"tokenizing {cells.path.name}"):
        ranked = rank_tokens(
            chunk.counts, token_of_column, vocabulary.medians, target_sum, maximum_length
        )
        if not ranked.genes.all():
            row = chunk.cells[int(np.argmin(ranked.genes))]
            raise UserError(
                f"{cells.path}: the cell in row {row} expresses no gene of the vocabulary; remove "
                "such cells or lower tokens.minimum_cells"
            )
        here = slice(done, done + len(chunk.cells))
        done = here.stop
        yield pa.record_batch(
            [
                pa.ListArray.from_arrays(
                    pa.array(ranked.offsets, type=pa.int32()),
                    pa.array(ranked.tokens.astype(token.to_pandas_dtype())),
                ),
                pa.array(np.diff(ranked.offsets), type=pa.int32()),
                pa.array(ranked.genes),
                pa.array(chunk.cells),
                pa.array([file] * len(chunk.cells), type=pa.string()),
                pa.array(obs[label][here], type=pa.string()),
                *(pa.array(obs[name][here], type=pa.string()) for name in OBS.values()),
                # files without the column hold each cell once
                pa.array(obs[PRIMARY][here] != "False"),
            ],
            schema=schema,
        )
