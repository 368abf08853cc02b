"""Open h5ad files, and read columns of their data frames."""

import difflib
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError

Strings = NDArray[np.object_]

FALSE = ("False", "FALSE", "false", "0", "0.0")  # spellings of false in columns of text
ADVICE = (  # end of several messages
    "give an h5ad file, a 10x .h5 file or a folder with 10x's matrix.mtx; convert other formats "
    "with anndata.io"
)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading, if possible with the filters of the package hdf5plugin.

    Raise an error if the file is missing or damaged, or if reading it fails in the block.
    """
    import h5py

    with suppress(ImportError):
        import hdf5plugin  # noqa: F401
    if path.is_dir():
        raise UserError(f"{path}: a folder, not an h5ad file; {ADVICE}")
    if not path.is_file():
        raise UserError(f"{path}: no such file; correct the path or make the file again")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except PermissionError:
        raise UserError(f"{path}: may not be read; change its permissions") from None
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
        if not isinstance(error, (OSError, KeyError)) and "h5py" not in raised_in:
            raise  # a mistake in the block, not a damaged file
        if not h5py.is_hdf5(path):
            raise UserError(f"{path}: not an h5ad file; {ADVICE}") from None
        reason = " ".join(str(error).split())
        if "plugin" in reason or "not registered" in reason:  # HDF5's messages for missing filters
            raise UserError(
                f"{path}: compressed by a filter that h5py does not have, such as zstd; "
                "pip install hdf5plugin, or write the file with gzip"
            ) from None
        raise UserError(f"{path}: damaged ({reason}); copy or download it again") from error


def check_layout(file: Any, path: Path) -> None:
    """Raise an error if an HDF5 file is not an h5ad file, or has an old layout."""
    for name in ("obs", "var"):
        if name not in file:
            raise UserError(f"{path}: not an h5ad file ({name} missing); {ADVICE}")
        if "_index" not in file[name].attrs or "__categories" in file[name]:
            raise UserError(
                f"{path}: {name} has a layout older than anndata 0.7; write it with a newer anndata"
            )


def check_column(frame: Any, name: str, path: Path, purpose: str) -> None:
    """Raise an error if ``obs`` or ``var`` lacks a column, and suggest columns of similar names.

    ``purpose`` states in the error what the column is for.
    """
    if name not in frame:
        present = [str(item) for item in frame.attrs["column-order"]]
        raise UserError(
            f"{path}: {frame.name.strip('/').replace('/', '.')} has no column {name!r} for "
            f"{purpose}; its columns: {format_names(name, present)}"
        )


def format_names(name: str, present: Sequence[str]) -> str:
    """List at most eight ``present`` names for a message, those similar to ``name`` first."""
    close = difflib.get_close_matches(name, present, n=3, cutoff=0.4)
    others = [item for item in present if item not in close]
    return ", ".join(repr(item) for item in [*close, *others][:8]) or "none"


def read_column(frame: Any, name: str) -> Strings:
    """Read a column of a stored data frame as strings, ``""`` for missing values.

    Raise a UserError for an unsupported dtype or shape, and an OSError for damaged values.
    """
    import pandas as pd

    check_readable(frame, name)
    title = f"column {name!r}"
    values = read_checked(frame[name], title, count_rows(frame))
    with reading(title):  # anndata leaves text of a fixed length as bytes, which may not be UTF-8
        if isinstance(values, pd.Categorical):
            texts = [x.decode() if isinstance(x, bytes) else str(x) for x in values.categories]
            return np.array([*texts, ""], dtype=object)[values.codes]  # code -1: missing
        series = pd.Series(values)
        return np.where(series.isna(), "", series.astype(str)).astype(object)


def check_readable(frame: Any, name: str) -> None:
    """Raise an error if a column cannot be read as text, for example a compound type."""
    if not has_value_per_row(frame[name]):
        raise UserError(
            f"{frame.file.filename}: column {name!r} of {frame.name.strip('/')} must have one "
            "text, number or category per row; convert or remove it"
        )


def has_value_per_row(stored: Any) -> bool:
    """Return whether a stored column has a text, a number or a category for each row."""
    import h5py

    if isinstance(stored, h5py.Group):  # "codes" of categories, or "values" that may be missing
        return "codes" in stored or "values" in stored
    is_text = h5py.check_string_dtype(stored.dtype) is not None
    return stored.ndim == 1 and (is_text or stored.dtype.kind in "biuf")


def read_data_frame(stored: Any) -> Any:
    """Read a data frame that anndata stored, or raise ``OSError`` or ``UserError``."""
    for name in stored.attrs["column-order"]:
        check_readable(stored, name)
    return read_checked(stored, stored.name, count_rows(stored))


def read_checked(stored: Any, title: str, rows: int) -> Any:
    """Read a column or a data frame that anndata stored. ``title`` is its name in errors.

    Raise an ``OSError`` if anndata cannot read it, or if it does not have ``rows`` rows.
    """
    from anndata.io import read_elem

    with reading(title):
        values = read_elem(stored)
        if len(values) != rows:
            raise OSError(f"{title}: does not have {rows} rows")
    return values


@contextmanager
def reading(title: str) -> Iterator[None]:
    """Raise an ``OSError`` that names ``title`` if anndata cannot read a part of a file."""
    from anndata._io.specs.registry import IORegistryError

    try:
        yield
    except (
        KeyError, ValueError, TypeError, AttributeError, NotImplementedError, IORegistryError,
        RecursionError,  # a group that contains itself
    ) as error:  # fmt: skip
        raise OSError(f"{title}: {error}") from error


def count_rows(frame: Any) -> int:
    """Return the number of rows of a stored data frame."""
    import h5py

    index = frame[str(frame.attrs["_index"])]
    if isinstance(index, h5py.Group):  # strings that may be missing, or categories
        index = index["values" if "values" in index else "codes"]
    return len(index)
