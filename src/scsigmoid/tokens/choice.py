"""Which genes have tokens: those of a list, or those that a rule finds in the gene statistics."""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scsigmoid.config.schema import VocabularyChoice
from scsigmoid.config.validate import nearest
from scsigmoid.corpus.genes import VERSIONED, organism_of
from scsigmoid.errors import UserError
from scsigmoid.progress import log
from scsigmoid.tokens.statistics import GeneStatistics

GENE_ID = re.compile(r'gene_id "([^".]+)')
BIOTYPE = re.compile(r'gene_(?:bio)?type "([^"]+)"')  # GENCODE and Ensembl name it differently


def listed(path: str | Path) -> list[str]:
    """The gene ids of a list, each once and without version, sorted.

    One id stands on a line, what follows a comma or white space is not read; empty lines, comments
    (``#``) and special tokens (``<cls>``) are skipped.

    Raises:
        UserError: if the file is missing, is no text or lists no gene.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise UserError(f"tokens.vocabulary.genes: {path}: no file; correct the path")
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(
            f"tokens.vocabulary.genes: {path}: {error.strerror}; correct the path"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file; write one gene id a line") from None
    ids = [line.replace(",", " ").split()[0] for line in lines if line.strip(" ,\t")]
    genes = {
        found[1] if (found := VERSIONED.fullmatch(gene)) else gene
        for gene in ids
        if not gene.startswith(("#", "<"))
    }
    if not genes:
        raise UserError(f"{path}: lists no gene; write one gene id a line")
    return sorted(genes)


def ruled(found: GeneStatistics, minimum_cells: int, choice: VocabularyChoice) -> list[str]:
    """The genes that the rule chooses, sorted.

    Raises:
        UserError: if there is none, or an annotation does not fit.
    """
    cells = found.cells
    kept = cells >= max(1, minimum_cells)
    if not kept.any():
        raise UserError(
            f"tokens.minimum_cells: no gene is expressed in {minimum_cells} training cells; "
            "lower it"
        )
    if choice.biotypes is not None:
        biotypes = biotypes_of(choice.annotation)
        for name in choice.biotypes:
            if name not in biotypes.values():
                known = sorted(set(biotypes.values()))
                raise UserError(
                    f"tokens.vocabulary.biotypes: no gene of the annotation is {name!r}"
                    f"{nearest(name, known)}"
                )
        unknown = sum(gene not in biotypes for gene in np.array(found.genes)[kept].tolist())
        if unknown:
            log(f"vocabulary: {unknown:,} expressed genes are not in the annotation: left out")
        kept &= np.array([biotypes.get(gene) in choice.biotypes for gene in found.genes])
        if not kept.any():
            raise UserError(
                f"tokens.vocabulary.biotypes: no training cell expresses a gene that is "
                f"{' or '.join(choice.biotypes)} by the annotation; give that of the organisms"
            )
    organisms = np.array([organism_of(gene) for gene in found.genes])
    for organism, size in (choice.sizes or {}).items():
        places = np.flatnonzero(kept & (organisms == organism))
        kept[most_expressed(places, cells)[size:]] = False
    return [found.genes[place] for place in np.flatnonzero(kept)]


def most_expressed(places: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of genes, those of most cells first; of equal ones the first by id."""
    return places[np.argsort(-cells[places], kind="stable")]


def biotypes_of(paths: Sequence[str | Path]) -> dict[str, str]:
    """The biotype of each gene of annotations in GTF, also compressed by gzip.

    Raises:
        UserError: if a file is missing, damaged or names no gene's biotype.
    """
    biotypes: dict[str, str] = {}
    for path in map(Path, paths):
        before = len(biotypes)
        try:
            opened = gzip.open if path.suffix == ".gz" else open
            with opened(path, "rt", encoding="utf-8") as file:
                for line in file:
                    if "\tgene\t" in line:
                        gene, kind = GENE_ID.search(line), BIOTYPE.search(line)
                        if gene and kind:
                            biotypes[gene[1]] = kind[1]
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise UserError(
                f"tokens.vocabulary.annotation: {path}: cannot be read "
                f"({getattr(error, 'strerror', None) or 'damaged'}); download it again"
            ) from None
        if len(biotypes) == before:
            raise UserError(
                f"tokens.vocabulary.annotation: {path}: names no gene's gene_type; give an "
                "annotation in GTF, as GENCODE offers it"
            )
    return biotypes
