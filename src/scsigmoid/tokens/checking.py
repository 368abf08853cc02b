"""Checks token stores byte by byte, and rebuilds what is damaged without touching the rest."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scsigmoid.corpus.metadata import FILES, read_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.progress import log, track
from scsigmoid.tokens.make import SCATTERED, Tokenizer, tokenize_part
from scsigmoid.tokens.store import read_index
from scsigmoid.tokens.vocabulary import Vocabulary


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
    known = None if vocabulary is None else Vocabulary.read(vocabulary)
    names: list[str] = []
    for folder in folders:
        index = read_index(folder)
        sums = {entry["file"]: entry["sha256"] for entry in index["shards"]} | index["arrays"]
        files = [
            name
            for name, digest in track(sums.items(), label=f"checking {folder}", total=len(sums))
            if not (folder / name).is_file() or sha256(folder / name) != digest
        ]
        for name in files:
            log(f"{folder / name}: damaged or missing")
        if files and cells is not None and known is not None:
            rebuild(folder, index, files, cells, known)
            log(f"{folder}: rebuilt {', '.join(files)}")
        else:
            names += [str(folder / name) for name in files]
    if names:
        raise UserError(
            f"{', '.join(names)}: damaged; give --cells and --vocabulary to rebuild, or delete the "
            "folder and run again"
        )
    log(f"{len(folders)} token stores are intact")


def rebuild(
    folder: Path, index: dict[str, Any], names: Sequence[str], cells: Path, vocabulary: Vocabulary
) -> None:
    """Make a training store again, from the part's cells, and take some of its files."""
    if index.get("order") != SCATTERED:
        raise UserError(f"{folder}: no store of a training part; delete it and run again")
    keys = ("target_sum", "maximum_length", "shard_cells", "minimum_genes")
    again = folder.with_name(f".{folder.name}.rebuilt")
    try:
        tokenize_part(cells, Tokenizer(vocabulary, *(index.get(key, 0) for key in keys)), again)
        found = read_index(again)
        if any(found[key] != index[key] for key in ("vocabulary", "shards", "arrays")):
            raise UserError(
                f"{folder}: was made from other cells or another vocabulary than those given"
            )
        for name in names:
            os.replace(again / name, folder / name)
    finally:
        shutil.rmtree(again, ignore_errors=True)
