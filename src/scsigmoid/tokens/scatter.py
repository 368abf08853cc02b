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
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

MOST_SHARDS = 512  # limit of open files: one per shard

Int64s = NDArray[np.int64]


def scatter(
    batches: Iterable[pa.RecordBatch], cells: int, shard_cells: int, schema: pa.Schema, store: Path
) -> Iterator[pa.RecordBatch]:
    """Yield the shards of a store, with cells permuted over all shards.

    Args:
        batches: cells in the order of the h5ad files.
        cells: upper bound of the number of cells in ``batches``.
        shard_cells: maximum number of cells per shard. Shards have nearly equal sizes.
        schema: schema of the batches.
        store: folder of the store. Temporary files are written next to it, and need as much disk
            space as the store.
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
        positions = write_by_shard(batches, cells, schema, paths)
        for path, in_shard in zip(paths, positions, strict=True):
            with pa.memory_map(str(path)) as file:
                shard = reorder(
                    list(pa.ipc.open_stream(file)), np.argsort(np.concatenate(in_shard)), schema
                )
            path.unlink()
            yield shard
    finally:
        shutil.rmtree(folder)


def write_by_shard(
    batches: Iterable[pa.RecordBatch], cells: int, schema: pa.Schema, paths: Sequence[Path]
) -> list[list[Int64s]]:
    """Write each cell to the file of its shard.

    Returns:
        For each file, the positions of its cells in the permuted order, in arrays of one batch.
    """
    generator = np.random.Generator(np.random.PCG64(derive(0, "scatter", cells)))
    permutation = generator.permutation(cells)
    size = -(-cells // max(len(paths), 1))
    positions = [[np.zeros(0, dtype=np.int64)] for _ in paths]
    done = 0
    with ExitStack() as stack:
        files = [stack.enter_context(pa.ipc.new_stream(str(path), schema)) for path in paths]
        for batch in batches:
            position = permutation[done : done + batch.num_rows]
            done += batch.num_rows
            order = np.argsort(position)  # makes the cells of a shard contiguous
            position = position[order]
            batch = reorder([batch], order, schema)
            for number, file in enumerate(files):
                start, stop = np.searchsorted(position, (number * size, (number + 1) * size))
                if start < stop:
                    file.write_batch(batch.slice(start, stop - start))
                    positions[number].append(position[start:stop])
    return positions


def reorder(batches: Sequence[pa.RecordBatch], order: Int64s, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows ``order`` of the concatenated batches."""
    # concat_batches fails without a batch.
    empty = pa.RecordBatch.from_pylist([], schema)
    return pa.concat_batches([empty, *batches]).take(pa.array(order))
