"""Embeddings of own cells: outputs that were overwritten, names that were misread."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import anndata.tests.helpers
import h5py
import numpy as np
import pandas as pd
import pytest
from cells import conftest as fixtures
from cells.conftest import FOREIGN, GENES, check, embed_by_command, expected, run
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import scsigmoid as ss
from scsigmoid.cells.embed_file import embed_file
from scsigmoid.errors import UserError

(counts, loaded, model, reference, vocabulary, write) = (
    getattr(fixtures, name)
    for name in ("counts", "loaded", "model", "reference", "vocabulary", "write")
)


def test_retired_ids(counts, write, make_model, vocabulary):
    """GENES[3] is listed by its own id and by a retired one, GENES[4] by a retired one only."""
    retired = {"ENSG90000000003": GENES[3], "ENSG90000000004": GENES[4]}
    model = make_model("sigmoid", replace(vocabulary, retired=retired))
    genes = [*GENES[:4], "ENSG90000000004", *GENES[5:], "ENSG90000000003"]
    split = np.c_[counts, counts[:, 3] // 2]
    split[:, 3] -= split[:, -1]
    check(run(write(split, genes), model), expected(counts, model, vocabulary))


def test_an_existing_output_is_replaced_only_with_force(counts, write, model, capfd):
    path, other = write(counts), write(counts, name="other")
    before = other.read_bytes()
    assert embed_by_command(path, model, path, "--force") == 1
    assert "is the input itself" in capfd.readouterr().err
    assert embed_by_command(path, model, other) == 1
    assert f"{other}: exists; give another file, or --force" in capfd.readouterr().err
    assert other.read_bytes() == path.read_bytes() == before
    assert embed_by_command(path, model, other, "--force", "--key", "X_mine") == 0
    assert list(anndata.read_h5ad(other).obsm) == ["X_mine"]


def test_names_that_h5ad_cannot_store(counts, write, loaded, tmp_path):
    """The error comes before the cells are embedded, which can take hours."""
    path = write(counts)
    with h5py.File(path, "r+") as file:
        del file["obs/_index"]
        names = np.array([b"a\0b", *(b"cell%d" % i for i in range(8))])
        index = file["obs"].create_dataset("_index", data=names)
        index.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    loaded.encoder.forward = None  # fails if called
    with pytest.raises(UserError, match=r"cannot be stored as h5ad: .*_index"):
        embed_file(path, loaded, tmp_path / "out.h5ad")
    assert not [*tmp_path.glob("*out*")]


def test_adata_that_h5ad_cannot_store(
    counts, write, loaded, model, vocabulary, reference, monkeypatch, capfd
):
    """Names and ``uns`` may have any value, because no file is written, and none may be needed."""
    monkeypatch.setattr(tempfile, "mkdtemp", None)
    monkeypatch.setattr(tempfile, "mkstemp", None)
    adata = anndata.read_h5ad(write(counts))
    adata.obs_names = pd.Index(["a\0", "b\udcff", *adata.obs_names[2:]], dtype=object)
    adata.uns["scsigmoid"] = "text"
    ss.embed(adata, loaded)
    check(adata, reference)
    adata.var_names = ["a\0", *GENES[1:]]
    ss.embed(adata, loaded)
    check(adata, expected(counts, model, vocabulary, range(1, 36)))
    assert "1 of 36 genes have no Ensembl id (a\\x00)" in capfd.readouterr().err


def test_model_name_with_a_path(model, tmp_path):
    with safe_open(model, framework="pt") as file:
        metadata = json.loads(file.metadata()["scsigmoid"])
    evil = tmp_path / "evil.safetensors"
    metadata["model"] = "../../../evil"
    save_file(load_file(model), evil, metadata={"scsigmoid": json.dumps(metadata)})
    with pytest.raises(UserError, match=r"evil.safetensors: .* names the model '../../../evil'"):
        ss.load(evil)


def test_verbose_false_prints_only_warnings(counts, write, loaded, capfd):
    path = write(counts, [*GENES[:34], "CD4", "CD14"])
    for function in (ss.embed, ss.tokenize):
        capfd.readouterr()
        function(anndata.read_h5ad(path), loaded, verbose=False)
        [line] = capfd.readouterr().err.splitlines()
        assert line.startswith("warning: adata: 2 of 36 genes have no Ensembl id (CD4, CD14)")
    ss.embed(anndata.read_h5ad(path), loaded)
    assert "34 genes found by id" in capfd.readouterr().err


def test_blood_is_the_packaged_model_unless_it_is_a_path(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blood").mkdir()
    (tmp_path / "blood/model.safetensors").symlink_to(model)
    assert ss.load("blood").name == "blood"
    for path in ("./blood", Path("blood"), tmp_path / "blood"):
        assert ss.load(path).name == "sigmoid_toy"


def test_the_only_column_with_ids_is_used(counts, write, model, loaded, reference):
    """The index has unknown symbols. Files and AnnData objects have equal embeddings."""
    path = write(counts, [f"x{i}" for i in range(36)], gene_ids=GENES)
    adata = anndata.read_h5ad(path)
    ss.embed(adata, loaded)
    check(adata, reference)
    check(run(path, model), reference)
    adata.var["others"] = [*GENES[1:], GENES[0]]
    with pytest.raises(UserError, match="no gene in common"):  # two columns are ambiguous
        ss.embed(adata, loaded)


def test_cells_with_few_genes_of_the_model(counts, write, loaded, capfd):
    """There was only a log line without shares, because all genes of the file were found."""
    path = write(counts[:, :2] + 1, GENES[:2])
    ss.embed(anndata.read_h5ad(path), loaded, verbose=False)
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("warning: adata: only 2 genes")
    assert "5.56 % of the model's 36 genes, 100 % of the file's 2" in line
    path = write(counts, [*GENES[:18], *FOREIGN[:18]])
    ss.embed(anndata.read_h5ad(path), loaded)
    error = capfd.readouterr().err
    assert "50 % of the model's 36 genes, 50 % of the file's 36" in error
    assert "warning" not in error
