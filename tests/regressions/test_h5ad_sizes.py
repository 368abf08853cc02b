"""Small files that declare large arrays or chunks are refused before these are read."""

import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from stages import dense, write_cells

from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.errors import UserError

COUNTS = np.random.default_rng(0).poisson(0.8, (30, 12)) + 1


def replace(file: Any, name: str, shape: tuple[int, ...], dtype: str, **options: Any) -> Any:
    """Replace a dataset by a dataset without values, with the same attributes."""
    attributes = dict(file[name].attrs)
    del file[name]
    kind = h5py.string_dtype() if dtype == "text" else dtype
    stored = file.create_dataset(name, shape, kind, **options)
    stored.attrs.update({k: v for k, v in attributes.items() if k.startswith("encoding")})
    return stored


def large_chunk(file: Any) -> None:
    """128 MB of zeros in a chunk, as 600 KB."""
    options = {"maxshape": (None, None), "chunks": (1 << 25, 1), "compression": "gzip"}
    stored = replace(file, "X", (30, 12), "f4", **options)
    stored.id.write_direct_chunk((0, 0), zlib.compress(bytes(1 << 27), 1))


def large_chunk_of_indices(file: Any) -> None:
    size = len(file["raw/X/indices"])
    replace(file, "raw/X/indices", (size,), "i4", maxshape=(None,), chunks=(1 << 28,))


def large_dense(file: Any) -> None:
    replace(file, "X", (10**7, 10**7), "f4", chunks=(1000, 1000))


def large_dense_and_frames(file: Any) -> None:
    large_dense(file)
    for frame in ("obs", "var"):
        replace(file, f"{frame}/_index", (10**7,), "text", chunks=(10**5,))


def many_cells(file: Any) -> None:
    replace(file, "obs/_index", (10**11,), "text", chunks=(10**5,))


def many_codes(file: Any) -> None:
    replace(file, "obs/cell_type/codes", (10**11,), "i1", chunks=(10**5,))


def long_texts(file: Any) -> None:
    replace(file, "obs/_index", (30,), "S1000000000", chunks=(1,))


def large_shape(file: Any) -> None:
    file["raw/X"].attrs["shape"] = (10**12, 12)


def large_column(file: Any) -> None:
    """Within the limit of its file, but longer than obs: it is not read."""
    replace(file, "obs/cell_type/codes", (5 * 10**7,), "i1", chunks=(10**5,))


FAULTS = (
    large_chunk,
    large_chunk_of_indices,
    large_dense,
    large_dense_and_frames,
    many_cells,
    many_codes,
    long_texts,
    large_shape,
    large_column,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_large_declarations(fault: Callable[[Any], None], tmp_path: Path) -> None:
    raw = sp.csr_matrix(COUNTS.astype(np.float32)) if "dense" not in fault.__name__ else None
    raw = None if fault is large_chunk else raw
    path = write_cells(tmp_path / "cells.h5ad", COUNTS, raw)
    with h5py.File(path, "r+") as file:
        fault(file)

    def read() -> None:
        cells = open_cells(path)
        cells.obs(["cell_type"])
        dense(cells)

    tracemalloc.start()
    with pytest.raises(UserError, match=r"cells\.h5ad: "):
        read()
    assert tracemalloc.get_traced_memory()[1] < 2e7
    tracemalloc.stop()


@pytest.mark.parametrize("place", ["X", "raw/X", "layers/counts"])
def test_shapes_are_compared_with_obs_and_var(place: str, tmp_path: Path) -> None:
    counts = sp.csr_matrix(COUNTS.astype(np.float32))
    path = write_cells(tmp_path / "cells.h5ad", counts, counts if place == "raw/X" else None)
    with h5py.File(path, "r+") as file:
        if place.startswith("layers"):
            file.copy("X", place)
        file[place].attrs["shape"] = (30, 13)
    with pytest.raises(UserError, match="13 columns, but obs has 30 rows and var 12"):
        open_cells(path, layer="counts" if place.startswith("layers") else "")


def test_well_compressed_files_are_read(tmp_path: Path) -> None:
    """Mostly zeros in a chunk of 40 MB, as R's rhdf5 stores a matrix by default."""
    counts = np.zeros((1000, 10_000), dtype=np.float32)
    counts[:, 0] = 1 + np.arange(1000) % 2
    path = write_cells(tmp_path / "cells.h5ad", sp.csr_matrix(counts))
    with h5py.File(path, "r+") as file:
        del file["X"]
        file.create_dataset("X", data=counts, chunks=counts.shape, compression="gzip")
        file["X"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    assert sum(chunk.counts.sum() for chunk in open_cells(path).chunks()) == counts.sum()
