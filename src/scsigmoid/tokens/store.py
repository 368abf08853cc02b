"""The token store: a folder of Arrow files (IPC streams) and an index.

Readable with pyarrow and with ``datasets.Dataset.from_file``.  Files are memory-mapped: lengths are
read without touching the tokens.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_folder, sha256, write_json

VERSION = 1
INDEX = "index.json"


def store_schema(vocabulary_size: int) -> pa.Schema:
    """Columns of a shard; tokens are 16 bits wide where the vocabulary allows."""
    token = pa.uint16() if vocabulary_size <= 65535 else pa.uint32()
    return pa.schema(
        [
            ("input_ids", pa.list_(token)),
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
    """Write a token store, batch by batch, atomically.

    Args:
        folder: the store.
        batches: cells, with the columns of :func:`store_schema`.
        vocabulary: fingerprint of the vocabulary.
        vocabulary_size: number of tokens, the special ones included.
        maximum_length: where cells were cut.
        shard_cells: cells per shard.
        simulated: whether any cell is simulated.
        label: column of ``obs`` that ``cell_type`` came from.
    """
    schema = store_schema(vocabulary_size)
    with atomic_folder(folder) as temporary:
        shards = []
        for number, pieces in enumerate(grouped(batches, shard_cells)):
            path = temporary / f"shard-{number:05d}.arrow"
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
                for piece in pieces:
                    writer.write_batch(piece)
            shards.append(
                {
                    "file": path.name,
                    "rows": sum(piece.num_rows for piece in pieces),
                    "tokens": sum(int(piece["length"].to_numpy().sum()) for piece in pieces),
                    "sha256": sha256(path),
                }
            )
        write_json(
            temporary / INDEX,
            {
                "version": VERSION,
                "vocabulary": vocabulary,
                "vocabulary_size": vocabulary_size,
                "maximum_length": maximum_length,
                "simulated": simulated,
                "label": label,
                "rows": sum(shard["rows"] for shard in shards),
                "tokens": sum(shard["tokens"] for shard in shards),
                "shards": shards,
            },
        )


def grouped(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Cut a stream of batches into groups of ``rows`` rows; the last may be smaller."""
    group: list[pa.RecordBatch] = []
    room = rows
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, room)
            batch = batch.slice(piece.num_rows)
            group.append(piece)
            room -= piece.num_rows
            if not room:
                yield group
                group, room = [], rows
    if group:
        yield group


class Packed(NamedTuple):
    """Cells without padding.

    Attributes:
        tokens: tokens of all cells, one after the other; uint16 or uint32.
        cu_seqlens: cell i has ``tokens[cu_seqlens[i]:cu_seqlens[i + 1]]``, int32, cells + 1.
    """

    tokens: NDArray[np.unsignedinteger[Any]]
    cu_seqlens: NDArray[np.int32]


