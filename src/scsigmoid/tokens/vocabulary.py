"""The vocabulary: which genes have tokens, and their medians."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path

PAD, MASK, CLS, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<mask>", "<cls>", "<unk>")

SCHEMA = pa.schema(
    [
        ("token", pa.int32()),
        ("gene_id", pa.string()),
        ("name", pa.string()),
        ("cells", pa.int64()),
        ("median", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens and their genes; a token is its position.

    The four special tokens come first, then the genes sorted by id, so that a token does not
    depend on the order of files.

    Attributes:
        gene_ids: gene id of each token, or the special token's name.
        names: symbols.
        cells: training cells that express each gene; 0 for special tokens.
        medians: median of count / cell total * target sum over the cells that express the gene;
            1.0 for special tokens.
    """

    gene_ids: tuple[str, ...]
    names: tuple[str, ...]
    cells: NDArray[np.int64]
    medians: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of tokens, the special ones included."""
        return len(self.gene_ids)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content, in hexadecimal: equal for equal vocabularies."""
        digest = hashlib.sha256()
        for row in zip(self.gene_ids, self.names, self.cells, self.medians, strict=True):
            gene, name, cells, median = row
            digest.update(f"{gene}\t{name}\t{cells}\t{float(median).hex()}\n".encode())
        return digest.hexdigest()

    @cached_property
    def token_of(self) -> dict[str, int]:
        """Token of each gene id."""
        return {gene: token for token, gene in enumerate(self.gene_ids) if token >= len(SPECIAL)}

    def tokens(self, genes: Iterable[str]) -> NDArray[np.int64]:
        """Tokens of gene ids; -1 for genes outside the vocabulary."""
        token_of = self.token_of
        return np.array([token_of.get(gene, -1) for gene in genes], dtype=np.int64)

    def write(self, path: str | Path) -> None:
        """Write the vocabulary as Parquet, with its fingerprint in the schema's metadata."""
        table = pa.table(
            {
                "token": pa.array(range(self.size), type=pa.int32()),
                "gene_id": pa.array(self.gene_ids, type=pa.string()),
                "name": pa.array(self.names, type=pa.string()),
                "cells": pa.array(self.cells, type=pa.int64()),
                "median": pa.array(self.medians, type=pa.float64()),
            },
            schema=SCHEMA.with_metadata({"fingerprint": self.fingerprint}),
        )
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)

    @staticmethod
    def read(path: str | Path) -> "Vocabulary":
        """Read a vocabulary.

        Raises:
            UserError: if the file is missing, damaged or no vocabulary.
        """
        try:
            table = pq.read_table(path)
        except FileNotFoundError:
            raise UserError(f"{path}: no such vocabulary; make it first") from None
        except (pa.ArrowException, OSError):
            raise UserError(f"{path}: not a vocabulary, or damaged; make it again") from None
        if not table.schema.equals(SCHEMA):
            raise UserError(f"{path}: not a vocabulary; give the file tokens/vocabulary.parquet")
        damaged = UserError(f"{path}: damaged (its content is not what was written); make it again")
        try:
            vocabulary = Vocabulary(
                tuple(table["gene_id"].to_pylist()),
                tuple(table["name"].to_pylist()),
                table["cells"].to_numpy(),
                table["median"].to_numpy(),
            )
        except UnicodeDecodeError:
            raise damaged from None
        stored = (table.schema.metadata or {}).get(b"fingerprint", b"").decode()
        if stored != vocabulary.fingerprint or vocabulary.gene_ids[: len(SPECIAL)] != SPECIAL:
            raise damaged
        return vocabulary


def build_vocabulary(
    statistics: Iterable[str | Path], minimum_cells: int, output: str | Path
) -> None:
    """Make the vocabulary from gene statistics.

    Args:
        statistics: the files of :func:`scsigmoid.tokens.statistics.gather`, in any order.
        minimum_cells: a gene enters when this many training cells express it (at least 1).
        output: the Parquet file to write.

    Raises:
        UserError: if no gene enters, or no cell holds a count.
    """
    from scsigmoid.tokens.statistics import read_all

    merged = read_all(statistics)
    kept = np.flatnonzero(merged.cells >= max(1, minimum_cells))
    if not merged.cells.any():
        raise UserError("corpus: no training cell holds a count; give other files")
    if not len(kept):
        raise UserError(
            f"tokens.minimum_cells: no gene is expressed in {minimum_cells} training cells; "
            "lower it"
        )
    zeros = np.zeros(len(SPECIAL), dtype=np.int64)
    Vocabulary(
        (*SPECIAL, *(merged.genes[index] for index in kept)),
        (*SPECIAL, *(merged.names[index] for index in kept)),
        np.concatenate([zeros, merged.cells[kept]]),
        np.concatenate([zeros + 1.0, merged.medians()[kept]]),
    ).write(output)
