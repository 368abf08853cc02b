"""Counts of AnnData objects of every storage, compared with dense arrays, and damaged ones."""

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from stages import dense

from scsigmoid.corpus import matrix_reader
from scsigmoid.corpus.counts import open_source
from scsigmoid.corpus.matrix_reader import matrix_in_memory
from scsigmoid.corpus.memory import AnnDataInMemory
from scsigmoid.errors import UserError

COUNTS = np.random.default_rng(0).poisson(0.8, (30, 12)).astype(np.float32)
COUNTS[:, 0] += 1
STORAGES = {
    "dense": np.array,
    "columns": np.asfortranarray,
    "masked": np.ma.masked_array,
    "csr": sp.csr_matrix,
    "csc": sp.csc_matrix,
    "array": sp.csr_array,
    "integers": lambda counts: sp.csc_array(counts.astype(np.uint8)),
}


def make(matrix, **options):
    var = pd.DataFrame(index=[f"gene{number}" for number in range(matrix.shape[1])])
    return anndata.AnnData(matrix, var=var, **options)


def in_a_layer(matrix):
    logs = np.log1p(COUNTS)
    return make(logs, layers={"logs": logs, "counts": matrix})


def in_raw(matrix):
    adata = make(matrix)
    adata.raw = adata.copy()
    adata.X = np.log1p(COUNTS)
    return adata[:, :3]


def in_a_view(matrix):
    return anndata.concat([make(2 * matrix), make(matrix)])[30:]


def read(adata, layer=""):
    return dense(open_source(AnnDataInMemory(adata), layer, ""))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(matrix_reader, "BLOCK_VALUES", 64)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("place", [make, in_a_layer, in_raw, in_a_view])
def test_counts_are_found_and_read(place, storage):
    adata = place(STORAGES[storage](COUNTS))
    np.testing.assert_array_equal(read(adata, "counts" * (place is in_a_layer)), COUNTS)


@pytest.mark.parametrize("storage", ["dense", "csr", "csc"])
@pytest.mark.parametrize("place", [make, in_a_layer, in_raw])
def test_backed_counts(place, storage, tmp_path):
    place(STORAGES[storage](COUNTS)).write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    layer = "counts" * (place is in_a_layer)
    np.testing.assert_array_equal(read(backed, layer), COUNTS)
    np.testing.assert_array_equal(read(backed[5:9], layer), COUNTS[5:9])


FAULTS = {
    "indptr starts at 5": lambda x: x.indptr.__setitem__(0, 5),
    "indptr ends early": lambda x: x.indptr.__setitem__(-1, x.indptr[-1] - 1),
    "indptr ends late": lambda x: x.indptr.__setitem__(-1, x.indptr[-1] + 1),
    "indptr descends": lambda x: x.indptr.__setitem__(3, x.indptr[4] + 1),
    "indptr is short": lambda x: setattr(x, "indptr", x.indptr[:-1]),
    "indices are negative": lambda x: x.indices.__setitem__(7, -1),
    "indices are too large": lambda x: x.indices.__setitem__(7, 99),
    "indices are short": lambda x: setattr(x, "indices", x.indices[:-1]),
    "data is short": lambda x: setattr(x, "data", x.data[:-1]),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("storage", ["csr", "csc"])
def test_arrays_that_contradict_each_other(storage, fault):
    """Wrong indices would crash SciPy, or it would leave out their counts."""
    adata = make(STORAGES[storage](COUNTS))
    FAULTS[fault](adata.X)
    with pytest.raises(UserError, match=r"^adata: .*X"):
        read(adata)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (sp.dia_matrix(COUNTS), "format 'dia'"),
        (COUNTS.astype(object), "contains object"),
        (COUNTS > 0, "need counts"),
    ],
)
def test_other_matrices_are_refused(matrix, message):
    with pytest.raises(UserError, match=f"^adata: X .*{message}"):
        matrix_in_memory(matrix, "adata", "X")


def test_names_of_genes_as_bytes():
    """anndata reads categories of fixed length as bytes. The names were "b'A'"."""
    adata = make(COUNTS)
    adata.var["feature_name"] = pd.Categorical([b"A", b"B", None] * 4)
    names = open_source(AnnDataInMemory(adata), "", "").names
    assert names[:3] == ["A", "B", "gene2"]


@pytest.mark.parametrize("storage", ["csr", "csc"])
def test_the_matrix_is_not_changed(storage):
    """Its entries are neither sorted nor summed, and all arrays stay the same objects."""
    rows = STORAGES[storage](COUNTS)
    for start, stop in zip(rows.indptr, rows.indptr[1:], strict=False):
        rows.indices[start:stop] = rows.indices[start:stop][::-1].copy()
        rows.data[start:stop] = rows.data[start:stop][::-1].copy()
    rows.has_sorted_indices = False
    adata = make(rows)
    arrays = [adata.X.data, adata.X.indices, adata.X.indptr]
    before = [array.copy() for array in arrays]
    np.testing.assert_array_equal(read(adata), COUNTS)
    for array, values, now in zip(
        arrays, before, [adata.X.data, adata.X.indices, adata.X.indptr], strict=True
    ):
        assert array is now
        np.testing.assert_array_equal(array, values)
