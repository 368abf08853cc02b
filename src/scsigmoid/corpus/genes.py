"""Genes of a file: ids without versions, each once, no spike-ins and no viruses."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError

ENSEMBL = re.compile(r"ENS[A-Z]*\d+")
VERSIONED = re.compile(r"(ENS[A-Z]*\d+)\.\d+")
# Spike-ins are no transcripts of the cell, and the genes of SARS-CoV-2 (ENSSASG...), which
# CELLxGENE files may list, are none of its genome.
FOREIGN = ("ERCC-", "ENSSASG")


def check_named(ids: NDArray[np.object_], path: Path) -> None:
    """Refuse genes without an id: empty ones, and the numbers that anndata gives unnamed columns.

    Raises:
        UserError: naming the file.
    """
    if (ids == "").any():
        raise UserError(
            f"{path}: gene number {int(np.argmax(ids == ''))} has no name; name genes by Ensembl "
            "id in the index of var"
        )
    if len(ids) and (ids == np.arange(len(ids)).astype(str)).all():
        raise UserError(
            f"{path}: genes have no names, only the numbers 0 to {len(ids) - 1}; put their Ensembl "
            "ids into the index of var"
        )


def by_ensembl(genes: Sequence[str]) -> bool:
    """Whether most genes are named by Ensembl ids, and not by symbols, say."""
    return 2 * sum(ENSEMBL.fullmatch(gene) is not None for gene in genes) > len(genes)


def unique_genes(
    ids: Sequence[str] | NDArray[np.object_], names: Sequence[str] | NDArray[np.object_]
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Strip version suffixes, merge genes listed twice, leave spike-ins and viruses out.

    Returns:
        The unique ids and their names in the file's order, and for each column of the file the
        position of its gene, or -1.
    """
    position: dict[str, int] = {}
    kept_names: list[str] = []
    columns = np.full(len(ids), -1, dtype=np.int64)
    for index, (identifier, name) in enumerate(zip(ids, names, strict=True)):
        versioned = VERSIONED.fullmatch(identifier) if "." in identifier else None
        gene = versioned[1] if versioned else identifier
        if gene.startswith(FOREIGN):
            continue
        if gene not in position:
            position[gene] = len(position)
            kept_names.append(name or gene)
        columns[index] = position[gene]
    return list(position), kept_names, columns
