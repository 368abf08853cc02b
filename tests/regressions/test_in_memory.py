"""AnnData objects in memory, of any version of pandas, with parts that an h5ad cannot store."""

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from stages import local_corpus, make_evaluation, make_manifest

import scsigmoid as ss
from scsigmoid.cells.embed_file import embed_file
from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.embedded import real_cells
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.errors import UserError


@pytest.fixture(scope="module")
def model():
    return ss.load("blood", device="cpu")


@pytest.fixture(scope="module")
def table():
    return real_cells(42, held_out=True)


@pytest.fixture
def make(table):
    """Return a function that makes an AnnData of four real cells."""

    def make_adata():
        var = pd.DataFrame({"feature_name": [*table.names]}, index=[*table.genes])
        obs = pd.DataFrame({"kind": [*"abab"]}, index=[*"wxyz"])
        return anndata.AnnData(csr_matrix(table.counts[:4].astype(np.float32)), obs, var)

    return make_adata


@pytest.fixture(scope="module")
def expected(model, table):
    adata = anndata.AnnData(table.counts[:4].astype(np.float32))
    adata.var_names = [*table.genes]
    ss.embed(adata, model)
    return adata.obsm["X_scsigmoid"]


def string_index(adata):
    adata.var.index = pd.Index([*adata.var_names], dtype="string")
    adata.obs.index = pd.Index([*adata.obs_names], dtype="string")


def string_columns(adata):
    names = adata.var["feature_name"].astype("string")
    names.iloc[3] = pd.NA
    adata.var = adata.var.assign(feature_name=names, types=pd.array(["x"] * adata.n_vars))
    adata.obs = adata.obs.convert_dtypes()


def converted_raw(adata):
    adata.raw = adata.copy()
    adata.raw.var.index = pd.Index([*adata.var_names], dtype="string")
    adata.X = adata.X.log1p()


def name_of_index_is_a_column(adata):
    """As ``adata.var_names = adata.var["feature_name"]`` and ``var_names_make_unique`` leave it."""
    names = adata.var["feature_name"].astype(str)
    names.iloc[7] = names.iloc[6]
    adata.var = adata.var.assign(feature_name=names, ids=[*adata.var_names])
    adata.var_names = adata.var["feature_name"]
    adata.var_names_make_unique()


def repeated_columns(adata):
    """Two equal columns that are read, and two different ones that are not."""
    values = pd.DataFrame({"mean": range(adata.n_vars)}, index=adata.var.index)
    adata.var = pd.concat([adata.var, adata.var, values, -values], axis=1)


def numbered_columns(adata):
    adata.var = pd.DataFrame({0: [*adata.var_names], 1: 2}, index=adata.var["feature_name"])


def columns_of_objects(adata):
    adata.var["mixed"] = [np.nan, "a", 1, {}] + [None] * (adata.n_vars - 4)
    adata.var["a/b"] = [[]] * adata.n_vars
    adata.obs["mixed"] = [np.nan, "a", 1, {}]
    adata.obs["_index"] = 1
    adata.uns["x"] = object()
    adata.uns["scsigmoid"] = None


def missing_categories(adata):
    names = adata.var["feature_name"].astype("category")
    names.iloc[0] = np.nan
    adata.var["feature_name"] = names
    adata.var.index = pd.CategoricalIndex(adata.var_names)


CHANGES = [
    string_index, string_columns, converted_raw, name_of_index_is_a_column, repeated_columns,
    numbered_columns, columns_of_objects, missing_categories,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("infer_string", [False, True])
def test_the_embedding_is_the_same(change, infer_string, make, model, expected):
    """``future.infer_string`` is the default of pandas 3."""
    with pd.option_context("future.infer_string", infer_string):
        adata = make()
        change(adata)
        ss.embed(adata, model)
        np.testing.assert_array_equal(adata.obsm["X_scsigmoid"], expected)


@pytest.mark.parametrize("infer_string", [False, True])
def test_the_tokens_are_the_same(infer_string, make, model):
    tokens = ss.tokenize(make(), model).tokens.tolist()
    with pd.option_context("future.infer_string", infer_string):
        adata = make()
        adata.var = adata.var.convert_dtypes()
        adata.layers["counts"] = adata.X
        adata.X = None
        assert ss.tokenize(adata, model, layer="counts").tokens.tolist() == tokens


def test_columns_of_one_name_that_disagree(make, model):
    adata = make()
    adata.var = pd.concat([adata.var, adata.var[::-1].set_axis(adata.var_names)], axis=1)
    with pytest.raises(UserError, match=r"adata: .*several columns 'feature_name'"):
        ss.embed(adata, model)


def test_an_index_of_several_levels(make, model):
    """AnnData accepts it when it is set, but cannot write or copy such data."""
    adata = make()
    adata.var.index = pd.MultiIndex.from_arrays([adata.var_names, adata.var_names])
    with pytest.raises(UserError, match=r"^adata: var has .*MultiIndex"):
        ss.embed(adata, model)


def test_embed_and_fetch_write_the_strings_of_pandas_3(make, model, expected, tmp_path):
    """Columns of strings are written to the output, and to copies of held-out cells."""
    make().write_h5ad(tmp_path / "cells.h5ad")
    local = LocalFiles(files=str(tmp_path / "cells.h5ad"), held_out=0.5, label="kind", name="mine")
    corpus, dataset = local_corpus(local), Dataset(title="Mine", label="kind")
    with pd.option_context("future.infer_string", True):
        embed_file(tmp_path / "cells.h5ad", model, tmp_path / "out.h5ad")
        make_manifest(corpus, {"mine": dataset}, tmp_path)
        held_out, _ = make_evaluation(corpus, "mine", dataset, tmp_path)
    result = anndata.read_h5ad(tmp_path / "out.h5ad")
    assert result.obs["kind"].tolist() == [*"abab"]
    np.testing.assert_allclose(result.obsm["X_scsigmoid"], expected, atol=2e-5)
    assert open_cells(held_out).n_cells == 2


@pytest.mark.parametrize("device", ["meta", "vulkan", "lazy"])
def test_a_device_that_is_not_available(device):
    """It was one of PyTorch's errors, of several types, or an error when cells were embedded."""
    with pytest.raises(UserError, match=rf"^device: '{device}' is not available .*cpu or cuda$"):
        ss.load("blood", device=device)
