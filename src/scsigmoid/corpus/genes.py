"""Read the genes of a file, and compare their ids and names with other files."""

import csv
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError, first_few, format_names
from scsigmoid.progress import log, verbosity, warn

Strings = NDArray[np.object_]

VERSIONED = re.compile(r"\A(ENS[A-Z]*\d+)\.\d+\Z")
ENSEMBL_GENE = re.compile(r"(ENS[A-Z]*G)\d+")
ORGANISMS = {"ENSG": "Homo sapiens", "ENSMUSG": "Mus musculus"}
FOREIGN = ("ERCC-", "ENSSASG")  # prefixes of ids: spike-ins, and genes of SARS-CoV-2
# Columns of `var` with the kind of a feature, besides CELLxGENE's feature_biotype, in this order.
KINDS = ("feature_types", "feature_type")
# Names of columns of `var` with gene symbols, in lower case and by preference. All but the first,
# which is CELLxGENE's, are only used if the index has Ensembl ids.
SYMBOLS = (
    "feature_name", "gene_symbols", "gene_symbol", "symbol", "gene_name", "gene_names",
    "gene_short_name", "hgnc_symbol", "external_gene_name", "genesymbol",
)  # fmt: skip
# Values of var['feature_types'], in lower case: genes, and other features.
EXPRESSION = ("gene expression", "gex", "rna")
OTHER_FEATURES = re.compile(
    r".* capture|custom|peaks?|adt|hto|atac|antibod(y|ies)|hashtags?|(surface )?prot(eins?)?"
)
CELLXGENE_BIOTYPES = {"gene", "spike-in", ""}  # values of var['feature_biotype'] in CELLxGENE
# Shares of contradictions (see `check_names`) above which there is a warning or error. The share
# is below 1 % between annotations of different years, and almost 100 % if ids are shifted by a row.
FEW_CONTRADICTIONS, MANY_CONTRADICTIONS = 0.05, 0.5
FEWEST_COMPARED = 10  # names of fewer genes are not checked


class Frame(Protocol):
    """``obs``, ``var`` or ``raw.var``, in a file or in memory. Its length is the number of rows."""

    name: str
    columns: list[str]

    def __len__(self) -> int: ...

    def __contains__(self, column: str) -> bool: ...

    def is_text(self, column: str) -> bool:
        """Return whether a column can be read and is not an array of numbers."""

    def read(self, column: str = "") -> Strings:
        """Return a column, by default the index, as text, with ``""`` for missing values.

        Raise a UserError if the values cannot be read as text.
        """


def check_column(frame: Frame, column: str, title: str, purpose: str) -> None:
    """Raise an error if ``obs`` or ``var`` lacks a column, and suggest columns of similar names.

    ``title`` names the file in the error, and ``purpose`` states what the column is for.
    """
    if column not in frame:
        raise UserError(
            f"{title}: {frame.name} has no column {column!r} for {purpose}; its columns: "
            f"{format_names(column, frame.columns)}"
        )


@dataclass(frozen=True)
class Genes:
    """The genes of a file. A feature is a row of ``var``, and several can be the same gene."""

    genes: list[str]  # unique ids without version, without spike-ins and viruses
    names: list[str]  # symbol of each gene, or its id if the file has no symbol
    gene_of_feature: NDArray[np.int64]  # index in `genes` of each feature, -1 if it is left out
    gene_column: str  # column of `var` with the ids; empty for the index
    removed: dict[str, int]  # features left out and merged; open_cells adds spots

    def with_ids(self, id_of: Mapping[str, str]) -> Self:
        """Replace gene ids, or symbols in place of ids. Counts of genes with one id are added."""
        import pandas as pd

        if id_of.keys().isdisjoint(self.genes):
            return self
        ids = pd.Series([id_of.get(gene, gene) for gene in self.genes])
        new_index, genes = pd.factorize(ids)  # index of each id in the unique ids `genes`
        names = pd.Series(self.names)[~ids.duplicated()].tolist()
        is_used = self.gene_of_feature >= 0
        gene_of_feature = np.where(is_used, new_index[self.gene_of_feature], -1)
        return replace(self, genes=genes.tolist(), names=names, gene_of_feature=gene_of_feature)


