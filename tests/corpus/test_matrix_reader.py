"""Blocks of rows, for every storage and chunking, compared with the dense matrix."""

import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from stages import store

from scsigmoid.corpus import matrix_reader
from scsigmoid.corpus.matrix_reader import stored_matrix


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(3).poisson(0.4, (90, 40)).astype(np.float32)


def rows_of(path: Path, wanted: np.ndarray, genes: int = 40) -> tuple[np.ndarray, list[int]]:
    """Return the wanted rows, and the sizes of their blocks."""
    rows, sizes = np.full((90, genes), -1), []
    with h5py.File(path) as file:
        for start, block in stored_matrix(file["X"], "m.h5", "X").counts(
            wanted, np.arange(genes), genes
        ):
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
        matrix = stored_matrix(file["X"], "m.h5", "X")
        [(_, block)] = matrix.counts(np.arange(2), np.array([0, 0, 1, -1]), 2)
    assert block.toarray().tolist() == [[1, 7], [4, 0]]
    assert (block.nnz, block.dtype) == (3, np.int32)


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
        blocks = stored_matrix(file["X"], "m.h5", "X").counts(np.arange(100_000), np.arange(80), 80)
        assert sum(block.nnz for _, block in blocks) == 4_000_000
    assert tracemalloc.get_traced_memory()[1] < 16e6
    tracemalloc.stop()
