"""Opens h5ad files, refuses unsafe ones, and reads columns of their data frames."""

import difflib
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError

Strings = NDArray[np.object_]

NOT_UTF8 = "is not UTF-8"
# Deflate shrinks at most 1,032-fold; small files may declare a little more.
LARGEST_RATIO, ALWAYS_ALLOWED = 1100, 1 << 26


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading; whatever is wrong with it becomes one line.

    Raises:
        UserError: also for an ``OSError`` or a ``KeyError`` in the block, which reads it, and for
            whatever h5py raises there.
    """
    import h5py

    if not path.exists():
        raise UserError(f"{path}: no such file; correct the path or make the file again")
    if path.is_dir():
        raise UserError(f"{path}: a folder, not an h5ad file; {conversion(path)}")
    if not path.is_file():
        raise UserError(f"{path}: a pipe or a device, not an h5ad file; give the file")
    try:
        with h5py.File(path, "r") as file:
            check_contents(file, path)
            yield file
    except PermissionError:
        raise UserError(f"{path}: may not be read; change its permissions") from None
    except Exception as error:
        if not isinstance(error, (OSError, KeyError)) and not raised_by_h5py(error):
            raise
        if not h5py.is_hdf5(path):
            raise UserError(f"{path}: not an h5ad file; {conversion(path)}") from None
        if NOT_UTF8 in str(error):
            raise UserError(f"{path}: {error}; write the file again, with text in UTF-8") from None
        reason = "truncated" if "truncated" in str(error) else "damaged"
        raise UserError(f"{path}: {reason}; copy or download it again") from error


def raised_by_h5py(error: Exception) -> bool:
    """Whether h5py raised an error: of a damaged file, it may be of any kind."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return "h5py" in frames[-1]


def conversion(path: Path) -> str:
    """What to do about a file that is no h5ad."""
    name = path.name.lower()
    if name.endswith((".h5ad.gz", ".h5.gz")):
        return "unpack it with gunzip"
    readers = {
        ".loom": "read_loom(...)",
        ".csv": "read_csv(...), with .T if genes are in rows",
        ".zarr": "read_zarr(...)",
    }
    reader = readers.get(Path(name.removesuffix(".gz")).suffix)
    if reader is None:
        return "give a file that anndata wrote, a 10x .h5, or a folder with 10x's matrix.mtx"
    return f"convert it with anndata.io: {reader}, then write_h5ad(...)"


def check_contents(file: Any, path: Path) -> None:
    """Refuse an HDF5 file that takes values from other files or declares more than it can hold.

    HDF5 would follow external links, external storage and virtual datasets to any file that the
    user may read.
    """
    from h5py import h5d, h5l, h5o

    most = LARGEST_RATIO * path.stat().st_size + ALWAYS_ALLOWED

    def fault(name: bytes, link: Any) -> str | None:
        """What is wrong with an object, in words."""
        if link.type == h5l.TYPE_SOFT:
            try:
                return None if h5o.exists_by_name(file.id, name) else "is a link to nowhere"
            except RuntimeError:
                return "is a link to itself"
        if link.type != h5l.TYPE_HARD:
            return "is a link to another file"
        stored = h5o.open(file.id, name)
        if not isinstance(stored, h5d.DatasetID):
            return None
        how = stored.get_create_plist()
        if how.get_layout() == h5d.VIRTUAL or how.get_external_count():
            return "holds the values of another file"
        if stored.get_space().get_simple_extent_npoints() * stored.get_type().get_size() > most:
            return f"claims a size that {path.stat().st_size:,} bytes cannot hold"
        return None

    def look(name: bytes, link: Any) -> str | None:
        try:
            found = fault(name, link)
        except Exception:  # which must not pass through HDF5
            found = "is damaged"
        return found and f"{name.decode(errors='backslashreplace')} {found}"

    found = file.id.links.visit(look, info=True)
    if found:
        raise UserError(f"{path}: {found}; copy it again, or write it with all values in it")


def check_layout(file: Any, path: Path) -> None:
    """Refuse an HDF5 file that is not an h5ad of a current layout."""
    for name in ("obs", "var"):
        if name not in file:
            raise UserError(f"{path}: not an h5ad file ({name} missing); {conversion(path)}")
        if "_index" not in file[name].attrs or "__categories" in file[name]:
            raise UserError(
                f"{path}: {name} is not stored as anndata 0.7 and newer store it; read the file "
                "with a newer one and write it again"
            )


def check_column(frame: Any, name: str, path: Path, purpose: str) -> None:
    """Refuse a column name that ``obs`` or ``var`` does not have, naming the nearest ones."""
    if name not in frame:
        present = [str(item) for item in frame.attrs["column-order"]]
        raise UserError(
            f"{path}: {frame.name.strip('/').replace('/', '.')} has no column {name!r} for "
            f"{purpose}; its columns: {listed(name, present)}"
        )


def listed(name: str, present: Sequence[str]) -> str:
    """The names that are there, for a message: the nearest ones first, eight at most."""
    close = difflib.get_close_matches(name, present, n=3, cutoff=0.4)
    others = [item for item in present if item not in close]
    return ", ".join(repr(item) for item in [*close, *others][:8]) or "none"


def column(frame: Any, name: str) -> Strings:
    """One column of a stored data frame as an array of strings, ``""`` for absent values.

    Raises:
        OSError: if it is not stored as anndata stores columns, or has another length.
    """
    import pandas as pd

    values = read(frame[name], f"column {name!r}", length(frame))
    if isinstance(values, pd.Categorical):
        categories = np.array([*map(str, values.categories), ""], dtype=object)
        return categories[values.codes]
    series = pd.Series(values)
    return np.where(series.isna(), "", series.astype(str)).astype(object)


def data_frame(stored: Any) -> Any:
    """A stored data frame, as pandas has it; an ``OSError`` if it is none of anndata's."""
    return read(stored, stored.name, length(stored))


def read(stored: Any, called: str, rows: int) -> Any:
    """What anndata stored, a column or a data frame; an ``OSError`` if it is none of so many rows.

    ``called`` is what the error calls it.
    """
    from anndata.io import read_elem

    try:
        values = read_elem(stored)
        complete = len(values) == rows
    except UnicodeDecodeError:
        raise OSError(f"{called} {NOT_UTF8}") from None
    except Exception as error:  # of many kinds, for what is stored otherwise
        raise OSError(f"{called}: {error}") from error
    if not complete:
        raise OSError(f"{called}: not of {rows} rows")
    return values


def length(frame: Any) -> int:
    import h5py

    index = frame[str(frame.attrs["_index"])]
    if isinstance(index, h5py.Group):  # strings that may be absent, or categories
        index = index["values" if "values" in index else "codes"]
    return len(index)
