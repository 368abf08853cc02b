"""Sparse matrices whose arrays contradict each other are refused, so counts are never dropped."""

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

COUNTS = np.random.default_rng(0).poisson(0.8, (30, 12))
COUNTS[:, 0] += 1
COUNTS[0] += 1


def change(name: str, function: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a function that replaces an array of X by the array that ``function`` returns."""

    def apply(matrix: Any) -> None:
        values = function(matrix[name][:])
        del matrix[name]
        matrix[name] = values

    return apply


def changed(values: Any, place: int, value: int) -> Any:
    values[place] = value
    return values


FAULTS = {
    "indptr starts at 5": change("indptr", lambda x: changed(x, 0, 5)),
    "indptr starts below 0": change("indptr", lambda x: changed(x, 0, -1)),
    "indptr ends early": change("indptr", lambda x: changed(x, -1, x[-1] - 1)),
    "indptr ends late": change("indptr", lambda x: changed(x, -1, x[-1] + 1)),
    "indptr descends": change("indptr", lambda x: changed(x, 3, x[4] + 1)),
    "indptr is short": change("indptr", lambda x: x[:-1]),
    "indptr is long": change("indptr", lambda x: np.append(x, x[-1])),
    "indptr is fractional": change("indptr", lambda x: x + 0.4),
    "indptr has two dimensions": change("indptr", lambda x: x[:, None]),
    "indices are fractional": change("indices", lambda x: x + 0.4),
    "indices are negative": change("indices", lambda x: changed(x, 7, -1)),
    "indices are too large": change("indices", lambda x: changed(x, 7, 99)),
    "indices wrap around": change("indices", lambda x: changed(x.astype("u8"), 7, 2**32 + 1)),
    "indices are short": change("indices", lambda x: x[:-1]),
    "indices are text": change("indices", lambda x: x.astype("S")),
    "data is short": change("data", lambda x: x[:-1]),
    "data is long": change("data", lambda x: np.append(x, 1)),
}


@pytest.mark.parametrize("storage", [sp.csr_matrix, sp.csc_matrix])
def test_contradictions_are_refused(storage: Callable[..., Any], tmp_path: Path) -> None:
    path = write_cells(tmp_path / "cells.h5ad", storage(COUNTS.astype(np.float32)))
    assert (dense(open_cells(path)) == COUNTS).all()
    whole, read = path.read_bytes(), []
    for fault, apply in FAULTS.items():
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            apply(file["X"])
        try:
            dense(open_cells(path))
        except UserError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
        else:
            read.append(fault)
    assert not read


def test_the_number_of_cells_with_counts(tmp_path: Path) -> None:
    """The manifest counts cells by ``indptr``, without reading counts."""
    path = write_cells(tmp_path / "cells.h5ad", sp.csr_matrix(COUNTS.astype(np.float32)))
    with h5py.File(path, "r+") as file:
        file["X/indptr"][0] = 5
    with pytest.raises(UserError, match="indptr"):
        open_cells(path).count_nonempty()
