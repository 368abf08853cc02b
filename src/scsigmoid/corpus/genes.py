"""Genes of a file: unique ids without versions, without spike-ins and virus genes."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.hdf5 import Strings, check_column, column, length
from scsigmoid.errors import UserError
from scsigmoid.progress import log, warn

if TYPE_CHECKING:
    from scsigmoid.corpus.h5ad import Cells

VERSIONED = re.compile(r"\A(ENS[A-Z]*\d+)\.\d+\Z")
OF_ORGANISM = re.compile(r"(ENS[A-Z]*G)\d+")
ORGANISMS = {"ENSG": "Homo sapiens", "ENSMUSG": "Mus musculus"}
# Spike-ins, and genes of SARS-CoV-2 (ENSSASG...), which CELLxGENE files may list.
FOREIGN = ("ERCC-", "ENSSASG")
# Values of var['feature_types'], in lower case. Outer joins of files leave empty values.
EXPRESSION = ("gene expression", "gex", "rna", "")
OTHER_FEATURES = re.compile(
    r".* capture|custom|peaks?|adt|hto|atac|antibod(y|ies)|hashtags?|(surface )?prot(eins?)?"
)
CELLXGENE_BIOTYPES = {"gene", "spike-in", ""}
NAMED = 5  # examples in a message
# Shares of the compared ids that have the name of another gene. Between annotations of different
# years it is below 1 %. If ids and names are shifted against each other, it is almost 100 %.
FEW_CONTRADICTIONS, MANY_CONTRADICTIONS, COMPARED = 0.05, 0.5, 10


class Genes(NamedTuple):
    """The genes of a file."""

    ids: list[str]  # unique, without version
    names: list[str]  # symbol of each gene, or its id if the file has no symbol
    of_feature: NDArray[np.int64]  # position of each feature's gene in `ids`, -1 for non-genes
    column: str  # of `var`, with the ids; empty for its index
    changed: dict[str, int]  # number of features that are left out or merged, by kind


def read_genes(var: Any, path: Path, gene_column: str = "") -> Genes:
    """Read and check the genes of a file. Log the numbers of features left out and merged.

    ``gene_column`` is the column of ``var`` with the gene ids. Empty stands for the index, or for
    the only column with Ensembl ids if the index has none.
    """
    if gene_column:
        check_column(var, gene_column, path, "the genes")
    index = str(var.attrs["_index"])
    names = column(var, "feature_name" if "feature_name" in var else index)
    is_gene = find_genes(var, path)
    gene_column = gene_column or column_of_ids(var, is_gene, path)
    ids = column(var, gene_column or index)
    check_ids(ids, is_gene, gene_column, path)
    names_of: dict[str, str] = {}
    position: dict[str, int] = {}
    of_feature = np.full(len(ids), -1, dtype=np.int64)
    for feature, (identifier, name) in enumerate(zip(ids, names, strict=True)):
        gene = without_version(identifier)
        if is_gene[feature] and not gene.startswith(FOREIGN):
            of_feature[feature] = position.setdefault(gene, len(position))
            names_of.setdefault(gene, without_version(name) or gene)
    if not position:
        raise UserError(f"{path}: has no genes; leave the file out")
    used = int((of_feature >= 0).sum())
    left_out, merged = len(ids) - used, used - len(position)
    if left_out or merged:
        log(
            f"{path}: of {len(ids):,} features, {left_out:,} are left out (spike-ins, virus genes "
            f"or not genes) and {merged:,} merged (same gene id)"
        )
    changed = {"features left out": left_out, "features merged": merged}
    return Genes([*names_of], [*names_of.values()], of_feature, gene_column, changed)


def check_ids(ids: Strings, is_gene: NDArray[np.bool_], gene_column: str, path: Path) -> None:
    """Raise an error for missing or mostly repeated ids. Warn of genes without Ensembl ids."""
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
    of_genes = ids[is_gene].tolist()
    times = Counter(of_genes)
    if 2 * len(times) < len(of_genes):
        [(most, _)] = times.most_common(1)
        where = f"var[{gene_column!r}]" if gene_column else "the index of var"
        raise UserError(
            f"{path}: {where} has only {len(times):,} different values for {len(of_genes):,} genes "
            f"(mostly {most!r}); choose a column with gene ids or names ('genes')"
        )
    others = [gene for gene in times if not is_id(gene) and not gene.startswith(FOREIGN)]
    if others and has_ids(of_genes):
        examples = ", ".join(others[:NAMED]) + ", ..." * (len(others) > NAMED)
        warn(
            f"{path}: {len(others):,} of {len(of_genes):,} genes have no Ensembl id "
            f"({examples}); if they are proteins, say so in var['feature_types'] or remove them"
        )


def organism_of(gene: str) -> str:
    """Return the organism of an Ensembl id, its prefix if unknown, or ``other`` for other ids."""
    match = OF_ORGANISM.fullmatch(gene)
    return ORGANISMS.get(match[1], f"{match[1]}...") if match else "other"


def organisms_of(genes: Sequence[str]) -> list[str]:
    """Return each organism that has at least a tenth of the genes, without ``other``."""
    counts = Counter(map(organism_of, genes))
    return sorted(o for o, count in counts.items() if 10 * count >= len(genes) and o != "other")


def has_ids(values: Sequence[str] | Strings) -> bool:
    """Return whether most values are Ensembl ids, with or without version."""
    return 2 * sum(map(is_id, values)) > len(values)


def is_id(value: object) -> bool:
    """Return whether a value is an Ensembl id, with or without version."""
    return isinstance(value, str) and OF_ORGANISM.match(value) is not None


def column_of_ids(var: Any, is_gene: NDArray[np.bool_], path: Path) -> str:
    """Find the column of ``var`` with Ensembl ids if the index has none, as in scanpy's 10x files.

    Returns:
        The column, which is logged. Empty (for the index) if the index has ids, or unless exactly
        one column has an id for every feature.
    """
    if has_ids(column(var, str(var.attrs["_index"]))[is_gene]):
        return ""
    is_complete: dict[str, bool] = {}
    for name in map(str, var.attrs["column-order"]):
        with suppress(OSError, UserError):  # a damaged column that is not needed
            values = column(var, name)
            if has_ids(values[is_gene]):
                is_complete[name] = bool((values != "").all())
    columns = " and ".join(f"var[{name!r}]" for name in is_complete)
    if len(is_complete) == 1 and all(is_complete.values()):
        log(f"{path}: genes by {columns}, which has Ensembl ids; the index does not")
        return next(iter(is_complete))
    if is_complete:
        log(
            f"{path}: {columns}: several columns with Ensembl ids, or with gaps; set 'genes' to one"
        )
    return ""


def find_genes(var: Any, path: Path) -> NDArray[np.bool_]:
    """Return which features are genes, and log the numbers of the others.

    In CELLxGENE files ``feature_biotype`` decides. Otherwise ``feature_types`` does, as Cell Ranger
    and muon write it: a feature is a gene unless its word names another kind of feature.
    """
    if "feature_biotype" in var:
        biotypes = column(var, "feature_biotype")
        if set(biotypes) <= CELLXGENE_BIOTYPES:
            return np.asarray(biotypes != "spike-in", dtype=bool)
    for name in ("feature_types", "feature_type"):
        if name not in var:
            continue
        types = column(var, name)
        words = [word.strip().lower() for word in types]
        is_gene = np.array([OTHER_FEATURES.fullmatch(word) is None for word in words], dtype=bool)
        if not is_gene.all():
            others = format_words(types[~is_gene])
            log(f"{path}: var[{name!r}]: features that are not genes are left out: {others}")
        unknown = is_gene & ~np.isin(words, EXPRESSION)
        if unknown.any() and {*words} & {*EXPRESSION[:-1]}:
            warn(
                f"{path}: var[{name!r}]: unknown words are taken as gene expression: "
                f"{format_words(types[unknown])}"
            )
        return is_gene
    return np.ones(length(var), dtype=bool)


def format_words(words: Strings) -> str:
    """Return the different words with their numbers, for a message."""
    return ", ".join(f"{count} {word!r}" for word, count in sorted(Counter(words).items()))


def find_comparable(genes: Sequence[str], known: Iterable[str]) -> set[str]:
    """Return the known genes that a file may have.

    If most genes of the file are Ensembl ids of one organism, these are the genes of the organism.
    """
    [(organism, count)] = Counter(map(organism_of, genes)).most_common(1)
    if organism == "other" or count <= 0.9 * len(genes):
        return set(known)
    return {gene for gene in known if organism_of(gene) in (organism, "other")}


def check_alike(local_files: Mapping[Path, "Cells"]) -> None:
    """Compare the genes of each file with larger files, and names also with GENCODE.

    Raises:
        UserError: if a file shares hardly any genes, or many genes have the name of another gene.
    """
    human = {gene: name for _, gene, name in real_genes()}
    known: dict[str, str] = {}
    larger: list[Path] = []
    for path, cells in sorted(local_files.items(), key=lambda item: -len(item[1].genes)):
        check_names(cells, human, path, "GENCODE")
        if comparable := find_comparable(cells.genes, known):
            other = next(p for p in larger if not comparable.isdisjoint(local_files[p].genes))
            check_shared(
                cells, known, path, f"{other} and other files" if larger[1:] else f"{other}"
            )
        else:
            log(f"{path}: {len(cells.genes):,} genes, such as {cells.genes[0]!r}")
        pairs = zip(cells.genes, cells.names, strict=True)
        known |= {gene: name for gene, name in pairs if gene not in known or name != gene}
        larger.append(path)


def check_shared(cells: "Cells", known: Mapping[str, str], path: Path, other: str) -> None:
    """Compare the genes of a file, and their names, with known names of genes by id.

    If less than half of the genes are shared, this is a warning, below a tenth an error. The share
    is of the smaller number of genes, so that a panel matches a whole transcriptome. ``other``
    names the known genes in messages.
    """
    others = find_comparable(cells.genes, known)
    is_known = np.array([gene in others for gene in cells.genes])[cells.gene_of_feature]
    shared = int(is_known.sum())
    share = shared / max(1, min(len(is_known), len(others)))
    summary = f"{path}: {shared:,} of {len(is_known):,} genes are"
    if share >= 0.5:
        log(f"{summary} in {other}")
    else:
        here = next(gene for gene in cells.genes if gene not in others)
        there = max(others - {*cells.genes}, default="")
        message = (
            f"{summary} among the {len(others):,} genes of {other} (only here: {here!r}, only "
            f"there: {there!r}); keep all genes, not only the highly variable ones, name them by "
            "Ensembl id, or say which column of var has the ids ('genes'); another organism's "
            "genes cannot be compared"
        )
        if share < 0.1:
            raise UserError(message)
        warn(message)
    check_names(cells, known, path, other)


def check_names(cells: "Cells", known: Mapping[str, str], path: Path, other: str) -> None:
    """Compare the pairs of ids and names in a file with known pairs.

    A pair counts as a contradiction if both are known, but of different genes, as after a shift of
    one column. Renamed genes and names of several genes are not counted. Some contradictions are
    a warning, many an error.
    """
    ids_of: dict[str, set[str]] = {}
    for gene, name in known.items():
        ids_of.setdefault(normalize(name), set()).add(gene)
    times = Counter(cells.names)
    compared = [
        (gene, name, gene in ids_of[normalize(name)])
        for gene, name in zip(cells.genes, cells.names, strict=True)
        if gene not in (name, known.get(gene, gene))
        and times[name] == 1
        and normalize(name) in ids_of
    ]
    wrong = [(gene, name) for gene, name, is_equal in compared if not is_equal]
    if len(compared) < COMPARED or len(wrong) <= FEW_CONTRADICTIONS * len(compared):
        return
    gene, name = wrong[0]
    message = (
        f"{path}: {len(wrong):,} of {len(compared):,} genes have the id of one gene and the name "
        f"of another: {gene} is {name!r} here, {known[gene]!r} in {other}; correct the ids, or "
        "choose another column of var ('genes')"
    )
    if len(wrong) > MANY_CONTRADICTIONS * len(compared):
        raise UserError(message)
    warn(message)


def normalize(name: str) -> str:
    """Return a gene name without case, and with dots instead of hyphens, as R writes it."""
    return name.casefold().replace("-", ".")


def real_genes() -> list[tuple[str, str, str]]:
    """Return 760 human genes: symbol in scanpy's pbmc68k_reduced, Ensembl id, GENCODE v44 name."""
    rows = read_table("pbmc68k_genes.csv")
    return [(row["symbol"], row["gene_id"], row["feature_name"]) for row in rows]


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file of this package, without comments (``#``)."""
    text = files("scsigmoid.corpus").joinpath(name).read_text(encoding="utf-8")
    return [*csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))]


def without_version(identifier: str) -> str:
    """Return an Ensembl id without its version, and other text unchanged."""
    return VERSIONED.sub(r"\1", identifier)