AnyGenes = TypeVar("AnyGenes", bound=Genes)


def read_genes(
    var: Frame, title: str, gene_column: str = "", fallback: Frame | None = None
) -> Genes:
    """Read and check the genes of a file. Log the numbers of features left out and merged.

    Args:
        var: ``var`` or ``raw.var``.
        title: name of the file in messages.
        gene_column: column of ``var`` with the gene ids. Empty stands for the index, or for the
            only column with Ensembl ids if the index has none.
        fallback: data frame for symbols, Ensembl ids or the column ``gene_column`` that ``var``
            lacks (:func:`take_missing`).
    """
    own_column, other_column = gene_column, ""
    if gene_column and gene_column not in var and fallback is not None and gene_column in fallback:
        own_column, other_column = "", gene_column
    if own_column:
        check_column(var, own_column, title, "the genes")
    is_gene, is_unknown = are_genes(var, title)
    names = var.read(column_of_names(var, is_gene, title))
    id_column = own_column or column_of_ids(var, is_gene, title)
    ids = var.read(id_column)
    if fallback is not None and (other_column or np.array_equal(names, ids)):
        new_ids, names = take_missing(ids, names, fallback, title, other_column)
        ids = ids if own_column else new_ids
    if is_unknown.any():
        is_gene &= ~find_others(var, ids, is_unknown, title)
    gene_column = gene_column or id_column
    check_ids(ids, is_gene, gene_column, title)
    name_of: dict[str, str] = {}
    index_of: dict[str, int] = {}  # position of each gene in both dicts
    gene_of_feature = np.full(len(ids), -1, dtype=np.int64)
    for feature, (identifier, name) in enumerate(zip(ids, names, strict=True)):
        gene = without_version(identifier)
        if is_gene[feature] and not gene.startswith(FOREIGN):
            gene_of_feature[feature] = index_of.setdefault(gene, len(index_of))
            name_of.setdefault(gene, without_version(name) or gene)
    if not name_of:
        raise UserError(f"{title}: has no genes; leave the file out")
    used = int((gene_of_feature >= 0).sum())
    left_out, merged = len(ids) - used, used - len(name_of)
    if left_out or merged:
        log(
            f"{title}: of {len(ids):,} features, {left_out:,} are left out (spike-ins, virus genes "
            f"or not genes) and {merged:,} merged (same gene id)"
        )
    removed = {"features left out": left_out, "features merged": merged}
    return Genes(list(name_of), list(name_of.values()), gene_of_feature, gene_column, removed)


