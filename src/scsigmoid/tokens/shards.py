"""One file of a token store: its columns, its checksums, and how it is read."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.tokens.ranks import token_type
from scsigmoid.tokens.shuffle import BLOCK_CELLS

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"

Tokens = NDArray[np.unsignedinteger[Any]]


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
        """Check the file's size and end.

        Args:
            folder: the store.
            entry: what the index says of the shard.
            schema: of the store.

        Raises:
            UserError: if the file is missing or has another size or end.
        """
        self.path = folder / entry["file"]
        self.rows = int(entry["rows"])
        self._entry, self._schema = entry, schema
        self._table: pa.Table | None = None
        self._lists: tuple[NDArray[np.int32], Tokens] | None = None
        if not self.path.is_file():
            raise self.damaged("is missing")
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            if size != entry["bytes"] or size < len(END_OF_STREAM):
                raise self.damaged()
            file.seek(-len(END_OF_STREAM), 2)
            if file.read() != END_OF_STREAM:
                raise self.damaged()

    def damaged(self, how: str = "is damaged") -> UserError:
        """The error that names this shard."""
        return UserError(
            f"{self.path}: this shard of the token store {how}; rebuild it with `scsigmoid "
            "check-tokens`, or delete the folder and run again"
        )

    @property
    def table(self) -> pa.Table:
        """The cells; structure and number of rows are checked."""
        if self._table is None:
            try:
                table = pa.ipc.open_stream(pa.memory_map(str(self.path))).read_all()
            except (pa.ArrowException, OSError):
                raise self.damaged() from None
            if table.num_rows != self.rows or not table.schema.equals(self._schema):
                raise self.damaged()
            self._table = table
        return self._table

    @property
    def lists(self) -> tuple[NDArray[np.int32], Tokens]:
        """Offsets (rows + 1) and tokens of the cells."""
        if self._lists is None:
            self._lists = lists_of(self.table["input_ids"].chunk(0))
        return self._lists

    def verify(self) -> None:
        """Read the whole file and compare its SHA-256 with the index.

        Raises:
            UserError: if it differs.
        """
        if sha256(self.path) != self._entry["sha256"]:
            raise self.damaged()


def lists_of(column: pa.ListArray) -> tuple[NDArray[np.int32], Tokens]:
    """Offsets and values of a list column, without a copy."""
    return column.offsets.to_numpy(), column.values.to_numpy()


def checksum(offsets: NDArray[np.int32], tokens: Tokens, first: int) -> int:
    """CRC-32 of the lengths and tokens of the block of cells that begins with cell ``first``."""
    ends = offsets[first : first + BLOCK_CELLS + 1]
    return zlib.crc32(tokens[ends[0] : ends[-1]].data, zlib.crc32(np.diff(ends).data))
