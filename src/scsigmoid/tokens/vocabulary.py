"""The vocabulary: which genes have tokens, and their medians."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scsigmoid.config.schema import VocabularyChoice
from scsigmoid.corpus.genes import organism_of
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path
from scsigmoid.progress import log

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

    def write(
        self, path: str | Path, organisms: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Write the vocabulary as Parquet, with its fingerprint in the schema's metadata.

        Args:
            path: the file.
            organisms: what :func:`by_organism` says, for the metadata too.
        """
        table = pa.table(
            {
                "token": pa.array(range(self.size), type=pa.int32()),
                "gene_id": pa.array(self.gene_ids, type=pa.string()),
                "name": pa.array(self.names, type=pa.string()),
                "cells": pa.array(self.cells, type=pa.int64()),
                "median": pa.array(self.medians, type=pa.float64()),
            },
            schema=SCHEMA.with_metadata(
                {"fingerprint": self.fingerprint, "organisms": json.dumps(organisms or {})}
            ),
        )
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)

    @staticmethod
    def read(path: str | Path) -> "Vocabulary":
        """Read a vocabulary.

        Raises:
            UserError: if the file is missing, damaged or no vocabulary.
        """
        if Path(path).exists() and not Path(path).is_file():
            raise UserError(f"{path}: no file; give the file tokens/vocabulary.parquet")
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


EXPRESSED = VocabularyChoice(genes=None, biotypes=None, annotation=[], sizes=None)


def build_vocabulary(
    statistics: Iterable[str | Path],
    minimum_cells: int,
    output: str | Path,
    choice: VocabularyChoice = EXPRESSED,
) -> None:
    """Make the vocabulary from gene statistics; the log tells what has no token.

    Args:
        statistics: the files of :func:`scsigmoid.tokens.statistics.gather`, in any order.
        minimum_cells: a gene enters when this many training cells express it (at least 1).
        output: the Parquet file to write.
        choice: which of these genes enter, or a list of others; all of these if not given.

    Raises:
        UserError: if no gene enters, no cell holds a count, or a file of the choice does not fit.
    """
    from scsigmoid.tokens.choice import listed, ruled
    from scsigmoid.tokens.statistics import read_all

    merged = read_all(statistics)
    expressed = dict(zip(merged.genes, merged.cells.tolist(), strict=True))
    if not any(expressed.values()):
        raise UserError("corpus: no training cell holds a count; give other files")
    genes = ruled(merged, minimum_cells, choice) if choice.genes is None else listed(choice.genes)
    if not any(expressed.get(gene) for gene in genes):
        raise UserError(
            f"{choice.genes}: no training cell expresses a gene of the list (it has {genes[0]!r}, "
            f"the cells {merged.genes[0]!r}); name genes as in the training files"
        )
    names = dict(zip(merged.genes, merged.names, strict=True))
    medians = dict(zip(merged.genes, merged.medians().tolist(), strict=True))
    organisms = by_organism(expressed, genes)
    for organism, told in organisms.items():
        log(
            f"vocabulary: {organism}: {told['tokens']:,} genes; training cells express "
            f"{told['genes']:,}; {told['outside'] / max(told['counts'], 1):.3%} of the non-zero "
            "counts are of genes without a token"
        )
    Vocabulary(
        (*SPECIAL, *genes),
        (*SPECIAL, *(names.get(gene, gene) for gene in genes)),
        np.array([0] * len(SPECIAL) + [expressed.get(gene, 0) for gene in genes], dtype=np.int64),
        np.array([1.0] * len(SPECIAL) + [medians[g] if expressed.get(g) else 1.0 for g in genes]),
    ).write(output, organisms)


def by_organism(expressed: Mapping[str, int], tokens: Iterable[str]) -> dict[str, dict[str, int]]:
    """What has a token and what has none.

    Args:
        expressed: training cells that express each gene.
        tokens: genes with tokens.

    Returns:
        For each organism: ``tokens``, genes that have one; ``genes``, those that training cells
        express; ``counts``, the non-zero counts of all cells; ``outside``, those without a token.
    """
    told: dict[str, dict[str, int]] = {}
    have = set(tokens)
    for gene in sorted(have | expressed.keys()):
        cells = expressed.get(gene, 0)
        if gene in have or cells:
            entry = told.setdefault(
                organism_of(gene), {"tokens": 0, "genes": 0, "counts": 0, "outside": 0}
            )
            entry["tokens"] += gene in have
            entry["genes"] += cells > 0
            entry["counts"] += cells
            entry["outside"] += 0 if gene in have else cells
    return told
