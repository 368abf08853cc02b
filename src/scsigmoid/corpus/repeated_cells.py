"""Find training cells with the same counts as held-out cells or as other training cells.

Counts are compared as tokenization reads them. Cell names, the order of genes, the storage format
and genes without counts do not matter. One pass over the files computes two 64-bit hashes of each
cell: one over all genes of its file, and one over the genes that all files have.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.h5ad import Cells

FEWEST_GENES = 10  # cells that express fewer genes are often equal by chance

Hashes = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class HashedFile:
    """Hashes of the counts of all cells of a file, and the rows of the cells in each role.

    Arrays of hashes and flags have an item for each row of the file up to the last selected cell.
    """

    hashes: Hashes  # over all genes of the file; 0 for a cell without counts
    shared_hashes: Hashes  # over genes that all files have; 0 if under FEWEST_GENES are expressed
    is_comparable: Flags  # whether a cell expresses at least FEWEST_GENES genes
    gene_set_hash: int  # over the gene ids of the file
    training: Rows
    held_out: Rows


@dataclass(frozen=True)
class Excluded:
    """Training cells of a file that are not trained on."""

    rows: Rows  # in the file, ascending
    n_held_out: int  # number of these cells that have the counts of a held-out cell
    n_repeated: int  # number of these cells that have the counts of another training cell


def hash_cells(cells: Cells, shared_genes: set[str], training: Rows, held_out: Rows) -> HashedFile:
    """Hash the counts of all cells of a file, in bounded memory.

    The hash of a cell is the sum over its genes of a hash of gene and count, so the order of the
    genes does not matter. ``shared_genes`` are the genes that all files have.
    """
    digests = (hashlib.blake2b(gene.encode(), digest_size=8).digest() for gene in cells.genes)
    gene_hashes = np.frombuffer(b"".join(digests), dtype="<u8")
    is_shared = np.array([gene in shared_genes for gene in cells.genes], dtype=bool)
    size = int(cells.rows[-1]) + 1
    hashes, shared_hashes = np.zeros((2, size), dtype=np.uint64)
    is_comparable = np.zeros(size, dtype=bool)
    for chunk in cells.chunks():
        # `gene`, `counts`, `entry_hashes` and `has_shared_gene` have an item for each stored entry.
        indptr, gene, counts = chunk.counts.indptr, chunk.counts.indices, chunk.counts.data
        entry_hashes = scramble(gene_hashes[gene] + scramble(counts.astype(np.uint64)))
        has_shared_gene = is_shared[gene]
        shared_sums = sum_by_cell(entry_hashes * has_shared_gene, indptr)
        shared_sums[sum_by_cell(has_shared_gene, indptr) < FEWEST_GENES] = 0
        hashes[chunk.rows] = sum_by_cell(entry_hashes, indptr)
        shared_hashes[chunk.rows] = shared_sums
        is_comparable[chunk.rows] = np.diff(indptr) >= FEWEST_GENES
    gene_set_hash = int(gene_hashes.sum())
    return HashedFile(hashes, shared_hashes, is_comparable, gene_set_hash, training, held_out)


def scramble(values: Hashes) -> Hashes:
    """Map each 64-bit value to a random-looking value (the output function of SplitMix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def sum_by_cell(values: Hashes | Flags, indptr: NDArray[np.int32]) -> Hashes:
    """Sum the values of each cell's stored entries, modulo 2^64."""
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values, dtype=np.uint64, out=sums[1:])
    return sums[indptr[1:]] - sums[indptr[:-1]]


def exclude_repeated(files: Sequence[HashedFile]) -> list[Excluded]:
    """Return the training cells of each file that must not be trained on.

    A training cell is excluded if a held-out cell has the same counts. If the files of the cells
    have different genes, equal counts of the genes that all files have are enough. Of several
    training cells with the same counts, the first is kept.
    """
    # Arrays over the training cells of all files.
    hashes = np.concatenate([file.hashes[file.training] for file in files])
    is_comparable = np.concatenate([file.is_comparable[file.training] for file in files])
    held_out_hashes = np.concatenate([file.hashes[file.held_out] for file in files])
    # The default `kind` overflows with uint64 in numpy 2.0.
    equals_held_out = (hashes != 0) & np.isin(hashes, held_out_hashes, kind="sort")
    equals_held_out |= occur_in_other_files(files)
    # Cells with few genes are often equal by chance, so none is excluded as repeated.
    candidates = np.flatnonzero(is_comparable & ~equals_held_out)
    _, first_occurrences = np.unique(hashes[candidates], return_index=True)
    is_repeated = np.zeros(len(hashes), dtype=bool)
    is_repeated[np.delete(candidates, first_occurrences)] = True

    ends = np.cumsum([len(file.training) for file in files])[:-1]
    flags = zip(files, np.split(equals_held_out, ends), np.split(is_repeated, ends), strict=True)
    return [
        Excluded(file.training[held_out | repeated], int(held_out.sum()), int(repeated.sum()))
        for file, held_out, repeated in flags
    ]


def occur_in_other_files(files: Sequence[HashedFile]) -> Flags:
    """Return which training cells have the counts of a held-out cell of a file with other genes.

    Only counts of the genes that all files have are compared.
    """
    flags = []
    for file in files:
        training = file.shared_hashes[file.training]
        others = [other for other in files if other.gene_set_hash != file.gene_set_hash]
        held_out = [other.shared_hashes[other.held_out] for other in others]
        # `concatenate` needs at least one array, so add an empty array.
        is_equal = np.isin(training, np.concatenate([*held_out, training[:0]]), kind="sort")
        flags.append((training != 0) & is_equal)
    return np.concatenate(flags)
