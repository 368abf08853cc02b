"""The token store: a folder of Arrow files (IPC streams, one record batch each) and an index.

=====================  =============================================================================
``shard-00000.arrow``  cells, with the columns of :func:`store_schema`
``genes.npy``          int32, (cells,): number of vocabulary genes that each cell expresses
``index.json``         settings, identity, its own SHA-256; rows, bytes and SHA-256 of every shard
``state.json``,        let ``datasets.load_from_disk`` open the folder
``dataset_info.json``
=====================  =============================================================================

A shard is one of the Arrow files. Opening a store reads the index, ``genes.npy`` and the last bytes
of each shard. This detects truncated and replaced shards without hashing terabytes. When a shard is
first needed, its SHA-256 is compared with the index, and it is mapped into memory.
"""

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_folder, atomic_path, parsing, sha256, write_json
from scsigmoid.records.identity import check_identity
from scsigmoid.tokens.packed import Packed, Tokens, concatenate, token_type

VERSION = 4
INDEX, GENES = "index.json", "genes.npy"
READING_THREADS = 4  # maximum number of threads that verify the shards of one request for cells
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # last bytes of an Arrow IPC stream


def store_schema(vocabulary_size: int) -> pa.Schema:
    """Return the columns of a shard, which has one row per cell.

    ``input_ids`` are the tokens, ``length`` is their number, and ``genes`` their number before
    truncation. ``file`` is the file's name in the manifest, and ``cell`` the cell's row in this
    file. The other columns are from ``obs``.
    """
    texts = ("file", "cell_type", "donor", "tissue", "assay")
    return pa.schema(
        [
            ("input_ids", pa.list_(pa.from_numpy_dtype(token_type(vocabulary_size)))),
            ("length", pa.int32()),
            ("genes", pa.int32()),
            ("cell", pa.int64()),
            *((name, pa.string()) for name in texts),
            ("is_primary", pa.bool_()),
        ]
    )


class ShardCells(NamedTuple):
    """The cells of a shard, mapped into memory."""

    table: pa.Table  # all columns
    offsets: NDArray[np.int32]  # cell i has tokens[offsets[i]:offsets[i + 1]], shape (rows + 1,)
    tokens: Tokens  # of all cells


class Shard:
    """A shard of a store."""

    def __init__(self, folder: Path, entry: dict[str, Any], vocabulary_size: int) -> None:
        """Raise an error if the file is missing, or if its size or its last bytes are wrong."""
        self.path = folder / entry["file"]
        self.rows: int = entry["rows"]
        self.sha256, self.vocabulary_size = entry["sha256"], vocabulary_size
        self.cells: ShardCells | None = None  # None before the first call of `read`
        self._lock = threading.Lock()
        if not self.path.is_file():
            raise self.make_error("is missing")
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - len(END_OF_STREAM)))
            if size != entry["bytes"] or file.read() != END_OF_STREAM:
                raise self.make_error()

    def make_error(self, problem: str = "is damaged") -> UserError:
        return UserError(f"{self.path}: this shard of tokens {problem}; make the tokens again")

    def read(self) -> ShardCells:
        """Return the cells. Thread-safe. The first call reads the whole file to verify it.

        Raise an error if the SHA-256, the columns or the number of rows are wrong, or if a token is
        not in the vocabulary.
        """
        with self._lock:
            if self.cells is None:
                self.cells = self._verified()
            return self.cells

    def _verified(self) -> ShardCells:
        if sha256(self.path) != self.sha256:
            raise self.make_error()
        with parsing(self.path, "a shard"):
            table = pa.ipc.open_stream(pa.memory_map(str(self.path))).read_all()
        schema = store_schema(self.vocabulary_size)
        if table.num_rows != self.rows or not table.schema.equals(schema):
            raise self.make_error()
        column = table["input_ids"].chunk(0)  # a shard has one record batch
        tokens = column.values.to_numpy()
        if (largest := tokens.max(initial=0)) >= self.vocabulary_size:
            problem = f"contains token {largest}, outside the vocabulary of {self.vocabulary_size}"
            raise self.make_error(problem)
        return ShardCells(table, column.offsets.to_numpy(), tokens)


