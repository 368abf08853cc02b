"""The vocabulary: which genes have tokens, and their medians.

The genes are those of a list, or those that a rule finds in the gene statistics.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scsigmoid.config.schema import VocabularyChoice
from scsigmoid.config.validate import nearest
from scsigmoid.corpus.genes import VERSIONED, organism_of
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, parsing
from scsigmoid.progress import log

if TYPE_CHECKING:
    from scsigmoid.tokens.statistics import GeneStatistics

PAD, MASK, CLS, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<mask>", "<cls>", "<unk>")

GENE_ID = re.compile(r'gene_id "([^".]+)')
BIOTYPE = re.compile(r'gene_(?:bio)?type "([^"]+)"')  # GENCODE and Ensembl name it differently

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
    """

    gene_ids: tuple[str, ...]  # of each token; of a special one, its name
    names: tuple[str, ...]  # symbols
    cells: NDArray[np.int64]  # training cells that express each gene; 0 for special tokens
    # Median of count / cell total * target sum over the cells that express the gene; 1.0 for
    # special tokens.
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
        return {gene: token for token, gene in enumerate(self.gene_ids) if token >= len(SPECIAL)}

    @property
    def name_of(self) -> dict[str, str]:
        """Names of the genes by id."""
        pairs = zip(self.gene_ids, self.names, strict=True)
        return dict(list(pairs)[len(SPECIAL) :])

    def tokens(self, genes: Iterable[str]) -> NDArray[np.int64]:
        """Tokens of gene ids; -1 for genes outside the vocabulary."""
        token_of = self.token_of
        return np.array([token_of.get(gene, -1) for gene in genes], dtype=np.int64)

    def write(
        self, path: str | Path, organisms: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Write Parquet; its metadata has the fingerprint and :func:`by_organism`'s counts."""
        metadata = {"fingerprint": self.fingerprint, "organisms": json.dumps(organisms or {})}
        columns = [range(self.size), self.gene_ids, self.names, self.cells, self.medians]
        table = pa.table(columns, schema=SCHEMA.with_metadata(metadata))
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)

    @staticmethod
    def read(path: str | Path) -> "Vocabulary":
        """Read a vocabulary.

        Raises:
            UserError: if the file is missing, damaged or no vocabulary.
        """
        if not Path(path).is_file():
            raise UserError(f"{path}: no such vocabulary; give the file tokens/vocabulary.parquet")
        with parsing(path, "a vocabulary"):
            table = pq.read_table(path)
            if not table.schema.equals(SCHEMA):
                raise ValueError("other columns")
            vocabulary = Vocabulary(
                tuple(table["gene_id"].to_pylist()),
                tuple(table["name"].to_pylist()),
                table["cells"].to_numpy(),
                table["median"].to_numpy(),
            )
            stored = (table.schema.metadata or {}).get(b"fingerprint", b"").decode()
            if stored != vocabulary.fingerprint or vocabulary.gene_ids[: len(SPECIAL)] != SPECIAL:
                raise ValueError("its content differs from its fingerprint")
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
    from scsigmoid.tokens.statistics import merge, read_statistics

    merged = merge(map(read_statistics, statistics))
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
    """What has a token and what has none; ``expressed`` are the training cells of each gene.

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


def listed(path: str | Path) -> list[str]:
    """The gene ids of a list, each once and without version, sorted.

    One id stands on a line, what follows a comma or white space is not read; empty lines, comments
    (``#``) and special tokens (``<cls>``) are skipped.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise UserError(f"tokens.vocabulary.genes: {path}: no file; correct the path")
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(
            f"tokens.vocabulary.genes: {path}: {error.strerror}; correct the path"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file; write one gene id a line") from None
    ids = [words[0] for line in lines if (words := line.replace(",", " ").split())]
    genes = {
        found[1] if (found := VERSIONED.fullmatch(gene)) else gene
        for gene in ids
        if not gene.startswith(("#", "<"))
    }
    if not genes:
        raise UserError(f"{path}: lists no gene; write one gene id a line")
    return sorted(genes)


def ruled(found: "GeneStatistics", minimum_cells: int, choice: VocabularyChoice) -> list[str]:
    """The genes that the rule chooses, sorted."""
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
        # those in most cells come first, of equal ones the first by id
        kept[places[np.argsort(-cells[places], kind="stable")][size:]] = False
    return [found.genes[place] for place in np.flatnonzero(kept)]


def biotypes_of(paths: Sequence[str | Path]) -> dict[str, str]:
    """The biotype of each gene of annotations in GTF, also compressed by gzip."""
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
