"""The vocabulary: the genes that are tokens, with the median of their counts.

The genes are read from a list, or selected from the gene statistics of the training cells
(:mod:`scsigmoid.tokens.statistics`).
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scsigmoid.config.schema import VocabularyChoice
from scsigmoid.corpus.genes import organism_of, without_version
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, parsing
from scsigmoid.progress import log

if TYPE_CHECKING:
    from scsigmoid.tokens.statistics import GeneStatistics

SPECIAL = ("<pad>", "<mask>", "<cls>", "<unk>")  # tokens 0 to 3, which are not genes
PAD, MASK, CLS, UNKNOWN = range(len(SPECIAL))

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
    """Tokens and their genes. A token is an index into each tuple and array.

    The four special tokens come first, then genes sorted by id. Tokens are therefore independent of
    the order of files.
    """

    gene_ids: tuple[str, ...]  # gene ids, or the names of special tokens
    names: tuple[str, ...]  # gene symbols
    cells: NDArray[np.int64]  # number of training cells that express a gene, 0 for special tokens
    # Median, over the cells that express the gene, of count / cell total * TARGET_SUM. 1.0 for
    # special tokens and for genes that no training cell expresses.
    medians: NDArray[np.float64]
    # Maps other ids of a gene (from other Ensembl releases) to the gene's id in `gene_ids`.
    retired: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of tokens, including special tokens."""
        return len(self.gene_ids)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the content, in hexadecimal."""
        digest = hashlib.sha256()
        columns = (self.gene_ids, self.names, self.cells, self.medians)
        for gene, name, cells, median in zip(*columns, strict=True):
            digest.update(f"{gene}\t{name}\t{cells}\t{float(median).hex()}\n".encode())
        for other, gene in self.retired.items():
            digest.update(f"{other}\t{gene}\n".encode())
        return digest.hexdigest()

    @cached_property
    def token_of(self) -> dict[str, int]:
        """Tokens by gene id, without special tokens."""
        return {gene: token for token, gene in enumerate(self.gene_ids) if token >= len(SPECIAL)}

    @property
    def name_of(self) -> dict[str, str]:
        """Gene names by gene id, without special tokens."""
        return {gene: self.names[token] for gene, token in self.token_of.items()}

    def starts_with(self, other: "Vocabulary") -> bool:
        """Return whether the first tokens are the tokens of another vocabulary, with its medians.

        Cells then have the same ranks in both, apart from the genes that the other does not have.
        """
        size = other.size
        has_medians = np.array_equal(self.medians[:size], other.medians)
        return self.gene_ids[:size] == other.gene_ids and has_medians

    def tokens(self, genes: Iterable[str]) -> NDArray[np.int64]:
        """Return the tokens of gene ids, and -1 for genes outside the vocabulary."""
        return np.array([self.token_of.get(gene, -1) for gene in genes], dtype=np.int64)

    def write(
        self, path: str | Path, organisms: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Write a Parquet file. Its metadata include ``organisms`` (:func:`count_genes`)."""
        metadata = {"fingerprint": self.fingerprint, "organisms": json.dumps(organisms or {})}
        if self.retired:
            metadata["retired"] = json.dumps(self.retired)
        columns = [range(self.size), self.gene_ids, self.names, self.cells, self.medians]
        table = pa.table(columns, schema=SCHEMA.with_metadata(metadata))
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)

    @staticmethod
    def read(path: str | Path) -> "Vocabulary":
        """Read a vocabulary. Raise an error if the file is damaged or not a vocabulary."""
        if not Path(path).is_file():
            raise UserError(f"{path}: no such vocabulary; give the file tokens/vocabulary.parquet")
        with parsing(path, "a vocabulary"):
            table = pq.read_table(path)
            if not table.schema.equals(SCHEMA):
                raise ValueError("its columns differ")
            metadata = table.schema.metadata or {}
            vocabulary = Vocabulary(
                tuple(table["gene_id"].to_pylist()),
                tuple(table["name"].to_pylist()),
                table["cells"].to_numpy(),
                table["median"].to_numpy(),
                json.loads(metadata.get(b"retired", b"{}")),
            )
            stored = metadata.get(b"fingerprint", b"").decode()
            if stored != vocabulary.fingerprint or vocabulary.gene_ids[: len(SPECIAL)] != SPECIAL:
                raise ValueError("its fingerprint or its special tokens differ")
        return vocabulary