def take_missing(
    ids: Strings, names: Strings, fallback: Frame, title: str, gene_column: str
) -> tuple[Strings, Strings]:
    """Complete the ids and names of features with those in another data frame, and return them.

    Features are matched by the index of ``fallback``, or by its ids or symbols if more of these are
    equal. Values that are not unique do not match.

    Args:
        ids: index of each feature, which is its id unless ``fallback`` has an Ensembl id.
        names: symbol of each feature, or its index.
        fallback: the other data frame.
        title: name of the file in messages.
        gene_column: column of ``fallback`` with the gene ids. Empty stands for Ensembl ids, which
            are taken if most features get one.

    Raises:
        UserError: if a feature has no match, but ``gene_column`` is given.
    """
    is_gene = np.ones(len(fallback), dtype=bool)
    try:
        with verbosity(False):  # the columns may not be needed
            id_column = gene_column or column_of_ids(fallback, is_gene, title)
            name_column = column_of_names(fallback, is_gene, title)
        columns = ("", id_column, name_column)
        keys, other_ids, other_names = map(fallback.read, columns)
    except (KeyError, OSError, UserError):  # a damaged column that is not needed
        if gene_column:
            raise
        return ids, names
    features = [*map(without_version, ids)]
    rows: Sequence[int] = range(len(features))
    if features != [*map(without_version, keys)]:
        candidates = ([*map(without_version, x)] for x in (keys, other_ids, other_names))
        matched = max(candidates, key=lambda values: len({*values} & {*features}))
        row_of = {value: row for row, value in enumerate(matched)}
        times, own_times = Counter(matched), Counter(features)
        rows = [row_of[x] if times[x] == own_times[x] == 1 else -1 for x in features]
    if gene_column and -1 in rows:
        raise UserError(
            f"{title}: raw.var has no column {gene_column!r} for the genes, and var, which has it, "
            f"lacks features of raw.var ({first_few(ids[np.equal(rows, -1)])}); add the column to "
            "raw.var"
        )
    # The added element is for features without match, whose row is -1.
    new_names = np.array([*other_names, ""], dtype=object)[rows]
    new_ids = np.array([*other_ids, ""], dtype=object)[rows]
    new_names = np.where(new_names == "", names, new_names)
    if not gene_column:
        new_ids = np.where(new_ids == "", ids, new_ids)
        # Most features must get an id: a few ids among symbols would not help.
        new_ids = ids if has_ids(ids) or not has_ids(new_ids) else new_ids
    if not (np.array_equal(new_ids, ids) and np.array_equal(new_names, names)):
        id_source, name_source = (repr(name) if name else "its index" for name in columns[1:])
        log(
            f"{title}: gene ids or symbols that raw.var lacks are taken from var (ids from "
            f"{id_source}, symbols from {name_source})"
        )
    return new_ids, new_names


def check_ids(ids: Strings, is_gene: NDArray[np.bool_], gene_column: str, title: str) -> None:
    """Raise an error if an id is missing, if all ids are row numbers, or if most are repeated.

    If most genes have Ensembl ids, warn about the other genes.
    """
    if (ids == "").any():
        raise UserError(
            f"{title}: gene number {int(np.argmax(ids == ''))} has no name; add its Ensembl id"
        )
    if len(ids) and (ids == np.arange(len(ids)).astype(str)).all():
        raise UserError(
            f"{title}: genes have no names, only the numbers 0 to {len(ids) - 1}; put Ensembl ids "
            "into the index of var, or set 'genes' to their column"
        )
    gene_ids = ids[is_gene].tolist()
    times = Counter(gene_ids)
    if 2 * len(times) < len(gene_ids):
        [(most_frequent, _)] = times.most_common(1)
        where = f"var[{gene_column!r}]" if gene_column else "the index of var"
        raise UserError(
            f"{title}: {where} has only {len(times):,} different values for {len(gene_ids):,} "
            f"genes (mostly {most_frequent!r}); set 'genes' to a column with gene ids or names"
        )
    without_id = [gene for gene in times if not is_id(gene) and not gene.startswith(FOREIGN)]
    if without_id and has_ids(gene_ids):
        warn(
            f"{title}: {len(without_id):,} of {len(gene_ids):,} genes have no Ensembl id "
            f"({first_few(without_id)}); if they are proteins, say so in var['feature_types'] or "
            "remove them"
        )


def organism_of(gene: str) -> str:
    """Return the organism that an Ensembl id of a gene states, or ``other`` for other text."""
    match = ENSEMBL_GENE.fullmatch(gene)
    return ORGANISMS.get(match[1], f"{match[1]}...") if match else "other"


def organisms_of(genes: Sequence[str]) -> list[str]:
    """Return each organism that has at least a tenth of the genes, without ``other``."""
    counts = Counter(map(organism_of, genes))
    del counts["other"]
    return sorted(organism for organism, count in counts.items() if 10 * count >= len(genes))


def has_ids(values: Sequence[str] | Strings) -> bool:
    """Return whether most values are Ensembl ids, with or without version."""
    return 2 * sum(map(is_id, values)) > len(values)


def is_id(value: object) -> bool:
    """Return whether a value is an Ensembl id, with or without version."""
    return isinstance(value, str) and ENSEMBL_GENE.match(value) is not None


