"""Random permutation of a part's cells over the shards of its token store, in bounded memory.

The permutation is uniform and depends only on the number of cells. Training shuffles again by its
own seed (:mod:`scsigmoid.tokens.shuffle`). Cells are first written to one temporary file per shard.
Then the cells of each file are permuted in memory.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import lists_of

MOST_SHARDS = 512  # limit of open files: one per shard

Int64s = NDArray[np.int64]


def scatter(
    batches: Iterable[pa.RecordBatch], cells: int, shard_cells: int, schema: pa.Schema, store: Path
) -> Iterator[pa.RecordBatch]:
    """Yield the shards of a store, with cells permuted over all shards.

    Args:
        batches: cells in the order of the h5ad files.
        cells: number of cells. ``batches`` may contain fewer.
        shard_cells: maximum number of cells per shard. Shards have nearly equal sizes.
        schema: schema of the batches.
        store: folder of the store. Temporary files are written next to it, and need as much disk
            space as the store.

    Raises:
        UserError: if there would be more than ``MOST_SHARDS`` shards.
    """
    shards = -(-cells // shard_cells)
    if shards > MOST_SHARDS:
        raise UserError(
            f"tokens.shard_cells: {cells} cells of one part would make {shards} shards, "
            f"more than {MOST_SHARDS}; raise corpus.parts or tokens.shard_cells"
        )
    folder = store.with_name(f".{store.name}.scatter")
    shutil.rmtree(folder, ignore_errors=True)  # left behind by a killed job
    folder.mkdir(parents=True)
    try:
        paths = [folder / f"{number}.arrow" for number in range(shards)]
        for path, places in zip(paths, deal(batches, cells, schema, paths), strict=True):
            with pa.memory_map(str(path)) as file:
                shard = reorder(
                    list(pa.ipc.open_stream(file)), np.argsort(np.concatenate(places)), schema
                )
            path.unlink()
            yield shard
    finally:
        shutil.rmtree(folder)


def deal(
    batches: Iterable[pa.RecordBatch], cells: int, schema: pa.Schema, paths: Sequence[Path]
) -> list[list[Int64s]]:
    """Write each cell to the file of its shard, and return the places of each file's cells."""
    generator = np.random.Generator(np.random.PCG64(derive(0, "scatter", cells)))
    permutation = generator.permutation(cells)
    size = -(-cells // max(len(paths), 1))
    places = [[np.zeros(0, dtype=np.int64)] for _ in paths]
    done = 0
    with ExitStack() as stack:
        files = [stack.enter_context(pa.ipc.new_stream(str(path), schema)) for path in paths]
        for batch in batches:
            place = permutation[done : done + batch.num_rows]
            done += batch.num_rows
            order = np.argsort(place)
            place = place[order]
            batch = reorder([batch], order, schema)
            for number, file in enumerate(files):
                start, stop = np.searchsorted(place, (number * size, (number + 1) * size))
                if start < stop:
                    file.write_batch(batch.slice(start, stop - start))
                    places[number].append(place[start:stop])
    return places


def reorder(batches: Sequence[pa.RecordBatch], order: Int64s, schema: pa.Schema) -> pa.RecordBatch:
    """Return a copy of the rows ``order`` of the concatenated batches.

    Arrow's ``take`` is ten times slower for lists.
    """
    lists = [lists_of(batch.column(0)) for batch in batches]
    lengths = np.concatenate([np.zeros(0, np.int32), *(np.diff(starts) for starts, _ in lists)])
    offsets = np.zeros(len(order) + 1, dtype=np.int32)
    np.cumsum(lengths[order], out=offsets[1:])
    places = np.empty(len(order), dtype=np.int64)
    places[order] = offsets[:-1]
    tokens = np.empty(offsets[-1], dtype=schema.field(0).type.value_type.to_pandas_dtype())
    done = 0
    for starts, values in lists:
        count = len(starts) - 1
        place_cells(values, starts, places[done : done + count], tokens)
        done += count
    rest = pa.Table.from_batches(batches, schema).drop_columns("input_ids")
    return pa.record_batch(
        [
            pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens)),
            *(column.combine_chunks().take(pa.array(order)) for column in rest.columns),
        ],
        schema=schema,
    )


@njit(cache=True, nogil=True)
def place_cells(
    tokens: NDArray[np.unsignedinteger],
    offsets: NDArray[np.int32],
    places: NDArray[np.int64],
    placed: NDArray[np.unsignedinteger],
) -> None:
    """Copy ``tokens[offsets[i]:offsets[i + 1]]`` of each cell i to ``placed[places[i]:]``."""
    for cell in range(len(places)):
        first = offsets[cell]
        for entry in range(offsets[cell + 1] - first):
            placed[places[cell] + entry] = tokens[first + entry]