@dataclass(frozen=True)
class TokenStore:
    """One or several token stores, read as one.  Rows keep the order of folders and shards.

    Attributes:
        vocabulary: fingerprint of the vocabulary.
        vocabulary_size: number of tokens, the special ones included.
        maximum_length: where cells were cut; the smallest where stores differ.
        simulated: whether any cell is simulated.
        label: columns of ``obs`` that ``cell_type`` came from.
        lengths: tokens of each cell, int32.
    """

    vocabulary: str
    vocabulary_size: int
    maximum_length: int
    simulated: bool
    label: str
    lengths: NDArray[np.int32]
    _table: pa.Table
    _starts: NDArray[np.int64]
    _lists: list[tuple[NDArray[np.int32], NDArray[np.unsignedinteger[Any]]]]

    @staticmethod
    def open(
        folders: str | Path | Sequence[str | Path],
        vocabulary: str | None = None,
        *,
        verify: bool = True,
    ) -> "TokenStore":
        """Open stores for reading.

        Args:
            folders: one store or several.
            vocabulary: fingerprint that the stores must have.
            verify: whether to read every shard and check its SHA-256; without it a shard's
                structure and number of rows are checked alone.

        Raises:
            UserError: for a missing or damaged shard, by name, and for another vocabulary.
        """
        if isinstance(folders, (str, Path)):
            folders = [folders]
        if not folders:
            raise ValueError("no store given")
        indices = [read_index(Path(folder)) for folder in folders]
        expected = vocabulary if vocabulary is not None else indices[0]["vocabulary"]
        tables = []
        for folder, index in zip(folders, indices, strict=True):
            if index["vocabulary"] != expected:
                raise UserError(
                    f"{folder}: made with another vocabulary ({index['vocabulary'][:12]} instead "
                    f"of {expected[:12]}); make the tokens again"
                )
            schema = store_schema(index["vocabulary_size"])
            tables.append(schema.empty_table())
            tables += [read_shard(Path(folder), shard, schema, verify) for shard in index["shards"]]
        table = pa.concat_tables(tables)
        chunks = [chunk for chunk in table["input_ids"].chunks if len(chunk)]
        return TokenStore(
            vocabulary=expected,
            vocabulary_size=indices[0]["vocabulary_size"],
            maximum_length=min(index["maximum_length"] for index in indices),
            simulated=any(index["simulated"] for index in indices),
            label=", ".join(sorted({index["label"] for index in indices} - {""})),
            lengths=table["length"].to_numpy(),
            _table=table,
            _starts=np.cumsum([0, *(len(chunk) for chunk in chunks)]),
            _lists=[(chunk.offsets.to_numpy(), chunk.values.to_numpy()) for chunk in chunks],
        )

    def __len__(self) -> int:
        """Number of cells."""
        return len(self.lengths)

    def cells(self, rows: Sequence[int] | NDArray[np.integer[Any]], maximum_length: int) -> Packed:
        """Tokens of some cells, in the order given.

        Args:
            rows: rows of the cells.
            maximum_length: only so many tokens of each cell.
        """
        rows = np.asarray(rows, dtype=np.int64)
        chunks = np.searchsorted(self._starts, rows, side="right") - 1
        pieces = []
        for chunk, row in zip(chunks.tolist(), (rows - self._starts[chunks]).tolist(), strict=True):
            offsets, values = self._lists[chunk]
            pieces.append(
                values[offsets[row] : min(offsets[row + 1], offsets[row] + maximum_length)]
            )
        cu_seqlens = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum([len(piece) for piece in pieces], out=cu_seqlens[1:])
        if not pieces:
            token = store_schema(self.vocabulary_size).field("input_ids").type.value_type
            return Packed(np.zeros(0, dtype=token.to_pandas_dtype()), cu_seqlens)
        return Packed(np.concatenate(pieces), cu_seqlens)

    def metadata(self, columns: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Columns other than the tokens, for all cells; strings as objects."""
        return {name: self._table[name].to_numpy() for name in columns}


def read_index(folder: Path) -> dict[str, Any]:
    """Read the index of a store."""
    path = folder / INDEX
    if not path.is_file():
        raise UserError(f"{folder}: not a token store ({INDEX} is missing); make the tokens first")
    try:
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = index["version"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: damaged; make the tokens again") from None
    if version != VERSION:
        raise UserError(f"{path}: written by another version; make the tokens again")
    return index


def read_shard(folder: Path, shard: dict[str, Any], schema: pa.Schema, verify: bool) -> pa.Table:
    """Map one shard into memory and check it against the index."""
    path = folder / shard["file"]
    if not path.is_file():
        raise UserError(f"{path}: this shard of the token store is missing; make the tokens again")
    damaged = UserError(f"{path}: this shard of the token store is damaged; make the tokens again")
    if verify and sha256(path) != shard["sha256"]:
        raise damaged
    try:
        table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
    except (pa.ArrowInvalid, OSError):
        raise damaged from None
    if table.num_rows != shard["rows"] or not table.schema.equals(schema):
        raise damaged
    return table
