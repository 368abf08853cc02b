"""How long sequences are: the numbers behind the sequence-length figure (Fig. 1)."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scsigmoid.files import checksum_path
from scsigmoid.tokens.store import GENES, read_array, read_index


def length_counts(folders: Iterable[str | Path]) -> NDArray[np.int64]:
    """Number of cells that express 0, 1, 2, ... genes of the vocabulary, before any cut.

    Reads the stores' ``genes.npy`` alone.
    """
    total = np.zeros(0, dtype=np.int64)
    for folder in folders:
        genes = read_array(Path(folder), GENES, read_index(Path(folder)))
        counts = np.bincount(genes, minlength=len(total))
        counts[: len(total)] += total
        total = counts
    return total


def write_length_counts(folders: Iterable[str | Path], output: str | Path) -> None:
    """Write ``length`` (int32) and ``cells`` (int64), for lengths that occur, as Parquet."""
    counts = length_counts(folders)
    lengths = np.flatnonzero(counts)
    table = pa.table(
        {"length": pa.array(lengths, type=pa.int32()), "cells": pa.array(counts[lengths])}
    )
    with checksum_path(output) as temporary:
        pq.write_table(table, temporary)
