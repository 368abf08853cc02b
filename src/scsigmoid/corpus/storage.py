"""How an h5ad file lies in HDF5: opening it, and reading columns of its data frames."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError

Strings = NDArray[np.object_]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading; whatever is wrong with it becomes one line.

    Raises:
        UserError: also for an ``OSError`` or a ``KeyError`` in the block, which reads it.
    """
    import h5py

    if not path.exists():
        raise UserError(f"{path}: no such file; correct the path or make the file again")
    if path.is_dir():
        raise UserError(f"{path}: a folder, not an h5ad file; give the file")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except PermissionError:
        raise UserError(f"{path}: may not be read; change its permissions") from None
    except (OSError, KeyError) as error:
        if not h5py.is_hdf5(path):
            raise UserError(f"{path}: not an h5ad file; give a file that anndata wrote") from None
        reason = "truncated" if "truncated" in str(error) else "damaged"
        raise UserError(f"{path}: {reason}; copy or download it again") from error


def check_layout(file: Any, path: Path) -> None:
    """Refuse an HDF5 file that is not an h5ad of a current layout."""
    missing = [name for name in ("obs", "var") if name not in file]
    if missing:
        raise UserError(
            f"{path}: not an h5ad file ({', '.join(missing)} missing); "
            "give a file that anndata wrote"
        )
    for name in ("obs", "var"):
        if "_index" not in file[name].attrs or "__categories" in file[name]:
            raise UserError(
                f"{path}: {name} is not stored as anndata 0.7 and newer store it; read the file "
                "with a newer one and write it again"
            )


def check_column(frame: Any, name: str, path: Path, purpose: str) -> None:
    """Refuse a column name that ``obs`` does not have, naming the nearest ones."""
    if name in frame:
        return
    present = [str(item) for item in frame.attrs["column-order"]]
    close = difflib.get_close_matches(name, present, n=3, cutoff=0.4)
    listed = ", ".join(repr(item) for item in close or present[:8]) or "none"
    raise UserError(
        f"{path}: obs has no column {name!r} for {purpose}; "
        f"{'nearest columns' if close else 'columns'}: {listed}"
    )


def column(frame: Any, name: str) -> Strings:
    """One column of a stored data frame as an array of strings, ``""`` for absent values.

    Raises:
        OSError: if it is not stored as anndata stores columns, or has another length.
    """
    import pandas as pd
    from anndata.io import read_elem

    try:
        values = read_elem(frame[name])
        complete = len(values) == length(frame)
    except Exception as error:  # of many kinds, for what is stored otherwise
        raise OSError(f"column {name!r}: {error}") from error
    if not complete:
        raise OSError(f"column {name!r}: not of the frame's length")
    if isinstance(values, pd.Categorical):
        categories = np.array([*map(str, values.categories), ""], dtype=object)
        return categories[values.codes]
    series = pd.Series(values)
    return np.where(series.isna(), "", series.astype(str)).astype(object)


def data_frame(stored: Any) -> Any:
    """A stored data frame, as pandas has it.

    Raises:
        OSError: if it is not stored as anndata stores data frames.
    """
    from anndata.io import read_elem

    try:
        return read_elem(stored)
    except Exception as error:  # of many kinds, for what is stored otherwise
        raise OSError(f"{stored.name}: {error}") from error


def length(frame: Any) -> int:
    """Number of rows of a stored data frame."""
    import h5py

    index = frame[str(frame.attrs["_index"])]
    if isinstance(index, h5py.Group):  # strings that may be absent, or categories
        index = index["values" if "values" in index else "codes"]
    return len(index)
