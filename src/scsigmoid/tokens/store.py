"""The token store: a folder of Arrow files (IPC streams, one record batch each) and an index.

=====================  =============================================================================
``shard-00000.arrow``  cells, with the columns of :func:`store_schema`
``genes.npy``          int32, one a cell: vocabulary genes that it expresses, before any cut
``checksums.npy``      uint32, one a block of ``BLOCK_CELLS`` cells of a shard: CRC-32 of its tokens
``index.json``         what the store was made with; rows, bytes and SHA-256 of every file
``state.json``,        let ``datasets.load_from_disk`` open the folder
``dataset_info.json``
=====================  =============================================================================

Opening looks at the index, ``genes.npy`` and the ends of the shards; lengths come from
``genes.npy`` alone.  Shards are memory-mapped when they are first needed, and each block is checked
against its CRC the first time that cells of it are read, so that neither opening nor reading has to
hash a store of terabytes.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_folder, checksum_path, sha256, write_json
from scsigmoid.tokens.shuffle import BLOCK_CELLS

VERSION = 2
INDEX, GENES, CHECKSUMS = "index.json", "genes.npy", "checksums.npy"
# What an index must have.
ENTRIES = {
    "vocabulary": str,
    "vocabulary_size": int,
    "maximum_length": int,
    "shard_cells": int,
    "rows": int,
    "simulated": bool,
    "label": str,
    "shards": list,
    "arrays": dict,
}


END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"

Tokens = NDArray[np.unsignedinteger[Any]]


def token_type(vocabulary_size: int) -> type[np.unsignedinteger[Any]]:
    """16 bits where the vocabulary allows, else 32."""
    return np.uint16 if vocabulary_size <= 65535 else np.uint32


def store_schema(vocabulary_size: int) -> pa.Schema:
    """Columns of a shard.

    ``input_ids`` are the tokens, 16 bits wide where the vocabulary allows, ``length`` their number
    and ``genes`` what it was before the cut; ``file`` is the name of the dataset's file in the
    manifest and ``cell`` the cell's row in it; the others are columns of ``obs``.
    """
    return pa.schema(
        [
            ("input_ids", pa.list_(pa.from_numpy_dtype(token_type(vocabulary_size)))),
            ("length", pa.int32()),
            ("genes", pa.int32()),
            ("cell", pa.int64()),
            ("file", pa.string()),
            ("cell_type", pa.string()),
            ("donor", pa.string()),
            ("tissue", pa.string()),
            ("assay", pa.string()),
            ("is_primary", pa.bool_()),
        ]
    )


class Shard:
    """One file of a store, mapped into memory when it is first needed."""

    def __init__(self, folder: Path, entry: dict[str, Any], schema: pa.Schema) -> None:
        """Check the file's size and end against its entry in the index."""
        self.path = folder / entry["file"]
        self.rows = int(entry["rows"])
        self.sha256, self._schema = entry["sha256"], schema
        if not self.path.is_file():
            raise self.damaged("is missing")
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - len(END_OF_STREAM)))
            if size != entry["bytes"] or file.read() != END_OF_STREAM:
                raise self.damaged()

    def damaged(self, how: str = "is damaged") -> UserError:
        return UserError(
            f"{self.path}: this shard of the token store {how}; rebuild it with `scsigmoid "
            "check-tokens`, or delete the folder and run again"
        )

    @cached_property
    def table(self) -> pa.Table:
        """The cells; structure and number of rows are checked."""
        try:
            table = pa.ipc.open_stream(pa.memory_map(str(self.path))).read_all()
        except (pa.ArrowException, OSError):
            raise self.damaged() from None
        if table.num_rows != self.rows or not table.schema.equals(self._schema):
            raise self.damaged()
        return table

    @cached_property
    def lists(self) -> tuple[NDArray[np.int32], Tokens]:
        """Offsets (rows + 1) and tokens of the cells."""
        return lists_of(self.table["input_ids"].chunk(0))


def lists_of(column: pa.ListArray) -> tuple[NDArray[np.int32], Tokens]:
    """Offsets and values of a list column, without a copy."""
    return column.offsets.to_numpy(), column.values.to_numpy()


