"""Blocks of rows, for every storage and chunking, compared with the dense matrix."""

import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from anndata.io import write_elem

from scsigmoid.corpus import matrix_reader
from scsigmoid.corpus.matrix_reader import Matrix, find_counts
from scsigmoid.errors import UserError


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(3).poisson(0.4, (90, 40)).astype(np.float32)


def store(path: Path, values: np.ndarray, kind: str, **options) -> Path:
    """Write a matrix with these options of h5py."""
    with h5py.File(path, "w") as file:
        matrix = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": np.asarray}[kind](values)
        write_elem(file, "X", matrix, dataset_kwargs=options)
        for name, rows in zip(("obs", "var"), values.shape, strict=True):
            write_elem(file, name, pd.DataFrame(index=np.arange(rows).astype(str)))
    return path


def rows_of(path: Path, wanted: np.ndarray, genes: int = 40) -> tuple[np.ndarray, list[int]]:
    """Return the wanted rows, and the sizes of their blocks."""
    rows, sizes = np.full((90, genes), -1), []
    with h5py.File(path) as file:
        for start, block in Matrix(file["X"], path, "X").counts(wanted, np.arange(genes), genes):
            rows[start : start + block.shape[0]] = block.toarray()
            sizes.append(block.nnz)
    return rows[wanted], sizes


FILTERS = {"compression": "gzip", "shuffle": True, "fletcher32": True, "chunks": (64,)}
SPARSE = [{}, {"compression": "lzf", "chunks": (7,)}, FILTERS]
DENSE = [{}, {"chunks": (7, 13)}, {"chunks": (20, 40)}, {"chunks": (90, 1)}]
STORED = {"csr": SPARSE, "csc": SPARSE, "dense": DENSE}


@pytest.mark.parametrize(("kind", "options"), [(kind, x) for kind in STORED for x in STORED[kind]])
def test_blocks_of_rows(kind, options, values, monkeypatch, tmp_path):
    monkeypatch.setattr(matrix_reader, "BLOCK_VALUES", 64)
    path = store(tmp_path / "m.h5", values, kind, **options)
    for wanted in (np.arange(90), np.array([3, 50, 89])):
        rows, sizes = rows_of(path, wanted)
        np.testing.assert_array_equal(rows, values[wanted])
        assert kind != "csr" or max(sizes) < 64 + 40  # a row has at most 40 values


def test_repeated_and_unsorted_entries_are_added(tmp_path):
    """Rows [5 at 2, 1 at 0, 2 at 2] and [0 at 1, 4 at 1]; columns 0 and 1 are one gene."""
    with h5py.File(tmp_path / "m.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (2, 4)
        group["data"] = np.array([5, 1, 2, 0, 4], dtype=np.float32)
        group["indices"] = np.array([2, 0, 2, 1, 1], dtype=np.int64)
        group["indptr"] = np.array([0, 3, 5], dtype=np.int32)
        matrix = Matrix(file["X"], tmp_path / "m.h5", "X")
        [(_, block)] = matrix.counts(np.arange(2), np.array([0, 0, 1, -1]), 2)
    assert block.toarray().tolist() == [[1, 7], [4, 0]]
    assert (block.nnz, block.dtype) == (3, np.int32)


def test_sums_of_entries_do_not_wrap_around(tmp_path):
    """Repeated entries of uint8 in a CSC matrix, and columns of one gene around int32's maximum."""
    with h5py.File(tmp_path / "m.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csc_matrix", (3, 1)
        group["data"] = np.array([200, 100, 7], dtype=np.uint8)
        group["indices"], group["indptr"] = [1, 1, 0], [0, 3]
        [(_, block)] = Matrix(group, tmp_path / "m.h5", "X").counts(np.arange(3), np.array([0]), 1)
    assert block.toarray().tolist() == [[7], [300], [0]]
    for last, whole in ((47, True), (48, False)):
        path = store(tmp_path / "n.h5", np.array([[2_000_000_000, 147_483_600, last]]), "csr")
        with h5py.File(path) as file:
            blocks = Matrix(file["X"], path, "X").counts(np.arange(1), np.zeros(3, int), 1)
            if whole:
                assert next(blocks)[1].toarray().tolist() == [[2**31 - 1]]
                continue
            with pytest.raises(UserError, match=r"n\.h5: X has a gene listed twice"):
                next(blocks)


def test_memory_is_bounded_by_the_blocks(tmp_path, monkeypatch):
    """4 million values take 32 MB as CSR."""
    monkeypatch.setattr(matrix_reader, "BLOCK_VALUES", 1 << 17)
    matrix = sp.random(100_000, 80, 0.5, "csr", np.float32, random_state=np.random.default_rng(0))
    matrix.data[:] = 1
    path = store(tmp_path / "m.h5", matrix, "csr")
    del matrix
    # The first call imports modules, which needs memory.
    rows_of(store(tmp_path / "few.h5", np.eye(90, 40), "csr"), np.arange(90))
    tracemalloc.start()
    with h5py.File(path) as file:
        blocks = Matrix(file["X"], path, "X").counts(np.arange(100_000), np.arange(80), 80)
        assert sum(block.nnz for _, block in blocks) == 4_000_000
    assert tracemalloc.get_traced_memory()[1] < 16e6
    tracemalloc.stop()


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
def test_binarised_counts_are_refused(dtype, kind, tmp_path):
    """Many numbers that are all 1 are refused. With a single 2 they are counts."""
    counts = np.random.default_rng(0).integers(0, 2, (90, 40))
    path = store(tmp_path / "m.h5", counts.astype(dtype), kind)
    with h5py.File(path) as file, pytest.raises(UserError, match=r"m\.h5: X .* need counts: store"):
        find_counts(file, path)
    counts[7, 3] = 2
    path = store(tmp_path / "n.h5", counts.astype(np.float32), kind)
    with h5py.File(path) as file:
        assert find_counts(file, path) == "X"
