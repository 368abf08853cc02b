"""Random permutation of a part's cells over the shards of its token store, in bounded memory.

A part is a share of the training cells, with one token store. The permutation is uniform and
depends only on the number of cells. Training shuffles again with its own seed
(:mod:`scsigmoid.tokens.shuffle`). Cells are first written to one temporary file per shard. Then the
cells of each file are permuted in memory.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scsigmoid.errors import UserError, first_few
from scsigmoid.files import locked
from scsigmoid.progress import warn
from scsigmoid.seeds import derive

LOCK = ".lock"  # in the folder of temporary files
MAXIMUM_SHARDS = 512  # one open file per shard, and systems limit the number of open files

Int64s = NDArray[np.int64]


def scatter(
    batches: Iterable[pa.RecordBatch], cells: int, shard_cells: int, schema: pa.Schema, store: Path
) -> Iterator[pa.RecordBatch]:
    """Yield shards of nearly equal size, at most ``shard_cells``, with all cells permuted.

    ``cells`` is the number of cells in ``batches``, or more if tokenization leaves out cells.
    Temporary files are written next to the folder ``store``, and need as much disk space.
    """
    n_shards = -(-cells // shard_cells)  # rounded up
    if n_shards > MAXIMUM_SHARDS:
        raise UserError(
            f"tokens.shard_cells: {cells} cells of one part would make {n_shards} shards, "
            f"more than {MAXIMUM_SHARDS}; raise corpus.parts or tokens.shard_cells"
        )
    folder = store.with_name(f".{store.name}.scatter")
    paths = [folder / f"{number}.arrow" for number in range(n_shards)]
    with temporary_folder(folder):
        positions = write_by_shard(batches, cells, schema, paths)
        empty = pa.RecordBatch.from_pylist([], schema)  # concat_batches fails for an empty list
        for path, positions_in_shard in zip(paths, positions, strict=True):
            order = np.argsort(np.concatenate(positions_in_shard))
            with pa.memory_map(str(path)) as file:
                shard = pa.concat_batches([empty, *pa.ipc.open_stream(file)]).take(pa.array(order))
            path.unlink()
            yield shard


@contextmanager
def temporary_folder(folder: Path) -> Iterator[None]:
    """Make a folder for the files of shards, and delete it after the block.

    Raise a UserError if another process uses the folder, or if it has files that no job wrote.
    Files with names such as ``.nfs0001`` are kept. NFS makes them when open files are deleted, and
    deletes them when they are closed.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        problem = "a file or a link in place of a folder of temporary files"
        raise UserError(f"{folder}: {problem}; move it, and run again")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [path for path in sorted(folder.iterdir()) if not path.name.startswith((LOCK, ".nfs"))]
    # Another job may have deleted its files since they were listed.
    if other := [path.name for path in paths if not is_shard(path) and os.path.lexists(path)]:
        problem = f"contains files that no job wrote ({first_few(other)})"
        raise UserError(f"{folder}: {problem}; move them, and run again")
    with ExitStack() as stack, locked(folder / LOCK, "tokenizing"):
        stack.callback(remove, folder)  # after unlocking: NFS keeps deleted files that are open
        delete_shards(folder)  # of a killed job
        try:
            yield
        finally:
            delete_shards(folder)


def is_shard(path: Path) -> bool:
    """Return whether a path has the name of a temporary file, and is a file."""
    is_named = re.fullmatch(r"[0-9]+\.arrow", path.name) is not None
    return is_named and path.is_file() and not path.is_symlink()


def delete_shards(folder: Path) -> None:
    """Delete the temporary files of shards."""
    for path in filter(is_shard, folder.iterdir()):
        path.unlink()


def remove(folder: Path) -> None:
    """Delete the folder and its lock, unless it has other files."""
    try:
        (folder / LOCK).unlink(missing_ok=True)
        folder.rmdir()
    except OSError as error:
        warn(f"{folder}: not deleted ({error.strerror}); delete it if no job is running")


def write_by_shard(
    batches: Iterable[pa.RecordBatch], cells: int, schema: pa.Schema, paths: Sequence[Path]
) -> list[list[Int64s]]:
    """Write each cell to the temporary file of its shard.

    Return, for each file, the positions of its cells in the permutation, as one array per batch.
    """
    generator = np.random.Generator(np.random.PCG64(derive(0, "scatter", cells)))
    permutation = generator.permutation(cells)
    shard_size = -(-cells // max(len(paths), 1))  # rounded up; without cells, `paths` is empty
    # An empty first array, because np.concatenate needs at least one.
    positions = [[np.zeros(0, dtype=np.int64)] for _ in paths]
    done = 0
    with ExitStack() as stack:
        files = [stack.enter_context(pa.ipc.new_stream(str(path), schema)) for path in paths]
        for batch in batches:
            batch_positions = permutation[done : done + batch.num_rows]
            done += batch.num_rows
            order = np.argsort(batch_positions)  # makes the cells of a shard contiguous
            batch_positions = batch_positions[order]
            batch = batch.take(pa.array(order))
            # Shard i has the cells limits[i] to limits[i + 1] - 1 of the batch.
            limits = np.searchsorted(batch_positions, np.arange(len(paths) + 1) * shard_size)
            for shard, (start, stop) in enumerate(pairwise(limits)):
                if start < stop:
                    files[shard].write_batch(batch.slice(start, stop - start))
                    positions[shard].append(batch_positions[start:stop])
    return positions
