"""Genes of a file: ids without versions, each once, no spike-ins and no viruses."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.hdf5 import column, length
from scsigmoid.errors import UserError
from scsigmoid.progress import log

VERSIONED = re.compile(r"(ENS[A-Z]*\d+)\.\d+")
OF_ORGANISM = re.compile(r"(ENS[A-Z]*G)\d+")
ORGANISMS = {"ENSG": "Homo sapiens", "ENSMUSG": "Mus musculus"}
# Spike-ins are no transcripts of the cell, and the genes of SARS-CoV-2 (ENSSASG...), which
# CELLxGENE files may list, are none of its genome.
FOREIGN = ("ERCC-", "ENSSASG")
# What Cell Ranger, muon and the multimodal benchmarks call genes and other features, in lower case.
EXPRESSION = ("gene expression", "gex", "rna")
OTHERS = re.compile(r".* capture|custom|peaks|adt|hto|atac|prot(ein)?")


def check_named(ids: NDArray[np.object_], path: Path) -> None:
    """Refuse genes without an id: empty ones, and anndata's numbers of unnamed columns."""
    if (ids == "").any():
        raise UserError(
            f"{path}: gene number {int(np.argmax(ids == ''))} has no name; name genes by Ensembl "
            "id in the index of var"
        )
    if len(ids) and (ids == np.arange(len(ids)).astype(str)).all():
        raise UserError(
            f"{path}: genes have no names, only the numbers 0 to {len(ids) - 1}; put their Ensembl "
            "ids into the index of var, or name the column that has them (embed --genes; genes: in "
            "corpus.local)"
        )


def organism_of(gene: str) -> str:
    """The organism of an Ensembl id: its prefix where it is a third one; ``other`` of other ids."""
    found = OF_ORGANISM.fullmatch(gene)
    return ORGANISMS.get(found[1], f"{found[1]}...") if found else "other"


def has_ids(values: Iterable[object]) -> bool:
    """Whether most of a column's values are Ensembl ids, with or without version."""
    found = [is_id(value) for value in values]
    return sum(found) > len(found) / 2


def is_id(value: object) -> bool:
    """Whether a value is an Ensembl id, with or without version."""
    return isinstance(value, str) and OF_ORGANISM.match(value) is not None


def column_of_ids(var: Any, kept: NDArray[np.bool_], path: Path) -> str:
    """The column of ``var`` that has Ensembl ids where its index has none, as scanpy's 10x.

    ``kept`` says which features are genes.  The log names the column.

    Returns:
        Its name; empty for the index: where that has ids, no column does, several do, or the one
        that does has none for some features.
    """
    if has_ids(column(var, str(var.attrs["_index"]))[kept]):
        return ""
    found: dict[str, bool] = {}
    for name in map(str, var.attrs["column-order"]):
        with suppress(OSError):  # a column that nobody asked for may be damaged
            values = column(var, name)
            if has_ids(values[kept]):
                found[name] = bool((values != "").all())
    named = " and ".join(f"var[{name!r}]" for name in found)
    if len(found) > 1:
        log(f"{path}: {named} have Ensembl ids, the index has not: give one of them as 'genes'")
    elif not all(found.values()):
        log(f"{path}: {named} has Ensembl ids, but is empty for some genes: the index is taken")
    elif found:
        log(f"{path}: genes by {named}, which has Ensembl ids; the index has not")
        return next(iter(found))
    return ""


def expression(var: Any, path: Path) -> NDArray[np.bool_]:
    """Which features are genes, where ``var`` says so as Cell Ranger does; what else is logged.

    CELLxGENE's ``feature_type`` has other words, biotypes as ``lncRNA``: all of those are genes.
    """
    for name in ("feature_types", "feature_type"):
        if name in var:
            types = column(var, name)
            words = [kind.lower() for kind in types]
            kept = np.isin(words, EXPRESSION)
            if not kept.any():
                kept = np.array([OTHERS.fullmatch(word) is None for word in words], dtype=bool)
            others = Counter(types[~kept].tolist())
            if others:
                named = ", ".join(f"{count} {kind!r}" for kind, count in sorted(others.items()))
                log(f"{path}: var[{name!r}]: left out what is no gene expression: {named}")
            return kept
    return np.ones(length(var), dtype=bool)


def comparable(genes: Sequence[str], known: Iterable[str]) -> set[str]:
    """The known genes that a file could share: of Ensembl ids, those of its organism."""
    [(organism, count)] = Counter(map(organism_of, genes)).most_common(1)
    if organism == "other" or count <= 0.9 * len(genes):
        return set(known)
    return {gene for gene in known if organism_of(gene) in (organism, "other")}


def check_alike(files: Mapping[Path, Sequence[str]]) -> None:
    """Refuse training files whose gene names do not match; each is compared with larger ones."""
    known: set[str] = set()
    for path, genes in sorted(files.items(), key=lambda item: -len(item[1])):
        if comparable(genes, known):
            check_shared(genes, known, path, "the larger files")
        else:
            log(f"{path}: {len(genes):,} genes, as {genes[0]!r}")
        known.update(genes)


def check_shared(genes: Sequence[str], known: Iterable[str], path: Path, other: str) -> None:
    """Log how many genes a file shares with others; warn if it is less than half.

    The share is of the smaller number of genes, so that a panel fits a whole transcriptome.
    """
    others = comparable(genes, known)
    unknown = [gene for gene in genes if gene not in others]
    shared = len(genes) - len(unknown)
    share = shared / max(1, min(len(genes), len(others)))
    said = f"{path}: {shared:,} of {len(genes):,} genes are in {other}"
    if share >= 0.5:
        log(said)
        return
    unlike = max(set(known).difference(genes), default="")
    said += (
        f" of {len(others):,} (here {unknown[0]!r}, there {unlike!r}); genes are named "
        "differently, of another organism, or only some are there, as the highly variable ones: "
        "keep all genes, name them by Ensembl id in all files, or say which column of var does "
        "('genes')"
    )
    if share < 0.1:
        raise UserError(said)
    log(f"warning: {said}")


def unique_genes(
    ids: Sequence[str] | NDArray[np.object_],
    names: Sequence[str] | NDArray[np.object_],
    kept: NDArray[np.bool_],
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Strip version suffixes, merge genes listed twice, leave spike-ins and viruses out.

    ``names`` are the symbols of the features, and ``kept`` says which of these are genes.

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
        if gene.startswith(FOREIGN) or not kept[index]:
            continue
        if gene not in position:
            position[gene] = len(position)
            kept_names.append(name or gene)
        columns[index] = position[gene]
    return list(position), kept_names, columns