# All genes that enough training cells express.
EXPRESSED = VocabularyChoice(genes=None, sizes=None)


def build_vocabulary(
    statistics: Iterable[str | Path],
    minimum_cells: int,
    output: str | Path,
    choice: VocabularyChoice = EXPRESSED,
    initial: Vocabulary | None = None,
) -> None:
    """Write the vocabulary as Parquet, and log the share of non-zero counts without a token.

    Args:
        statistics: files of :func:`scsigmoid.tokens.statistics.gather`, in any order.
        minimum_cells: minimum number of training cells that express a gene (at least 1).
        output: Parquet file to write.
        choice: a list of genes, used instead of ``minimum_cells``, or the maximum number of genes
            of each organism (default: neither).
        initial: vocabulary of the model that training starts from. Its genes come first, in its
            order and with its medians. Genes of the training cells that it has under another id or
            name get its id. Chosen genes that it lacks are appended.

    Raises:
        UserError: if the vocabulary would have no gene that a training cell expresses, or if the
            training cells have no gene of ``initial``.
    """
    listed = [] if choice.genes is None else read_gene_list(choice.genes)
    # Training imports this module without the packages that statistics need.
    from scsigmoid.tokens.statistics import merge, merge_by_name, read_statistics

    all_parts = reduce(merge, map(read_statistics, statistics))
    preferred = {*listed, *(initial.token_of if initial else ())}
    merged, retired = merge_by_name(all_parts, preferred)
    if initial:
        merged, retired = with_initial_ids(merged, retired, initial)
    if retired:
        log(f"vocabulary: {len(retired):,} ids are merged with another id of the same gene name")
    # By gene id, how many training cells express the gene.
    cells_of_gene = dict(zip(merged.genes, merged.cells.tolist(), strict=True))
    if not any(cells_of_gene.values()):
        raise UserError(
            "corpus: no training cell has counts and enough genes; lower tokens.minimum_genes, or "
            "choose other files"
        )
    if choice.genes is None:
        genes = select_genes(merged, minimum_cells, choice)
    else:
        # Listed ids are preferred, so the id that replaces a listed id is in the list, too.
        genes = [gene for gene in listed if gene not in retired]
    if not genes and not initial:
        raise UserError("tokens.vocabulary.sizes: no gene is left; set larger numbers")
    if genes and not any(cells_of_gene.get(gene) for gene in genes):  # only possible with a list
        raise UserError(
            f"{choice.genes}: no training cell expresses a gene of the list (the list contains "
            f"{genes[0]!r}, the training files {merged.genes[0]!r}); use the gene ids of the "
            "training files"
        )
    medians = np.nan_to_num(merged.medians(), nan=1.0)  # 1.0 for genes that are not expressed
    median_of_gene = dict(zip(merged.genes, medians.tolist(), strict=True))
    names = merged.names
    if initial:
        genes = initial_first(genes, initial, cells_of_gene)
        median_of_gene |= dict(zip(initial.gene_ids, initial.medians.tolist(), strict=True))
        names = names | initial.name_of
        retired = {**retired, **initial.retired}
    organisms = count_genes(cells_of_gene, genes)
    log_organisms(organisms)
    gene_ids = (*SPECIAL, *genes)
    with_token = set(genes)
    Vocabulary(
        gene_ids=gene_ids,
        names=tuple(names.get(gene, gene) for gene in gene_ids),
        cells=np.array([cells_of_gene.get(gene, 0) for gene in gene_ids], dtype=np.int64),
        medians=np.array([median_of_gene.get(gene, 1.0) for gene in gene_ids]),
        retired={other: gene for other, gene in retired.items() if gene in with_token},
    ).write(output, organisms)


def with_initial_ids(
    statistics: "GeneStatistics", retired: Mapping[str, str], initial: Vocabulary
) -> tuple["GeneStatistics", dict[str, str]]:
    """Give the genes of the training cells the ids of an initial model, found by id or by name.

    ``retired`` maps ids of the files to ids of ``statistics``. Return the new statistics, and the
    mapping from ids of the files to the new ids.
    """
    # As for `build_vocabulary`: these modules need more packages than training.
    from scsigmoid.tokens.known_genes import known_ids
    from scsigmoid.tokens.statistics import sum_rows

    genes = [initial.retired.get(gene, gene) for gene in statistics.names]
    ids = known_ids(genes, [*statistics.names.values()], initial.name_of, "training cells")
    id_of = dict(zip(statistics.names, ids, strict=True))
    names = dict(sorted((id_of[gene], name) for gene, name in statistics.names.items()))
    histogram = sum_rows(statistics, names, id_of)
    mapping = id_of | {other: id_of[gene] for other, gene in retired.items()}
    return dataclasses.replace(statistics, names=names, histogram=histogram), {
        other: gene
        for other, gene in sorted(mapping.items())
        if other != gene and other not in initial.token_of
    }


