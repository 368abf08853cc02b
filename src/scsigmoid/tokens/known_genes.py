"""The genes of a file that a vocabulary contains, found by id or by name."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from scsigmoid.corpus.counts import Cells
from scsigmoid.corpus.genes import has_ids, is_id, organism_of
from scsigmoid.errors import UserError, first_few
from scsigmoid.progress import log, warn

FEW_FOUND = 0.1  # share of the model's genes below which there is a warning


def with_known_genes(cells: Cells, name_of: Mapping[str, str], retired: Mapping[str, str]) -> Cells:
    """Replace gene names by the ids of a vocabulary (:func:`known_ids`).

    ``name_of`` and ``retired`` are attributes of the vocabulary.
    """
    cells = cells.with_ids(retired)
    ids = known_ids(cells.genes, cells.names, name_of, cells.title)
    return dataclasses.replace(cells, genes=ids)


def known_ids(
    genes: Sequence[str], symbols: Sequence[str], name_of: Mapping[str, str], title: str
) -> list[str]:
    """Return the vocabulary's id of each gene, or the gene itself if it has an id or is not found.

    A name is replaced only if exactly one gene of the file and one gene of the vocabulary have it.
    Names in R's spelling are replaced, too, such as ``HLA.A`` for ``HLA-A``. Log the shares of the
    model's and of the file's genes that are found. Warn if they are few.

    Args:
        genes, symbols: id and symbol of each gene of the file.
        name_of: symbol of each gene of the vocabulary, by id.
        title: name of the file in messages.

    Raises:
        UserError: if genes are of another organism (by id, or by the case of symbols), or if no
            gene of the file is in the vocabulary.
    """
    found_by_id = name_of.keys() & set(genes)
    organisms = {*map(organism_of, genes)} - {"other"}
    expected = {*map(organism_of, name_of)} - {"other"}
    if not found_by_id and organisms and expected and not organisms & expected:
        raise UserError(
            f"{title}: genes of another organism ({', '.join(sorted(organisms))} instead of "
            f"{', '.join(sorted(expected))}); map them to orthologs or use a model of that "
            "organism"
        )
    id_of = {name: gene_id for gene_id, name in name_of.items()}
    names = known_names(genes, symbols, found_by_id, id_of)  # "" for genes that keep their id
    # Number of genes of each name.
    counts_in_file = Counter(filter(None, names))
    counts_in_vocabulary = Counter(name_of.values())
    unique = {
        name
        for name, count in counts_in_file.items()
        # If the file also contains the gene's id, two genes of the file would get this id.
        if count == counts_in_vocabulary[name] == 1 and id_of[name] not in found_by_id
    }
    found = len(found_by_id) + len(unique)
    known, in_file = len(name_of), len(genes)
    shares = (
        f"{100 * found / known:.3g} % of the model's {known:,} genes, "
        f"{100 * found / in_file:.3g} % of the file's {in_file:,}"
    )
    by_id = sum(map(is_id, found_by_id))  # without names that are the ids of the vocabulary
    log(f"{title}: {by_id:,} genes found by id, {found - by_id:,} by name: {shares}")
    if ambiguous := sorted(counts_in_file.keys() - unique):
        log(
            f"{title}: {len(ambiguous)} names belong to several genes, in the file or in the "
            f"vocabulary, and are left out ({first_few(ambiguous)})"
        )
    spellings = {name.casefold() for name in id_of}
    # By their ids, genes of a known organism are not of another one, even if the model lacks them.
    others = (
        s for gene, s in zip(genes, symbols, strict=True) if organism_of(gene) not in expected
    )
    other_case = [s for s in others if s not in id_of and s.casefold() in spellings]
    if len(other_case) > found:
        raise UserError(
            f"{title}: {len(other_case):,} gene symbols, such as {other_case[0]!r}, differ from "
            "the model's only in upper and lower case, as genes of another organism do; map them "
            "to orthologs or use a model of their organism"
        )
    if not found_by_id and not unique:
        last = [*name_of][-1]
        kind = "Ensembl id" if has_ids([*name_of]) else "symbol"
        raise UserError(
            f"{title}: no gene in common with the vocabulary, by id or by name (the file "
            f"has {genes[0]!r}, the vocabulary {last!r}, {name_of[last]!r}); "
            f"name genes by {kind}, as the vocabulary does, set 'genes' "
            f"to the column of var with the {kind}s, or use a model of their organism"
        )
    if found < FEW_FOUND * known:
        warn(
            f"{title}: only {found:,} genes were found, {shares}; an embedding of so few "
            "is not reliable: keep all genes of the cells, or train a model on these genes"
        )
    return [
        id_of[name] if name in unique else gene for gene, name in zip(genes, names, strict=True)
    ]


def known_names(
    genes: Sequence[str], symbols: Sequence[str], found_by_id: set[str], id_of: Mapping[str, str]
) -> list[str]:
    """Return the name of each gene of a file, as the vocabulary spells it.

    The name is "" if the gene is found by id, or if the vocabulary does not have the name. A gene
    with an Ensembl id is not the gene of the vocabulary that has the same name and another Ensembl
    id.

    Args:
        genes, symbols: id and symbol of each gene of the file.
        found_by_id: the genes of the file that are in the vocabulary.
        id_of: the ids of the vocabulary's genes by name.
    """
    # Names by spelling. A name's own spelling replaces the R spelling of another name.
    by_spelling = {name.replace("-", "."): name for name in id_of} | {name: name for name in id_of}
    known = []
    for gene, symbol in zip(genes, symbols, strict=True):
        # Without an id, the file's gene may itself be a name.
        name = by_spelling.get(gene) or by_spelling.get(symbol, "")
        has_other_id = name and is_id(gene) and is_id(id_of[name])
        known.append("" if gene in found_by_id or has_other_id else name)
    return known
