"""Writes token stores."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scsigmoid.files import atomic_folder, sha256, write_json
from scsigmoid.tokens.shuffle import BLOCK_CELLS
from scsigmoid.tokens.store import CHECKSUMS, GENES, INDEX, VERSION, checksum, lists_of


def write_store(
    folder: str | Path,
    batches: Iterable[pa.RecordBatch],
    *,
    vocabulary: str,
    vocabulary_size: int,
    maximum_length: int,
    shard_cells: int,
    simulated: bool,
    label: str,
) -> None:
    """Write cells, with the columns of :func:`~.store.store_schema`, in the order given.

    For the other entries of the index see :class:`~.store.TokenStore`.
    """
    write_shards(
        folder,
        grouped(batches, shard_cells),
        {
            "vocabulary": vocabulary,
            "vocabulary_size": vocabulary_size,
            "maximum_length": maximum_length,
            "shard_cells": shard_cells,
            "simulated": simulated,
            "label": label,
        },
    )


def write_shards(
    folder: str | Path, shards: Iterable[pa.RecordBatch], facts: Mapping[str, Any]
) -> None:
    """Write a store of which the shards are given, atomically.

    ``facts`` are the other entries of the index, read when all shards are written.
    """
    with atomic_folder(folder) as temporary:
        entries = []
        genes, sums = [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.uint32)]
        for number, shard in enumerate(shards):
            entries.append(write_shard(temporary / f"shard-{number:05d}.arrow", shard))
            genes.append(shard["genes"].to_numpy())
            sums.append(checksums(shard))
        np.save(temporary / GENES, np.concatenate(genes))
        np.save(temporary / CHECKSUMS, np.concatenate(sums))
        write_json(
            temporary / INDEX,
            {
                **facts,
                "version": VERSION,
                "rows": sum(entry["rows"] for entry in entries),
                "tokens": sum(entry["tokens"] for entry in entries),
                "shards": entries,
                "arrays": {name: sha256(temporary / name) for name in (GENES, CHECKSUMS)},
            },
        )
        write_dataset_files(temporary, entries)


def write_shard(path: Path, shard: pa.RecordBatch) -> dict[str, Any]:
    """Write one shard and return its entry in the index."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, shard.schema) as writer:
        writer.write_batch(shard)
    return {
        "file": path.name,
        "rows": shard.num_rows,
        "tokens": int(shard["length"].to_numpy().sum()),
        "bytes": path.stat().st_size,
        "sha256": sha256(path),
    }


def checksums(shard: pa.RecordBatch) -> NDArray[np.uint32]:
    offsets, tokens = lists_of(shard["input_ids"])
    starts = range(0, shard.num_rows, BLOCK_CELLS)
    return np.array([checksum(offsets, tokens, first) for first in starts], dtype=np.uint32)


def write_dataset_files(folder: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write what ``datasets.load_from_disk`` looks for."""
    sums = "\n".join(entry["sha256"] for entry in entries)
    write_json(
        folder / "state.json",
        {
            "_data_files": [{"filename": entry["file"]} for entry in entries],
            "_fingerprint": hashlib.sha256(sums.encode()).hexdigest()[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        },
    )
    write_json(folder / "dataset_info.json", {})


def grouped(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Join and cut a stream of batches into batches of ``rows`` rows; the last may be smaller."""
    group: list[pa.RecordBatch] = []
    room = rows
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, room)
            batch = batch.slice(piece.num_rows)
            group.append(piece)
            room -= piece.num_rows
            if not room:
                yield pa.concat_batches(group)
                group, room = [], rows
    if group:
        yield pa.concat_batches(group)