def initial_first(
    genes: Sequence[str], initial: Vocabulary, cells_of_gene: Mapping[str, int]
) -> list[str]:
    """Return the genes of an initial model, then the chosen ``genes`` that it lacks."""
    added = [gene for gene in genes if gene not in initial.token_of]
    expressed = sum(cells_of_gene.get(gene, 0) > 0 for gene in initial.token_of)
    log(
        f"vocabulary: {len(initial.token_of):,} genes of the initial model, {expressed:,} of "
        f"which training cells express; {len(added):,} genes that it lacks are added"
    )
    return [*initial.token_of, *added]


def count_genes(cells_of_gene: dict[str, int], genes: Iterable[str]) -> dict[str, dict[str, int]]:
    """Count genes and non-zero counts by organism. The argument ``genes`` has the ids with a token.

    Return, for each organism, ``tokens`` (number of genes with a token), ``genes`` (number of genes
    that training cells express), ``counts`` (number of non-zero counts in all training cells) and
    ``outside`` (number of non-zero counts of genes without a token).
    """
    organisms: dict[str, dict[str, int]] = {}
    with_token = set(genes)
    expressed = {gene for gene, cells in cells_of_gene.items() if cells}
    for gene in sorted(with_token | expressed):
        # The number of cells that express a gene is the number of its non-zero counts.
        cells = cells_of_gene.get(gene, 0)
        zeros = {"tokens": 0, "genes": 0, "counts": 0, "outside": 0}
        summary = organisms.setdefault(organism_of(gene), zeros)
        summary["tokens"] += gene in with_token
        summary["genes"] += cells > 0
        summary["counts"] += cells
        summary["outside"] += 0 if gene in with_token else cells
    return organisms


def log_organisms(organisms: Mapping[str, Mapping[str, int]]) -> None:
    """Log the numbers of :func:`count_genes`."""
    for organism, summary in organisms.items():
        outside = summary["outside"] / max(summary["counts"], 1)
        log(
            f"vocabulary: {organism}: {summary['tokens']:,} genes have a token; training cells "
            f"express {summary['genes']:,} genes; {outside * 100:.3f} % of the non-zero counts are "
            "of genes without a token"
        )


def read_gene_list(path: str | Path) -> list[str]:
    """Read a text file with one gene id per line. Return sorted, unique ids without versions.

    Text after the id, separated by a comma or white space, is ignored. Empty lines, comments
    (``#``) and special tokens, such as ``<cls>``, are skipped.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UserError(
            f"tokens.vocabulary.genes: {path}: {reason}; give a text file with one gene id per line"
        ) from None
    ids = [words[0] for line in lines if (words := line.replace(",", " ").split())]
    genes = {without_version(gene) for gene in ids if not gene.startswith(("#", "<"))}
    if not genes:
        raise UserError(f"tokens.vocabulary.genes: {path}: contains no gene id; write one per line")
    return sorted(genes)


def select_genes(
    statistics: "GeneStatistics", minimum_cells: int, choice: VocabularyChoice
) -> list[str]:
    """Return the sorted ids of the genes that meet ``minimum_cells`` and ``choice``."""
    cells = statistics.cells
    is_kept = cells >= max(1, minimum_cells)
    if not is_kept.any():
        raise UserError(
            f"tokens.minimum_cells: no gene is expressed in {minimum_cells} training cells; "
            "set a smaller number"
        )
    organisms = np.array([organism_of(gene) for gene in statistics.genes])
    for organism, size in (choice.sizes or {}).items():
        candidates = np.flatnonzero(is_kept & (organisms == organism))
        # Drop all but the `size` genes with the most cells. Of ties, keep the first ids.
        order = np.argsort(-cells[candidates], kind="stable")
        is_kept[candidates[order[size:]]] = False
    return list(compress(statistics.genes, is_kept))
