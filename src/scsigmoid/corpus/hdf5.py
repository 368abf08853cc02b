"""Open h5ad files, refuse unsafe ones, and read columns of their data frames."""

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

NOT_UTF8 = "is not UTF-8"
FALSE = ("False", "FALSE", "false", "0", "0.0")  # spellings in columns
# Deflate shrinks data at most 1,032-fold. Small files may declare a little more.
LARGEST_RATIO, ALWAYS_ALLOWED = 1100, 1 << 26
DEEPEST = 50  # groups around a dataset
COPY = "copy the file again, or write it with all values in it"
ADVICE = (
    "give an h5ad file, a 10x .h5 file or a folder with 10x's matrix.mtx; convert other formats "
    "with anndata.io"
)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading.

    Raises:
        UserError: if the file is missing, damaged or unsafe, or if reading it fails in the block.
    """
    import h5py

    if not path.exists():
        raise UserError(f"{path}: no such file; correct the path or make the file again")
    if path.is_dir():
        raise UserError(f"{path}: a folder, not an h5ad file; {ADVICE}")
    if not path.is_file():
        raise UserError(f"{path}: a pipe or a device, not an h5ad file; give the file")
    try:
        with h5py.File(path, "r") as file:
            check_contents(file, path)
            yield file
    except PermissionError:
        raise UserError(f"{path}: may not be read; change its permissions") from None
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        if not isinstance(error, (OSError, KeyError)) and not raised_by_h5py(error):
            raise
        if not h5py.is_hdf5(path):
            raise UserError(f"{path}: not an h5ad file; {ADVICE}") from None
        if NOT_UTF8 in str(error):
            raise UserError(f"{path}: {error}; write the file again, with text in UTF-8") from None
        reason = "truncated" if "truncated" in str(error) else "damaged"
        raise UserError(f"{path}: {reason}; copy or download it again") from error


def raised_by_h5py(error: Exception) -> bool:
    """Return whether h5py raised an error."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return "h5py" in frames[-1]


def check_contents(file: Any, path: Path) -> None:
    """Refuse an HDF5 file that is unsafe to read.

    HDF5 would follow external links, external storage and virtual datasets to any file that the
    user may read. Datasets may declare any size, groups may contain each other, or be nested so
    deep that reading them takes minutes.
    """
    links: list[tuple[bytes, int]] = []

    def collect(name: bytes, link: Any) -> bool | None:
        links.append((name, link.type))
        return True if name.count(b"/") >= DEEPEST else None  # ends the visit

    is_deep = file.id.links.visit(collect, info=True)
    largest = LARGEST_RATIO * path.stat().st_size + ALWAYS_ALLOWED
    for name, kind in links:
        fault = find_fault(file, name, kind, largest)
        if fault:
            raise UserError(f"{path}: {name.decode(errors='backslashreplace')} {fault}")
    if is_deep:
        raise UserError(f"{path}: has groups in more than {DEEPEST} groups; remove them from uns")


def find_fault(file: Any, name: bytes, kind: int, largest: int) -> str:
    """Return the fault of an unsafe object and advice, or "" if it is safe.

    Args:
        file: the open file.
        name: path of the link to the object.
        kind: HDF5's number of the kind of link.
        largest: bytes that a dataset may declare.
    """
    from h5py import h5d, h5g, h5l, h5o

    if kind == h5l.TYPE_SOFT:
        try:
            if not h5o.exists_by_name(file.id, name):
                return f"is a link to nowhere; {COPY}"
        except RuntimeError:
            return f"is a link to itself; {COPY}"
    elif kind != h5l.TYPE_HARD:
        return f"is a link to another file; {COPY}"
    stored = h5o.open(file.id, name)
    if isinstance(stored, h5g.GroupID):
        is_second = kind == h5l.TYPE_SOFT or h5o.get_info(stored).rc > 1
        if is_second and not has_only_datasets(stored):
            return f"is a second link to a group, which may contain itself; {COPY}"
    if kind == h5l.TYPE_SOFT or not isinstance(stored, h5d.DatasetID):
        return ""
    layout = stored.get_create_plist()
    if layout.get_layout() == h5d.VIRTUAL or layout.get_external_count():
        return f"has the values of another file; {COPY}"
    if stored.get_space().get_simple_extent_npoints() * stored.get_type().get_size() > largest:
        return f"claims a size that the file cannot hold; {COPY}"
    for index in range(layout.get_nfilters()):
        code, _, _, title = layout.get_filter(index)
        if not is_available(code):
            return (
                f"is compressed by {title.decode(errors='replace') or 'a filter'} (HDF5 filter "
                f"{code}), which h5py does not have: pip install hdf5plugin, or write the file "
                "with gzip"
            )
    return ""


