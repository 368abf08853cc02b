"""Reading h5ad files of every storage, compared with dense arrays, and refusing damaged ones."""

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
from stages import dense

from scsigmoid.corpus.cell_types import cell_types
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import held_out_text, select_role
from scsigmoid.errors import UserError

STORAGES = {
    "dense": lambda values: values.astype(np.float32),
    "csr": lambda values: sp.csr_matrix(values.astype(np.float32)),
    "csc": lambda values: sp.csc_matrix(values.astype(np.float32)),
    "int": lambda values: sp.csr_matrix(values.astype(np.int64)),
    "almost integers": lambda values: values.astype(np.float64) * (1 + 1e-9),
}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr("scsigmoid.corpus.counts.CHUNK_CELLS", 7)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("in_raw", [True, False])
def test_counts_are_found_and_read(storage, in_raw, counts, write_h5ad):
    counts[[4, 29], 1:] = 0
    stored, other = STORAGES[storage](counts), np.log1p(counts / 3).astype(np.float32)
    path = write_h5ad(other, raw=stored) if in_raw else write_h5ad(stored, raw=other)
    cells = open_cells(path)
    np.testing.assert_array_equal(dense(cells), counts)
    assert cells.n_cells == 30
    assert cells.genes[1] == "ENSG00000000001"
    assert cells.names == cells.genes
    assert cell_types(cells, "cell_type")[:3].tolist() == ["T cell", "B cell", "NK cell"]


def test_genes_are_cleaned(counts, write_h5ad):
    genes = [f"ENSG{index:011d}" for index in range(12)]
    genes[3], genes[7], genes[11] = "ENSG00000000003.14", "ENSG00000000003", "ERCC-00002"
    genes[2], genes[9] = "ENSSASG00005000004", "ENSMUSG00000000001"  # a virus; another organism
    path = write_h5ad(sp.csr_matrix(counts.astype(np.float32)), genes=genes)
    cells = open_cells(path)
    counts[:, 3] += counts[:, 7]
    kept = np.delete(np.arange(12), [2, 7, 11])
    np.testing.assert_array_equal(dense(cells), counts[:, kept])
    assert cells.genes == [genes[index].split(".")[0] for index in kept]


def test_training_and_held_out_cells_are_disjoint_and_complete(counts, write_h5ad):
    path = write_h5ad(counts)
    for held_out in ("fraction=0.2 seed=1", "cell_type=B cell", "all", ""):
        rows = []
        for role in ("training", "evaluation"):
            try:
                cells = select_role(open_cells(path), held_out, role)
                np.testing.assert_array_equal(dense(cells), counts[cells.rows])
                rows += cells.rows.tolist()
            except UserError as error:
                assert f"leaves no cell for {role}" in str(error)  # noqa: PT017
        assert sorted(rows) == list(range(30))
    held = select_role(open_cells(path), "cell_type=B cell", "evaluation")
    assert set(cell_types(held, "cell_type")) == {"B cell"}


def test_held_out_fractions(write_h5ad):
    cells = open_cells(write_h5ad(np.full((10_000, 1), 2)))
    for fraction, count in ((0.5, 5000), (0.00001, 1), (0.99999, 9999)):
        held = [
            select_role(cells, held_out_text(fraction, seed), "evaluation").rows
            for seed in (3, 3, 4)
        ]
        assert len(held[0]) == count
        assert held[0].tolist() == held[1].tolist() != held[2].tolist()
        assert fraction != 0.5 or abs(held[0].mean() - 5000) < 150


def test_absent_values_in_obs(counts, write_h5ad):
    obs = {"text": ["B cell", None], "flag": [True, False], "number": [1.0, np.nan]}
    columns = open_cells(write_h5ad(counts[:2], obs=obs)).obs([*obs, "nowhere"])
    assert [values[1] for values in columns.values()] == ["", "False", "", ""]


def test_held_out_column_or_value_missing(counts, write_h5ad):
    cells = open_cells(write_h5ad(counts))
    with pytest.raises(UserError, match="no column 'donor' for the held-out cells"):
        select_role(cells, "donor=A", "training")
    with pytest.raises(UserError, match="no cell has cell_type 'T'; its values: B cell, NK cell"):
        select_role(cells, "cell_type=T", "training")


def test_files_without_cells_or_names_of_genes(counts, write_h5ad):
    for cells, genes, message in (
        (30, [*"abcdef", "", *"ghijk"], "gene number 6 has no name"),
        (30, [*map(str, range(12))], "genes have no names, only the numbers 0 to 11"),
        (0, [*"abcdefghijkl"], "has no cells"),
        (30, [], "has no genes"),
    ):
        path = write_h5ad(counts[:cells, : len(genes)], genes=genes)
        with pytest.raises(UserError, match=message):
            open_cells(path)


@pytest.mark.parametrize(
    ("file", "cells", "genes"), [("pbmc_facs", 3874, 16791), ("cellxgene_schema_sample", 500, 2000)]
)
def test_real_files(file, cells, genes, real_data):
    path = real_data / f"{file}.h5ad"
    opened = open_cells(path)
    adata = anndata.read_h5ad(path)
    matrix = adata.raw.to_adata() if adata.raw else adata
    spiked = matrix.var_names.str.startswith("ERCC-")
    assert matrix.shape == (cells, genes)
    assert opened.n_cells == cells
    assert opened.genes == matrix.var_names[~spiked].tolist()
    for chunk in opened.chunks():
        expected = sp.csr_matrix(matrix.X[chunk.rows])[:, ~spiked]
        assert (chunk.counts != expected).nnz == 0