def column_of_names(var: Frame, is_gene: NDArray[np.bool_], title: str) -> str:
    """Return the column with gene symbols, or "" for the index."""
    if SYMBOLS[0] in var:
        return SYMBOLS[0]
    if not has_ids(var.read()[is_gene]):
        return ""
    columns = {
        name.casefold(): name
        for name in var.columns
        if name.casefold() in SYMBOLS and not has_ids(var.read(name)[is_gene])
    }
    names = [columns[name] for name in SYMBOLS if name in columns]
    if len(names) > 1:
        others = " and ".join(f"var[{name!r}]" for name in names[1:])
        log(f"{title}: gene symbols are read from var[{names[0]!r}], not from {others}")
    return next(iter(names), "")


def column_of_ids(var: Frame, is_gene: NDArray[np.bool_], title: str) -> str:
    """Return the only complete column with Ensembl ids, as in scanpy's 10x files.

    Return "" for the index if the index has Ensembl ids, or if there is not exactly one column.
    """
    if has_ids(var.read()[is_gene]):
        return ""
    is_complete: dict[str, bool] = {}  # for each column with Ensembl ids: no value is missing
    for name in var.columns:
        with suppress(OSError, UserError):  # a damaged column that is not needed
            values = var.read(name)
            if has_ids(values[is_gene]):
                is_complete[name] = bool((values != "").all())
    columns = " and ".join(f"var[{name!r}]" for name in is_complete)
    if len(is_complete) == 1 and all(is_complete.values()):
        log(f"{title}: genes by {columns}, which has Ensembl ids; the index does not")
        return next(iter(is_complete))
    if is_complete:
        log(
            f"{title}: {columns}: several columns with Ensembl ids, or missing values, so genes "
            "are named by the index; set 'genes' to the column with the gene ids"
        )
    return ""


