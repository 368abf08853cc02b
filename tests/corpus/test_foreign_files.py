"""Files of scanpy and 10x: layers, columns of genes, proteins, and other HDF5 files."""

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from stages import dense, hold_out, local_corpus, make_manifest, make_part
from tenx import tenx_file, tenx_folder

from scsigmoid.config.schema import LocalFiles
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.errors import UserError

SYMBOL = [f"GENE{index}" for index in range(12)]
ID = [f"ENSG{index:011d}" for index in range(12)]


def test_a_layer_and_a_column_of_genes(counts, write_h5ad, tmp_path):
    """Counts in a layer next to normalized values, and ids in a column next to symbols."""
    path = write_h5ad(np.log1p(counts).astype(np.float32), genes=SYMBOL, var={"gene_ids": ID})
    adata = anndata.read_h5ad(path)
    adata.layers["counts"] = sp.csr_matrix(counts.astype(np.float32))
    adata.write_h5ad(path)
    part, file, _ = hold_out(path, tmp_path / "run", layer="counts", genes="gene_ids")
    [(_, trained)] = cells_of_part(part)
    held = open_cells(file)
    others = np.setdiff1d(np.arange(30), trained.rows)
    for cells, rows in ((trained, trained.rows), (held, others)):
        assert (cells.genes, cells.names) == (ID, SYMBOL)
        np.testing.assert_array_equal(dense(cells), counts[rows])
    for wrong, message in (
        ({}, r"layers\['counts'\] .* 'layer'"),
        ({"layer": "count"}, r"no layer 'count'; .*\(layers: 'counts'\)"),
        ({"layer": "counts", "genes": "gene_id"}, "var has no column 'gene_id' for the genes"),
    ):
        with pytest.raises(UserError, match=message):
            open_cells(path, **wrong)


@pytest.mark.parametrize("kind", ["folder", "prefixed folder", "file"])
def test_tenx(kind, counts, tmp_path, capfd):
    kinds = ["Gene Expression"] * 11 + ["Antibody Capture"]
    if kind == "file":
        path = tenx_file(tmp_path / "sample.h5", counts, kinds)
    else:
        path = tenx_folder(tmp_path / "sample", counts, "GSM1_" * (kind != "folder"), kinds)
    corpus, folder = local_corpus(LocalFiles(files=str(path))), tmp_path / "run"
    make_manifest(corpus, {}, folder)
    [(_, cells)] = cells_of_part(make_part(corpus, folder))
    assert cells.genes == ID[:11]
    np.testing.assert_array_equal(dense(cells), counts[:, :11])
    assert "1 'Antibody Capture'" in capfd.readouterr().err
    changed = next(iter(path.iterdir())) if path.is_dir() else path
    changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(UserError, match="changed since the manifest was made"):
        make_part(corpus, folder)


def test_other_h5_files(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = [1, 2]
    corpus = local_corpus(LocalFiles(files=str(tmp_path / "other.h5")))
    with pytest.raises(UserError, match=r"other\.h5: not a 10x file or folder that scanpy reads"):
        make_manifest(corpus, {}, tmp_path)
