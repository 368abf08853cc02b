"""Checks token stores byte by byte, and rebuilds what is damaged without the rest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scsigmoid.corpus.metadata import FILES, read_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, sha256
from scsigmoid.progress import log, track
from scsigmoid.tokens.make import Part, Tokenizer
from scsigmoid.tokens.scatter import scatter_folder
from scsigmoid.tokens.store import CHECKSUMS, GENES, Shard, read_index, store_schema
from scsigmoid.tokens.vocabulary import Vocabulary
from scsigmoid.tokens.writing import checksums, write_shard


def check_tokens(
    folders: Sequence[Path], cells: Path | None = None, vocabulary: Path | None = None
) -> None:
    """Compare every file of token stores with the SHA-256 in their indices.

    Args:
        folders: the stores.
        cells: the part's folder of h5ad files; with it, damaged files of a training store are
            rebuilt.
        vocabulary: ``vocabulary.parquet``; needed for rebuilding.

    Raises:
        UserError: if something is damaged and cannot be rebuilt, with its names.
    """
    if cells is not None and (vocabulary is None or len(folders) != 1):
        raise UserError("check-tokens: --cells needs --vocabulary and one folder of --tokens")
    # Whatever state the tokens are in, a wrong path is named.
    if cells is not None:
        read_manifest(cells / FILES)
    if vocabulary is not None:
        Vocabulary.read(vocabulary)
    names: list[str] = []
    for folder in folders:
        index = read_index(folder)
        damaged = damaged_shards(folder, index)
        files = [index["shards"][number]["file"] for number in damaged]
        files += [name for name in (GENES, CHECKSUMS) if not intact(folder, name, index)]
        for name in files:
            log(f"{folder / name}: damaged or missing")
        if files and cells is not None and vocabulary is not None:
            rebuild_shards(folder, index, damaged, cells, vocabulary)
            rebuild_arrays(folder, index)
            log(f"{folder}: rebuilt {', '.join(files)}")
        else:
            names += [str(folder / name) for name in files]
    if names:
        raise UserError(
            f"{', '.join(names)}: damaged; give --cells and --vocabulary to rebuild, or delete the "
            "folder and run again"
        )
    log(f"{len(folders)} token stores are intact")


def intact(folder: Path, name: str, index: dict[str, Any]) -> bool:
    return (folder / name).is_file() and sha256(folder / name) == index["arrays"][name]


def damaged_shards(folder: Path, index: dict[str, Any]) -> list[int]:
    """Numbers of the shards that are not what was written."""
    schema = store_schema(index["vocabulary_size"])
    damaged = []
    for number, entry in enumerate(track(index["shards"], label=f"checking {folder}")):
        try:
            Shard(folder, entry, schema).verify()
        except UserError:
            damaged.append(number)
    return damaged


def rebuild_shards(
    folder: Path, index: dict[str, Any], numbers: Sequence[int], cells: Path, vocabulary: Path
) -> None:
    """Write some shards of a training store again, from the part's cells.

    Raises:
        UserError: if the store was not made from these cells with this vocabulary.
    """
    if not numbers:
        return
    if index.get("order") != "scattered":
        raise UserError(f"{folder}: no store of a training part; delete it and run again")
    keys = ("target_sum", "maximum_length", "shard_cells", "minimum_genes")
    part = Part(cells, Tokenizer(vocabulary, *(index.get(key, 0) for key in keys)))
    scatter = part.scatter()
    other = UserError(f"{folder}: was made from other cells or another vocabulary than those given")
    if part.facts()["vocabulary"] != index["vocabulary"] or scatter.shards != len(index["shards"]):
        raise other
    shards = scatter.deal(part.batches(), scatter_folder(folder), numbers)
    for number, shard in zip(numbers, shards, strict=True):
        entry = index["shards"][number]
        with atomic_path(folder / entry["file"]) as temporary:
            if write_shard(temporary, shard)["sha256"] != entry["sha256"]:
                raise other


def rebuild_arrays(folder: Path, index: dict[str, Any]) -> None:
    """Write ``genes.npy`` and ``checksums.npy`` again, from the shards, if they are damaged."""
    if all(intact(folder, name, index) for name in (GENES, CHECKSUMS)):
        return
    schema = store_schema(index["vocabulary_size"])
    genes, sums = [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.uint32)]
    for entry in index["shards"]:
        for batch in Shard(folder, entry, schema).table.to_batches():
            genes.append(batch["genes"].to_numpy())
            sums.append(checksums(batch))
    for name, values in ((GENES, genes), (CHECKSUMS, sums)):
        with atomic_path(folder / name) as temporary:
            np.save(temporary, np.concatenate(values))
