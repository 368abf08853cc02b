"""Genes of a file: ids without versions, each once, no spike-ins and no viruses."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

VERSIONED = re.compile(r"(ENS[A-Z]*\d+)\.\d+")
# Spike-ins are no transcripts of the cell, and the genes of SARS-CoV-2 (ENSSASG...), which
# CELLxGENE files may list, are none of its genome.
FOREIGN = ("ERCC-", "ENSSASG")


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