def checksum(offsets: NDArray[np.int32], tokens: Tokens, first: int) -> int:
    """CRC-32 of the lengths and tokens of the block of cells that begins with cell ``first``."""
    ends = offsets[first : first + BLOCK_CELLS + 1]
    return zlib.crc32(tokens[ends[0] : ends[-1]].data, zlib.crc32(np.diff(ends).data))


class Packed(NamedTuple):
    """Cells without padding."""

    tokens: Tokens  # of all cells, one after the other; uint16 or uint32
    cu_seqlens: NDArray[np.int32]  # cell i has tokens[cu_seqlens[i]:cu_seqlens[i + 1]]


@dataclass(frozen=True)
class TokenStore:
    """One or several token stores, read as one.  Rows keep the order of folders and shards."""

    vocabulary: str  # fingerprint of the vocabulary
    vocabulary_size: int  # number of tokens, the special ones included
    maximum_length: int  # where cells were cut; the smallest where stores differ
    simulated: bool  # whether any cell is simulated
    lengths: NDArray[np.int32]  # tokens of each cell
    _shards: list[Shard]
    _starts: NDArray[np.int64]  # first row of each shard
    _blocks: NDArray[np.int64]  # first block of each shard
    _checksums: NDArray[np.uint32]
    _checked: NDArray[np.bool_]  # which blocks have been compared with their checksums

    @staticmethod
    def open(
        folders: str | Path | Sequence[str | Path], vocabulary: str | None = None
    ) -> "TokenStore":
        """Open stores for reading.

        Args:
            folders: one store or several.
            vocabulary: fingerprint that the stores must have.

        Raises:
            UserError: for a missing or damaged file, by name, and for another vocabulary.
        """
        if isinstance(folders, (str, Path)):
            folders = [folders]
        indices = [read_index(Path(folder)) for folder in folders]
        expected = vocabulary if vocabulary is not None else indices[0]["vocabulary"]
        shards: list[Shard] = []
        lengths = np.empty(sum(index["rows"] for index in indices), dtype=np.int32)
        checksums, done = [], 0
        for folder, index in zip(folders, indices, strict=True):
            if index["vocabulary"] != expected:
                raise UserError(
                    f"{folder}: made with another vocabulary ({index['vocabulary'][:12]} instead "
                    f"of {expected[:12]}); make the tokens again"
                )
            schema = store_schema(index["vocabulary_size"])
            shards += [Shard(Path(folder), entry, schema) for entry in index["shards"]]
            here = lengths[done : done + index["rows"]]
            np.minimum(read_array(Path(folder), GENES, index), index["maximum_length"], out=here)
            done += len(here)
            checksums.append(read_array(Path(folder), CHECKSUMS, index))
        rows = np.array([shard.rows for shard in shards], dtype=np.int64)
        sums = np.concatenate(checksums)
        return TokenStore(
            vocabulary=expected,
            vocabulary_size=indices[0]["vocabulary_size"],
            maximum_length=min(index["maximum_length"] for index in indices),
            simulated=any(index["simulated"] for index in indices),
            lengths=lengths,
            _shards=shards,
            _starts=np.cumsum(rows) - rows,
            _blocks=np.cumsum(-(-rows // BLOCK_CELLS)) + rows // -BLOCK_CELLS,
            _checksums=sums,
            _checked=np.zeros(len(sums), dtype=bool),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def cells(self, rows: Sequence[int] | NDArray[np.integer[Any]], maximum_length: int) -> Packed:
        """Tokens of the cells of some rows, in the order given; of each ``maximum_length`` at most.

        Raises:
            UserError: for a damaged shard, by name.
        """
        rows = np.asarray(rows, dtype=np.int64)
        shards = np.searchsorted(self._starts, rows, side="right") - 1
        inside = rows - self._starts[shards]
        self._check(shards, inside)
        pieces = [np.zeros(0, dtype=token_type(self.vocabulary_size))]  # where there is no cell
        for shard, row in zip(shards.tolist(), inside.tolist(), strict=True):
            offsets, tokens = self._shards[shard].lists
            pieces.append(
                tokens[offsets[row] : min(offsets[row + 1], offsets[row] + maximum_length)]
            )
        cu_seqlens = np.cumsum([len(piece) for piece in pieces], dtype=np.int32)
        return Packed(np.concatenate(pieces), cu_seqlens)

    def _check(self, shards: NDArray[np.int64], inside: NDArray[np.int64]) -> None:
        """Compare the blocks of some rows with their checksums, each once."""
        blocks = self._blocks[shards] + inside // BLOCK_CELLS
        new = ~self._checked[blocks]
        if not new.any():
            return
        found, first_of = np.unique(blocks[new], return_index=True)
        for block, number in zip(found.tolist(), shards[new][first_of].tolist(), strict=True):
            shard = self._shards[number]
            first = (block - int(self._blocks[number])) * BLOCK_CELLS
            offsets, tokens = shard.lists
            if checksum(offsets, tokens, first) != self._checksums[block]:
                raise shard.damaged()
            self._checked[block] = True

    def metadata(self, columns: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Columns other than the tokens, for all cells; strings as objects.

        Reads all shards whole, to compare them with their SHA-256.

        Raises:
            UserError: for a damaged shard, by name.
        """
        for shard in self._shards:
            if sha256(shard.path) != shard.sha256:
                raise shard.damaged()
        empty = store_schema(self.vocabulary_size).empty_table()
        table = pa.concat_tables([empty, *(shard.table for shard in self._shards)])
        return {name: table[name].to_numpy() for name in columns}


def read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    if not path.is_file():
        raise UserError(f"{folder}: not a token store ({INDEX} is missing); make the tokens first")
    try:
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = index["version"]
        lacking = [key for key, kind in ENTRIES.items() if not isinstance(index.get(key), kind)]
        for entry, keys in [
            (index.get("arrays", {}), {GENES, CHECKSUMS}),
            *((shard, {"file", "rows", "bytes", "sha256"}) for shard in index.get("shards", [])),
        ]:
            lacking += sorted(keys - {*entry})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: damaged; make the tokens again") from None
    if version != VERSION:
        raise UserError(f"{path}: written by another version; make the tokens again")
    if lacking:
        raise UserError(f"{path}: damaged (no {', '.join(lacking)}); make the tokens again")
    return index


def read_array(folder: Path, name: str, index: dict[str, Any]) -> NDArray[Any]:
    """Read an array beside the shards and compare it with the index."""
    path = folder / name
    if not path.is_file() or sha256(path) != index["arrays"][name]:
        raise UserError(
            f"{path}: missing or damaged; rebuild it with `scsigmoid check-tokens`, or delete the "
            "folder and run again"
        )
    array: NDArray[Any] = np.load(path, mmap_mode="r")
    return array


def write_length_counts(folders: Iterable[str | Path], output: str | Path) -> None:
    """Write how many cells express how many genes of the vocabulary, before any cut, as Parquet.

    Columns: ``length`` (int32), of lengths that occur, and ``cells`` (int64).
    """
    total = np.zeros(0, dtype=np.int64)
    for folder in map(Path, folders):
        genes = read_array(folder, GENES, read_index(folder))
        counts = np.bincount(genes, minlength=len(total))
        counts[: len(total)] += total
        total = counts
    lengths = np.flatnonzero(total)
    table = pa.table(
        {"length": pa.array(lengths, type=pa.int32()), "cells": pa.array(total[lengths])}
    )
    with checksum_path(output) as temporary:
        pq.write_table(table, temporary)


def write_shards(
    folder: str | Path, shards: Iterable[pa.RecordBatch], metadata: Mapping[str, Any]
) -> None:
    """Write a store, atomically.

    ``shards`` are the cells of each, with the columns of :func:`store_schema`, and ``metadata``
    further entries of the index (see :data:`ENTRIES`), read after the last shard.
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
                **metadata,
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


def write_dataset_files(folder: Path, entries: Iterable[Mapping[str, Any]]) -> None:
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
