"""Writes large h5ad files piece by piece: the cells of a small one, many times over."""

from pathlib import Path
from typing import Any

import numpy as np

from scsigmoid.corpus.rows import FILES, ManifestRow, write_manifest

CHUNK = 1 << 16  # values of an HDF5 chunk
COLUMNS = 2000  # genes of a CSC matrix that are copied at a time


def read_cells(path: Path) -> Any:
    """The cells of a file as AnnData, raw counts (CSR of float32) in ``X``."""
    import anndata
    from scipy.sparse import csr_matrix

    adata = anndata.read_h5ad(path)
    counts, var = (adata.X, adata.var) if adata.raw is None else (adata.raw.X, adata.raw.var)
    return anndata.AnnData(X=csr_matrix(counts, dtype=np.float32), obs=adata.obs, var=var)


def simulated_cells(cells: int, median_genes: int, genes: int = 30_000) -> Any:
    """Cells of which only the lengths (log-normal, sigma 0.65) and the counts look real."""
    import anndata
    import pandas as pd
    from scipy.sparse import csr_matrix

    generator = np.random.default_rng(0)
    lengths = np.exp(generator.normal(np.log(median_genes), 0.65, cells)).astype(int)
    lengths = np.clip(lengths, 1, genes // 2)
    chosen = [np.sort(generator.choice(genes, n, replace=False)) for n in lengths]
    counts = generator.geometric(0.6, lengths.sum()).astype(np.float32)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical([f"type {cell % 12}" for cell in range(cells)]),
            "donor_id": pd.Categorical(["donor"] * cells),
            "is_primary_data": True,
        },
        index=[f"cell_{cell}" for cell in range(cells)],
    )
    return anndata.AnnData(
        X=csr_matrix((counts, np.concatenate(chosen), ends), shape=(cells, genes)),
        obs=obs,
        var=pd.DataFrame(index=[f"ENSG9{gene:010d}" for gene in range(genes)]),
    )


def copied(adata: Any, copies: int, storage: str, folder: Path) -> Path:
    """Write cells several times over into one file of a part.

    Args:
        adata: the cells, counts as CSR in ``X``.
        copies: how often.
        storage: ``csr`` or ``csc``; gzip, as CELLxGENE has it.
        folder: the part's folder.
    """
    import h5py
    from anndata.io import write_elem

    path = folder / "cells.h5ad"
    rows = np.tile(np.arange(adata.n_obs), copies)
    with h5py.File(path, "w") as file:
        write_elem(file, "obs", adata.obs.iloc[rows].set_axis([str(i) for i in range(len(rows))]))
        write_elem(file, "var", adata.var)
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["encoding-version"] = f"{storage}_matrix", "0.1.0"
        group.attrs["shape"] = np.array([len(rows), adata.n_vars])
        how = {"shape": (adata.X.nnz * copies,), "chunks": (min(CHUNK, adata.X.nnz),)}
        for name, dtype in (("data", "f4"), ("indices", "i4")):
            group.create_dataset(name, **how, dtype=dtype, compression="gzip", compression_opts=1)
        (write_rows if storage == "csr" else write_columns)(group, adata.X, copies)
    write_manifest(
        folder / FILES, [ManifestRow(file="cells", role="training", source="local", location="")]
    )
    return path


def write_rows(group: Any, counts: Any, copies: int) -> None:
    """A CSR matrix below itself, ``copies`` times."""
    for copy in range(copies):
        here = slice(copy * counts.nnz, (copy + 1) * counts.nnz)
        group["data"][here], group["indices"][here] = counts.data, counts.indices
    lengths = np.tile(np.diff(counts.indptr), copies).astype(np.int64)
    group["indptr"] = np.concatenate([[0], np.cumsum(lengths)])


def write_columns(group: Any, counts: Any, copies: int) -> None:
    """The same matrix by columns, some at a time."""
    from scipy.sparse import vstack

    lengths, done = [], 0
    columns = counts.tocsc()
    for first in range(0, counts.shape[1], COLUMNS):
        piece = vstack([columns[:, first : first + COLUMNS]] * copies, format="csc")
        here = slice(done, done + piece.nnz)
        group["data"][here], group["indices"][here] = piece.data, piece.indices
        lengths.append(np.diff(piece.indptr).astype(np.int64))
        done = here.stop
    group["indptr"] = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