def are_genes(var: Frame, title: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which features may be genes, and which of them have an unknown kind.

    CELLxGENE files state the kind of a feature in ``feature_biotype``, Cell Ranger and muon in
    ``feature_types``. Log the numbers of other features by ``feature_types``.
    """
    nothing = np.zeros(len(var), dtype=bool)
    if "feature_biotype" in var:
        biotypes = var.read("feature_biotype")
        if set(biotypes) <= CELLXGENE_BIOTYPES:
            return np.asarray(biotypes != "spike-in", dtype=bool), nothing
    name = next((name for name in KINDS if name in var), None)
    if name is None:
        return ~nothing, nothing
    types = var.read(name)
    kinds = [re.sub("[_-]", " ", kind).strip().lower() for kind in types]
    is_gene = np.array([OTHER_FEATURES.fullmatch(kind) is None for kind in kinds], dtype=bool)
    if not is_gene.all():
        others = format_words(types[~is_gene])
        log(f"{title}: var[{name!r}]: features that are not genes are left out: {others}")
    # Outer joins of files leave empty values. A column without any value of EXPRESSION has another
    # meaning, so its values are not unknown kinds.
    has_kinds = not {*kinds}.isdisjoint(EXPRESSION)
    return is_gene, is_gene & ~np.isin(kinds, (*EXPRESSION, "")) & has_kinds


def find_others(
    var: Frame, ids: Strings, is_unknown: NDArray[np.bool_], title: str
) -> NDArray[np.bool_]:
    """Return the features of an unknown kind that have no Ensembl id. Warn about unknown kinds."""
    has_id = np.array([*map(is_id, ids)], dtype=bool)
    name = next(name for name in KINDS if name in var)
    types = var.read(name)
    for is_part, decision in (
        (is_unknown & has_id, "taken for gene expression"),
        (is_unknown & ~has_id, "left out, because the features have no Ensembl id"),
    ):
        if is_part.any():
            words = format_words(types[is_part])
            warn(f"{title}: var[{name!r}]: unknown values are {decision}: {words}")
    return is_unknown & ~has_id


def format_words(words: Strings) -> str:
    """Return how often each word occurs, for a message."""
    return ", ".join(f"{count} {word!r}" for word, count in sorted(Counter(words).items()))


def find_comparable(genes: Sequence[str], known: Iterable[str]) -> set[str]:
    """Return the known genes with which the genes of a file can be compared.

    If over 90 % of the file's genes belong to one organism, known genes of other organisms are left
    out. Known genes without Ensembl id remain.
    """
    [(organism, count)] = Counter(map(organism_of, genes)).most_common(1)
    if organism == "other" or count <= 0.9 * len(genes):
        return set(known)
    return {gene for gene in known if organism_of(gene) in (organism, "other")}


def ambiguous_names(file: Genes) -> set[str]:
    """Return the names in a file that do not identify a gene of an organism.

    They are names of several genes of the organism, and, in a file with Ensembl ids, the names of
    features without an id, which may be proteins.
    """
    counts = Counter(zip(map(organism_of, file.genes), file.names, strict=True))
    organisms = Counter(name for _, name in counts)  # number of organisms by name
    no_id_is_suspect = has_ids(file.genes)
    return {
        name
        for (organism, name), count in counts.items()
        if count > 1 or (organism == "other" and (no_id_is_suspect or organisms[name] > 1))
    }


def group_by_name(
    names: Mapping[str, str], ambiguous: Container[str]
) -> dict[tuple[str, str], list[str]]:
    """Return the genes of each organism and name, from names by gene, without ambiguous names.

    A gene without Ensembl id belongs to the organism in which genes with ids have its name. If
    there is not exactly one such organism, its organism is ``other``.
    """
    organisms: dict[str, set[str]] = {}  # by name
    for gene, name in names.items():
        organisms.setdefault(name, set()).add(organism_of(gene))
    groups: dict[tuple[str, str], list[str]] = {}
    for gene, name in names.items():
        if name not in ambiguous:
            organism, known = organism_of(gene), organisms[name] - {"other"}
            if organism == "other" and len(known) == 1:
                [organism] = known
            groups.setdefault((organism, name), []).append(gene)
    return groups


def with_shared_ids(local_files: Mapping[Path, AnyGenes]) -> dict[Path, AnyGenes]:
    """Replace symbols in place of ids by the Ensembl ids that other files have for these symbols.

    Files with symbols can then be compared with files that have both Ensembl ids and symbols.
    """
    names: dict[str, str] = {}
    for file in local_files.values():
        pairs = zip(file.genes, file.names, strict=True)
        names |= {gene: name for gene, name in pairs if gene not in names or name != gene}
    ambiguous = set().union(*map(ambiguous_names, local_files.values()))
    id_of: dict[str, str] = {}
    for genes in group_by_name(names, ambiguous).values():
        if ids := [gene for gene in genes if is_id(gene)]:
            id_of |= {gene: max(ids) for gene in genes if not is_id(gene)}
    return {path: file.with_ids(id_of) for path, file in local_files.items()}


def compare_genes(local_files: Mapping[Path, Genes]) -> None:
    """Compare the genes of each file with the files that have more genes, and with GENCODE."""
    human = {gene["gene_id"]: gene["feature_name"] for gene in real_genes()}  # 760 genes of GENCODE
    known: dict[str, str] = {}
    larger: list[Path] = []
    has_symbols = False  # whether a larger file has mostly symbols
    for path, file in sorted(local_files.items(), key=lambda item: -len(item[1].genes)):
        check_names(file, human, str(path), "GENCODE")
        comparable = find_comparable(file.genes, known)
        # In files with Ensembl ids, a few genes without an id are no reason to compare organisms.
        if has_symbols or any(map(is_id, comparable)):
            example = next(other for other in larger if comparable & {*local_files[other].genes})
            others = f"{example} and other files" if len(larger) > 1 else f"{example}"
            check_shared(file, known, str(path), others)
        else:
            log(f"{path}: {len(file.genes):,} genes, such as {file.genes[0]!r}")
        pairs = zip(file.genes, file.names, strict=True)
        # A name that equals the id means that the file has no symbol. Then keep a known symbol.
        known |= {gene: name for gene, name in pairs if gene not in known or name != gene}
        larger.append(path)
        has_symbols = has_symbols or not has_ids(file.genes)


def check_shared(file: Genes, known: Mapping[str, str], title: str, other: str) -> None:
    """Compare the genes of a file, and their names, with known genes (names by id).

    Warn if less than half of the genes are shared. Raise an error if less than a tenth is shared.
    The share is relative to the smaller number of genes, so that a panel matches a whole
    transcriptome. ``other`` names the source of the known genes in messages.
    """
    comparable = find_comparable(file.genes, known)
    is_known_gene = np.array([gene in comparable for gene in file.genes])
    # Count features, because many features with one wrong id would count as one gene.
    is_known = is_known_gene[file.gene_of_feature[file.gene_of_feature >= 0]]
    shared = int(is_known.sum())
    share = shared / max(1, min(len(is_known), len(comparable)))
    summary = f"{title}: {shared:,} of {len(is_known):,} genes are"
    if share >= 0.5:
        log(f"{summary} in {other}")
    else:
        # If some names differ only in upper and lower case, the examples are such a pair.
        absent = {normalize(gene): gene for gene in sorted(comparable - {*file.genes})}
        names = [gene for gene in file.genes if gene not in comparable]
        only_here = max(names, key=lambda gene: normalize(gene) in absent)
        only_there = absent.get(normalize(only_here), max(absent.values(), default=""))
        kind = "Ensembl id" if has_ids([*comparable]) else "symbol"
        message = (
            f"{summary} among the {len(comparable):,} genes of {other} (only here: {only_here!r}, "
            f"only there: {only_there!r}); keep all genes, not only the highly variable "
            f"ones, name them by {kind}, or set 'genes' to the column of var with the {kind}s; "
            "genes of another organism cannot be compared"
        )
        if share < 0.1:
            raise UserError(message)
        warn(message)
    check_names(file, known, title, other)


def check_names(file: Genes, known: Mapping[str, str], title: str, other: str) -> None:
    """Compare the ids and names of genes in a file with known ids and names.

    A gene is a contradiction if its id and its name are both known, but belong to different genes.
    New names, and names of several genes, are not compared. Warn if there are some contradictions.
    Raise an error if there are many.
    """
    ids_of: dict[str, set[str]] = {}
    for gene, name in known.items():
        ids_of.setdefault(normalize(name), set()).add(gene)
    times = Counter(file.names)
    compared = [
        (gene, name)
        for gene, name in zip(file.genes, file.names, strict=True)
        if name != gene  # the file has a symbol
        and known.get(gene, gene) != gene  # the id is known, with a symbol
        and times[name] == 1
        and normalize(name) in ids_of
    ]
    wrong = [(gene, name) for gene, name in compared if gene not in ids_of[normalize(name)]]
    if len(compared) < FEWEST_COMPARED or len(wrong) <= FEW_CONTRADICTIONS * len(compared):
        return
    gene, name = wrong[0]
    message = (
        f"{title}: {len(wrong):,} of {len(compared):,} genes have the id of one gene and the name "
        f"of another: {gene} is {name!r} here, {known[gene]!r} in {other}; correct the ids, or "
        "set 'genes' to another column of var"
    )
    if len(wrong) > MANY_CONTRADICTIONS * len(compared):
        raise UserError(message)
    warn(message)


def normalize(name: str) -> str:
    """Return a gene name in lower case and with dots for hyphens, because R replaces hyphens."""
    return name.casefold().replace("-", ".")


def real_genes() -> list[dict[str, str]]:
    """Return the genes in scanpy's pbmc68k_reduced that have an Ensembl id (760 of 765).

    A gene has ``symbol`` (in this dataset), ``gene_id`` and ``feature_name`` (in GENCODE v44).
    """
    return read_table("pbmc68k_genes.csv")


@cache
def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file of this package, without comments (``#``)."""
    text = files("scsigmoid.corpus").joinpath(name).read_text(encoding="utf-8")
    return [*csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))]


def without_version(identifier: str) -> str:
    """Return an Ensembl id without its version, and other text in one line."""
    # Models have one gene per line. Earlier models have names with other white space.
    text = " ".join(identifier.split()) if "\n" in identifier else identifier
    return VERSIONED.sub(r"\1", text)
