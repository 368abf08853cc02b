"""Find training cells with the same counts as held-out cells or as other training cells.

Counts are compared as tokenization reads them. Cell names, the order of genes, the storage format
and genes without counts do not matter. Cells of two files with different genes are compared by the
genes that both files have. One pass over the files computes 64-bit hashes of each cell: one over
all genes of its file, and one for each other set of genes among the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from scsigmoid.corpus.counts import Cells

FEWEST_GENES = 10  # cells that express fewer genes are often equal by chance
# Limits of the number of groups of gene sets. Each cell has a hash of 8 bytes for each group.
FEWEST_GROUPS, MOST_GROUPS = 8, 32
HASH_BYTES = 1 << 30  # for the hashes of all cells, if there are more than FEWEST_GROUPS groups

Hashes = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class SharedGenes:
    """The genes by which the cells of files are compared.

    Files with the same genes have the same gene set. A group is one gene set, or several similar
    ones if there are many. The shared genes of two groups are the genes that all their files have.
    """

    columns: dict[str, int]  # position in `cores` of each gene of any file
    cores: Flags  # groups x genes: whether all files of the group have the gene
    gene_sets: NDArray[np.int64]  # number of the gene set of each file
    groups: NDArray[np.int64]  # number of the group of each file

    @property
    def n_gene_sets(self) -> int:
        return len(np.unique(self.gene_sets))

    def of_file(self, file: int, genes: Sequence[str]) -> Flags:
        """Return which genes of a file its group shares with each group (genes x groups).

        ``file`` is the number of the file, and ``genes`` are its genes. The result is false for
        groups that need no comparison by shared genes: groups with fewer than ``FEWEST_GENES``
        shared genes, and the group of the file, unless it has several gene sets.
        """
        group = self.groups[file]
        is_shared = self.cores & self.cores[group]
        is_shared[is_shared.sum(axis=1) < FEWEST_GENES] = False
        if len(np.unique(self.gene_sets[self.groups == group])) == 1:
            is_shared[group] = False
        return is_shared[:, [self.columns[gene] for gene in genes]].T


@dataclass(frozen=True)
class HashedFile:
    """Hashes of the counts of all cells of a file, and the rows of the cells in each role.

    Arrays of hashes and flags have an item for each row of the file up to the last selected cell.
    """

    hashes: Hashes  # over all genes of the file; 0 for a cell without counts
    # Groups x rows: over the genes shared with each group, 0 if under FEWEST_GENES are expressed.
    shared_hashes: Hashes
    is_comparable: Flags  # whether a cell expresses at least FEWEST_GENES genes
    training: Rows
    held_out: Rows


@dataclass(frozen=True)
class Excluded:
    """Training cells of a file that are not trained on, and cells that could not be compared."""

    rows: Rows  # in the file, ascending
    # Numbers of these cells with the counts of a held-out cell ("held_out"), and with the counts of
    # another training cell ("repeated").
    excluded: dict[str, int]
    # Numbers of training cells that express too few of the genes that their file shares with a
    # file with "held_out" cells, or with another file with "training" cells.
    not_compared: dict[str, int]


def find_shared_genes(genes_of_files: Sequence[Sequence[str]], n_cells: int) -> SharedGenes:
    """Find the genes by which the cells of each pair of files are compared.

    ``n_cells`` is the number of cells of all files. It limits the number of groups, and so the
    memory of the hashes.
    """
    columns = {gene: column for column, gene in enumerate(dict.fromkeys(chain(*genes_of_files)))}
    has_gene = np.zeros((len(genes_of_files), len(columns)), dtype=bool)
    for row, genes in zip(has_gene, genes_of_files, strict=True):
        row[[columns[gene] for gene in genes]] = True
    gene_sets, gene_set_of_file = np.unique(has_gene, axis=0, return_inverse=True)
    gene_set_of_file = gene_set_of_file.ravel()  # numpy 2.0.0: column
    most_groups = min(max(FEWEST_GROUPS, HASH_BYTES // (8 * max(1, n_cells))), MOST_GROUPS)
    group_of_set = np.arange(len(gene_sets))
    if len(gene_sets) > most_groups:
        from scipy.cluster.hierarchy import fcluster, linkage
        from scipy.spatial.distance import pdist

        # Complete linkage: all gene sets of a group are similar.
        tree = linkage(pdist(gene_sets, "jaccard"), "complete")
        group_of_set = fcluster(tree, most_groups, "maxclust") - 1
    groups = range(group_of_set.max() + 1)
    cores = np.array([gene_sets[group_of_set == group].all(axis=0) for group in groups])
    return SharedGenes(columns, cores, gene_set_of_file, group_of_set[gene_set_of_file])


def hash_cells(cells: Cells, is_shared: Flags, training: Rows, held_out: Rows) -> HashedFile:
    """Hash the counts of all cells of a file, in bounded memory.

    The hash of a cell is the sum over its genes of a hash of gene and count, so the order of the
    genes does not matter. ``is_shared`` (genes x groups) is the result of
    :meth:`SharedGenes.of_file`.
    """
    from pandas.util import hash_array

    gene_hashes = hash_array(np.array(cells.genes, dtype=object))
    size = int(cells.rows[-1]) + 1
    hashes = np.zeros(size, dtype=np.uint64)
    shared_hashes = np.zeros((is_shared.shape[1], size), dtype=np.uint64)
    is_comparable = np.zeros(size, dtype=bool)
    groups = np.flatnonzero(is_shared.any(axis=0))
    # Genes x columns: all genes, then the genes shared with each group.
    is_hashed = np.insert(is_shared[:, groups], 0, True, axis=1)
    for chunk in cells.chunks():
        indptr, gene, counts = chunk.counts.indptr, chunk.counts.indices, chunk.counts.data
        entry_hashes = hash_array(gene_hashes[gene] + hash_array(counts.astype(np.uint64)))
        # Sums of uint64 are modulo 2^64.
        sums = csr_matrix((entry_hashes, gene, indptr), chunk.counts.shape) @ is_hashed.astype("u8")
        hashes[chunk.rows] = sums[:, 0]
        is_comparable[chunk.rows] = np.diff(indptr) >= FEWEST_GENES
        if len(groups):
            ones = np.ones(len(gene), dtype=np.float32)
            expressed = csr_matrix((ones, gene, indptr), chunk.counts.shape) @ is_hashed
            sums[expressed < FEWEST_GENES] = 0
            shared_hashes[np.ix_(groups, chunk.rows)] = sums[:, 1:].T
    return HashedFile(hashes, shared_hashes, is_comparable, training, held_out)


def exclude_repeated(files: Sequence[HashedFile], shared: SharedGenes) -> list[Excluded]:
    """Return the training cells of each file that must not be trained on.

    A training cell is excluded if a held-out cell has the same counts. If the files of the cells
    have different genes, equal counts of the shared genes are enough. Of several training cells
    with the same counts, the first is kept.
    """
    # Arrays over the training cells of all files.
    hashes = np.concatenate([file.hashes[file.training] for file in files])
    is_comparable = np.concatenate([file.is_comparable[file.training] for file in files])
    held_out_hashes = np.concatenate([file.hashes[file.held_out] for file in files])
    # The default `kind` overflows with uint64 in numpy 2.0.
    equals_held_out = (hashes != 0) & np.isin(hashes, held_out_hashes, kind="sort")
    # Cells with few genes are often equal by chance, so none is excluded as repeated.
    candidates = np.flatnonzero(is_comparable)
    _, first_occurrences = np.unique(hashes[candidates], return_index=True)
    is_repeated = np.zeros(len(hashes), dtype=bool)
    is_repeated[np.delete(candidates, first_occurrences)] = True
    # Cells that express too few of the genes shared with other held-out or training cells.
    blind_to_held_out, blind_to_training = np.zeros((2, len(hashes)), dtype=bool)

    sizes = [len(file.training) for file in files]
    group_of_cell = np.repeat(shared.groups, sizes)
    for pair in combinations_with_replacement(range(len(shared.cores)), 2):
        members = np.flatnonzero(np.isin(shared.groups, pair)).tolist()
        # Cells with different labels are compared: by the genes that two groups share, or within a
        # group by the genes that all its gene sets have.
        labels = (shared.gene_sets if pair[0] == pair[1] else shared.groups)[members]
        if len(np.unique(labels)) == 1:
            continue
        # Of each file, the hashes over the genes shared with the other group of the pair.
        values = [files[i].shared_hashes[sum(pair) - shared.groups[i]] for i in members]
        training = Labeled.of(values, [files[i].training for i in members], labels)
        held_out = Labeled.of(values, [files[i].held_out for i in members], labels)
        cells = np.flatnonzero(np.isin(group_of_cell, pair))
        equals_held_out[cells] |= training.occur_in(held_out)
        is_repeated[cells] |= training.repeat_first()
        is_blind = (training.hashes == 0) & (hashes[cells] != 0)
        blind_to_held_out[cells] |= is_blind & training.have_other_labels(held_out)
        blind_to_training[cells] |= is_blind & training.have_other_labels(training)
    is_repeated &= ~equals_held_out

    flags = np.array([equals_held_out, is_repeated, blind_to_held_out, blind_to_training])
    ends = np.cumsum(sizes)[:-1]
    result = []
    for file, of_file in zip(files, np.split(flags, ends, axis=1), strict=True):
        held_out, repeated, *blind = of_file.sum(axis=1).tolist()
        excluded = {"held_out": held_out, "repeated": repeated}
        not_compared = dict(zip(("held_out", "training"), blind, strict=True))
        rows = file.training[of_file[:2].any(axis=0)]
        result.append(Excluded(rows, excluded, not_compared))
    return result


@dataclass(frozen=True)
class Labeled:
    """Hashes over shared genes, 0 if not comparable, and the label of the gene set of each cell."""

    hashes: Hashes
    labels: NDArray[np.int64]

    @classmethod
    def of(
        cls, values: Sequence[Hashes], rows: Sequence[Rows], labels: NDArray[np.int64]
    ) -> "Labeled":
        """Collect hashes of the given rows of files. ``labels`` has the label of each file."""
        hashes = [of_file[selected] for of_file, selected in zip(values, rows, strict=True)]
        return cls(np.concatenate(hashes), np.repeat(labels, list(map(len, rows))))

    def occur_in(self, other: "Labeled") -> Flags:
        """Return which cells have the hash of a cell of ``other`` with another label."""
        import pandas as pd

        labels = pd.Series(other.labels).groupby(other.hashes).agg(["min", "max"])
        labels = labels.reindex(self.hashes)  # NaN if `other` lacks the hash
        is_other = labels.notna() & labels.ne(self.labels, axis=0)
        return (self.hashes != 0) & is_other.any(axis=1).to_numpy()

    def repeat_first(self) -> Flags:
        """Return which cells have the hash of an earlier cell, if the first has another label."""
        _, first, inverse = np.unique(self.hashes, return_index=True, return_inverse=True)
        return (self.hashes != 0) & (self.labels[first[inverse]] != self.labels)

    def have_other_labels(self, other: "Labeled") -> Flags:
        """Return for which cells ``other`` has cells with another label."""
        present = np.unique(other.labels)
        return len(present) - np.isin(self.labels, present).astype(int) > 0