def read_shards(shards: Sequence[Shard]) -> list[ShardCells]:
    """Return the cells of shards. New shards are verified in threads (hashing releases the GIL)."""
    new = [shard for shard in shards if shard.cells is None]
    if len(new) > 1:
        with ThreadPoolExecutor(min(len(new), READING_THREADS), "shards") as pool:
            list(pool.map(Shard.read, new))  # raises the first error
    return [shard.read() for shard in shards]


@dataclass(frozen=True)
class TokenStore:
    """One or several token stores, read as one. Cells are in the order of folders and shards."""

    # `dataset`, `vocabulary` and `cells`, see :meth:`~.tokenizer.Tokenizer.metadata`.
    identity: Mapping[str, str]
    vocabulary_size: int  # number of tokens, including special tokens
    maximum_length: int  # number of tokens that cells were truncated to (smallest of the stores)
    lengths: NDArray[np.int32]  # number of tokens of each cell
    _shards: list[Shard]
    _starts: NDArray[np.int64]  # first row of each shard

    @staticmethod
    def open(folders: str | Path | Sequence[str | Path], **expected: str) -> "TokenStore":
        """Open stores for reading.

        ``expected`` is the identity of the stores: ``vocabulary`` (fingerprint), ``dataset`` (empty
        for training cells), ``cells`` (SHA-256 of the dataset's h5ad file). Raise a UserError if a
        file is missing or damaged, if a store has another identity, if the vocabularies differ, or
        if two stores contain the same shard.
        """
        if isinstance(folders, (str, Path)):
            folders = [folders]
        indices = [read_index(Path(folder)) for folder in folders]
        # By default, all stores must have the vocabulary of the first store.
        expected = {"vocabulary": indices[0]["vocabulary"], **expected}
        number_of_store: dict[str, int] = {}  # first store that contains a shard, by SHA-256
        shards: list[Shard] = []
        lengths = np.empty(sum(index["rows"] for index in indices), dtype=np.int32)
        done = 0
        for number, (folder, index) in enumerate(zip(folders, indices, strict=True)):
            check_identity(folder, index, **expected)
            for entry in index["shards"]:
                first = number_of_store.setdefault(entry["sha256"], number)
                if first != number:
                    raise UserError(
                        f"{folder}: contains a shard of {folders[first]}; pass each store once"
                    )
                shards.append(Shard(Path(folder), entry, index["vocabulary_size"]))
            # A cell has a token per gene, up to the maximum length.
            store_lengths = lengths[done : done + index["rows"]]  # a view, which is filled
            np.minimum(read_genes(Path(folder), index), index["maximum_length"], out=store_lengths)
            done += len(store_lengths)
        rows = np.array([shard.rows for shard in shards], dtype=np.int64)
        return TokenStore(
            identity={name: indices[0][name] for name in ("dataset", "vocabulary", "cells")},
            vocabulary_size=indices[0]["vocabulary_size"],
            maximum_length=min(index["maximum_length"] for index in indices),
            lengths=lengths,
            _shards=shards,
            _starts=np.cumsum(rows) - rows,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def cells(self, rows: Sequence[int] | NDArray[np.integer[Any]], maximum_length: int) -> Packed:
        """Return the first ``maximum_length`` tokens of each cell, in the order of ``rows``.

        Raise an error if a shard of these cells is damaged (:meth:`Shard.read`).
        """
        rows = np.asarray(rows, dtype=np.int64)
        numbers, shard_of_row = np.unique(
            np.searchsorted(self._starts, rows, side="right") - 1, return_inverse=True
        )
        shards = read_shards([self._shards[number] for number in numbers])
        rows_in_shard = rows - self._starts[numbers][shard_of_row]
        pieces = []
        for shard, row in zip(shard_of_row.tolist(), rows_in_shard.tolist(), strict=True):
            _, offsets, tokens = shards[shard]
            pieces.append(tokens[offsets[row] : offsets[row + 1]][:maximum_length])
        return concatenate(pieces, token_type(self.vocabulary_size))

    def metadata(self, columns: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Return columns of all cells. Raise an error if a shard is damaged."""
        empty = store_schema(self.vocabulary_size).empty_table()  # for a store without shards
        tables = [cells.table for cells in read_shards(self._shards)]
        table = pa.concat_tables([empty, *tables])
        return {name: table[name].to_numpy() for name in columns}


def read_index(folder: Path) -> dict[str, Any]:
    """Read and check the index of a store."""
    path = folder / INDEX
    if not path.is_file():
        raise UserError(f"{folder}: not a token store ({INDEX} is missing); make the tokens first")
    with parsing(path, "the index of a token store"):
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if index["version"] != VERSION:
            raise UserError(
                f"{path}: written by another version of scsigmoid; make the tokens again"
            )
        if index.pop("sha256") != checksum(index):
            raise ValueError("its checksum differs")
    return index


def checksum(index: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the entries of an index, except its own."""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def read_genes(folder: Path, index: dict[str, Any]) -> NDArray[np.int32]:
    """Read the number of genes of each cell. Raise an error if the SHA-256 of the file is wrong."""
    path = folder / GENES
    if not path.is_file() or sha256(path) != index["arrays"][GENES]:
        raise UserError(f"{path}: missing or damaged; make the tokens again")
    genes: NDArray[np.int32] = np.load(path, mmap_mode="r")
    return genes


def write_length_counts(folders: Iterable[str | Path], output: str | Path) -> None:
    """Write the histogram of the number of expressed vocabulary genes per cell, as Parquet.

    The columns are ``length`` (int32, number of genes) and ``cells`` (int64, number of cells).
    """
    genes = [read_genes(folder, read_index(folder)) for folder in map(Path, folders)]
    counts = np.bincount(np.concatenate(genes))
    lengths = np.flatnonzero(counts)
    columns = {"length": pa.array(lengths, type=pa.int32()), "cells": pa.array(counts[lengths])}
    with atomic_path(output) as temporary:
        pq.write_table(pa.table(columns), temporary)


def write_shards(
    folder: str | Path, shards: Iterable[pa.RecordBatch], metadata: Mapping[str, Any]
) -> None:
    """Write a store atomically.

    ``shards`` have the columns of :func:`store_schema`. ``metadata`` contains the entries of the
    index that do not describe shards (default for ``dataset`` and ``cells``: ``""``, for training
    cells). It is read after the last shard, because iterating over ``shards`` may change it.
    """
    with atomic_folder(folder, INDEX) as temporary:
        entries = []
        genes = [np.zeros(0, dtype=np.int32)]
        for number, shard in enumerate(shards):
            entries.append(write_shard(temporary / f"shard-{number:05d}.arrow", shard))
            genes.append(shard["genes"].to_numpy())
        np.save(temporary / GENES, np.concatenate(genes))
        index = {
            "dataset": "",
            "cells": "",
            **metadata,
            "version": VERSION,
            "rows": sum(entry["rows"] for entry in entries),
            "tokens": sum(entry["tokens"] for entry in entries),
            "shards": entries,
            "arrays": {GENES: sha256(temporary / GENES)},
        }
        write_json(temporary / INDEX, {**index, "sha256": checksum(index)})
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


def write_dataset_files(folder: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write the files that ``datasets.load_from_disk`` needs (package datasets of Hugging Face)."""
    checksums = "\n".join(entry["sha256"] for entry in entries)
    state: dict[str, Any] = {
        "_data_files": [{"filename": entry["file"]} for entry in entries],
        "_fingerprint": hashlib.sha256(checksums.encode()).hexdigest()[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    write_json(folder / "state.json", state)
    write_json(folder / "dataset_info.json", {})


def grouped(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of ``rows`` rows, made from batches of any size. The last may be smaller."""
    group: list[pa.RecordBatch] = []
    room = rows  # rows that still fit into the group
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