def has_only_datasets(group: Any) -> bool:
    """Return whether a group contains neither groups nor links to other places."""
    from h5py import h5d, h5l, h5o

    return all(
        group.links.get_info(name).type == h5l.TYPE_HARD
        and isinstance(h5o.open(group, name), h5d.DatasetID)
        for name in group
    )


def is_available(code: int) -> bool:
    """Return whether HDF5 has a filter, if necessary from the package hdf5plugin."""
    from h5py import h5z

    if not h5z.filter_avail(code):
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401
    return bool(h5z.filter_avail(code))


def check_layout(file: Any, path: Path) -> None:
    """Refuse an HDF5 file that is not an h5ad of a current layout."""
    for name in ("obs", "var"):
        if name not in file:
            raise UserError(f"{path}: not an h5ad file ({name} missing); {ADVICE}")
        if "_index" not in file[name].attrs or "__categories" in file[name]:
            raise UserError(
                f"{path}: {name} is not stored as anndata 0.7 and newer store it; read the file "
                "with a newer one and write it again"
            )


def check_column(frame: Any, name: str, path: Path, purpose: str) -> None:
    """Refuse a column that ``obs`` or ``var`` does not have, and name the nearest columns."""
    if name not in frame:
        present = [str(item) for item in frame.attrs["column-order"]]
        raise UserError(
            f"{path}: {frame.name.strip('/').replace('/', '.')} has no column {name!r} for "
            f"{purpose}; its columns: {listed(name, present)}"
        )


def listed(name: str, present: Sequence[str]) -> str:
    """List at most eight of the existing names for a message, the nearest first."""
    close = difflib.get_close_matches(name, present, n=3, cutoff=0.4)
    others = [item for item in present if item not in close]
    return ", ".join(repr(item) for item in [*close, *others][:8]) or "none"


def column(frame: Any, name: str) -> Strings:
    """Read a column of a stored data frame as strings, ``""`` for missing values.

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
    """Read a data frame that anndata stored, or raise ``OSError``."""
    return read(stored, stored.name, length(stored))


def read(stored: Any, title: str, rows: int) -> Any:
    """Read a column or a data frame that anndata stored.

    Args:
        stored: the HDF5 group or dataset.
        title: its name in errors.
        rows: expected number of rows.

    Raises:
        OSError: if it is stored otherwise, or has another number of rows.
        UserError: if a column has a type that a data frame cannot have.
    """
    import h5py
    from anndata.io import read_elem

    for column in stored.values() if isinstance(stored, h5py.Group) else [stored]:
        if not isinstance(column, h5py.Dataset):
            continue
        kind = "references" * bool(h5py.check_ref_dtype(column.dtype))
        kind = "records" if column.dtype.names else kind
        if kind:
            raise UserError(
                f"{stored.file.filename}: {column.name} contains {kind}, which no column of a data "
                "frame can; remove it"
            )
    with reading(title):
        values = read_elem(stored)
        is_complete = len(values) == rows
    if not is_complete:
        raise OSError(f"{title}: not of {rows} rows")
    return values


@contextmanager
def reading(title: str) -> Iterator[None]:
    """Turn errors of anndata about a file's content into ``OSError``.

    Args:
        title: name of the content in errors.
    """
    from anndata._io.specs.registry import IORegistryError

    try:
        yield
    except UnicodeDecodeError:
        raise OSError(f"{title} {NOT_UTF8}") from None
    except (KeyError, ValueError, TypeError, AttributeError, IORegistryError) as error:
        raise OSError(f"{title}: {error}") from error


def length(frame: Any) -> int:
    """Return the number of rows of a stored data frame."""
    import h5py

    index = frame[str(frame.attrs["_index"])]
    if isinstance(index, h5py.Group):  # strings that may be missing, or categories
        index = index["values" if "values" in index else "codes"]
    return len(index)
