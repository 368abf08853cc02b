"""Counts that are not counts, or whose sums wrapped around."""

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from stages import dense, hold_out, store, write_cells

from scsigmoid.corpus.counts import OWN_ROW, find_counts
from scsigmoid.corpus.h5ad import StoredTables, open_cells
from scsigmoid.corpus.matrix_reader import stored_matrix
from scsigmoid.errors import UserError


def test_sums_of_entries_do_not_wrap_around(tmp_path):
    """Repeated entries of uint8 in a CSC matrix, and columns of one gene around int32's maximum."""
    with h5py.File(tmp_path / "m.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csc_matrix", (3, 1)
        group["data"] = np.array([200, 100, 7], dtype=np.uint8)
        group["indices"], group["indptr"] = [1, 1, 0], [0, 3]
        [(_, block)] = stored_matrix(group, "m.h5", "X").counts(np.arange(3), np.array([0]), 1)
    assert block.toarray().tolist() == [[7], [300], [0]]
    for last, whole in ((47, True), (48, False)):
        path = store(tmp_path / "n.h5", np.array([[2_000_000_000, 147_483_600, last]]), "csr")
        with h5py.File(path) as file:
            blocks = stored_matrix(file["X"], "n.h5", "X").counts(np.arange(1), np.zeros(3, int), 1)
            if whole:
                assert next(blocks)[1].toarray().tolist() == [[2**31 - 1]]
                continue
            with pytest.raises(UserError, match=r"n\.h5: X has a gene listed twice"):
                next(blocks)


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
def test_binarised_counts_are_refused(dtype, kind, tmp_path):
    """Many numbers that are all 1 are refused. With a single 2 they are counts."""
    counts = np.random.default_rng(0).integers(0, 2, (90, 40))
    path = store(tmp_path / "m.h5", counts.astype(dtype), kind)
    with h5py.File(path) as file, pytest.raises(UserError, match=r"m\.h5: X .* need counts: store"):
        find_counts(StoredTables(file, "m.h5"), "m.h5")
    counts[7, 3] = 2
    path = store(tmp_path / "n.h5", counts.astype(np.float32), kind)
    with h5py.File(path) as file:
        assert find_counts(StoredTables(file, "n.h5"), "n.h5") == "X"


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
@pytest.mark.parametrize("dtype", [">f4", ">i4"])
def test_counts_in_the_other_byte_order(dtype, kind, tmp_path):
    """Dense matrices were called damaged."""
    counts = np.random.default_rng(0).integers(0, 9, (9, 4))
    path = store(tmp_path / "m.h5", counts, kind)
    with h5py.File(path, "r+") as file:
        name = "X" if kind == "dense" else "X/data"
        values, attributes = file[name][()], dict(file[name].attrs)
        del file[name]
        file[name] = values.astype(dtype)
        file[name].attrs.update(attributes)
        matrix = stored_matrix(file["X"], "m.h5", "X")
        [(_, block)] = matrix.counts(np.arange(9), np.arange(4), 4)
    np.testing.assert_array_equal(block.toarray(), counts)


def test_large_counts_of_held_out_cells(tmp_path):
    """Their copy had the nearest float32, which may be another count or too large to be one."""
    counts = np.random.default_rng(0).poisson(0.8, (200, 12)) + 1
    counts[:, 0] = np.where(np.arange(200) % 2, 2**24 + 1, 2**31 - 1)
    path = write_cells(tmp_path / "cells.h5ad", sp.csr_matrix(counts))
    _, copy, _ = hold_out(path, tmp_path)
    cells = open_cells(copy)
    rows = cells.obs([OWN_ROW])[OWN_ROW].astype(int)
    np.testing.assert_array_equal(dense(cells), counts[rows])


def test_wrong_counts(counts, write_h5ad):
    values = counts.astype(np.float32)
    for value, message in (
        (2.5, r"has 2\.5 in row 21, which is not a count"),
        (np.nan, "has nan in row 21, .*; fill missing values with 0"),
        (3e9, r"has 3e\+09 in row 21"),
        (np.nextafter(np.float32(41), np.float32(42)), r"has 41\.000004 in row 21"),
    ):
        values[21, 4] = value
        with pytest.raises(UserError, match=message):
            list(open_cells(write_h5ad(values)).chunks())
