"""Open h5ad files, refuse unsafe ones, and read columns of their data frames."""

import math
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from scsigmoid.corpus.genes import Strings
from scsigmoid.errors import UserError

FALSE = ("False", "FALSE", "false", "0", "0.0")  # spellings of false in columns of text
ADVICE = (  # end of several messages
    "give an h5ad file (not compressed as .gz), a 10x .h5 file or a folder with 10x's matrix.mtx; "
    "convert other formats with anndata.io"
)
REWRITE = "read it with anndata.read_h5ad and write it again"
# A dataset or a chunk may be this many times as large as the file, plus ALWAYS_ALLOWED bytes.
# Deflate shrinks data at most 1,032-fold, but the counts of a whole chunk much less.
LARGEST_RATIO, LARGEST_CHUNK_RATIO, ALWAYS_ALLOWED = 1100, 64, 1 << 26
# Other kinds of files, and what to do, by names that all files of the kind contain.
OTHER_KINDS = {
    ("mod",): (
        "a MuData file (.h5mu)",
        "write a modality: mudata.read_h5mu(...)['rna'].write_h5ad",
    ),
    ("row_attrs", "col_attrs"): ("a loom file", "convert it: anndata.io.read_loom(...).write_h5ad"),
    ("assays", "cell.names"): ("an h5Seurat file", "convert it: SeuratDisk::Convert(dest='h5ad')"),
}


@contextmanager
def opened(path: Path, title: str = "", *, is_h5ad: bool = True) -> Iterator[Any]:
    """Open an HDF5 file for reading, if possible with the filters of the package hdf5plugin.

    Raise an error if the file is missing, damaged or unsafe, or if reading it fails in the block.
    If ``is_h5ad``, also raise an error if it is not an h5ad file. ``title`` is the name of the file
    in messages (default: its path).
    """
    import h5py

    title = title or str(path)
    with suppress(ImportError):
        import hdf5plugin  # noqa: F401
    if path.is_dir():
        raise UserError(f"{title}: a folder, not an h5ad file; {ADVICE}")
    if not path.is_file():
        raise UserError(f"{title}: no such file; correct the path or make the file again")
    try:
        with h5py.File(path, "r") as file:
            check_contents(file, path, title)
            if is_h5ad:
                check_layout(file, title)
            yield file
    except PermissionError:
        raise UserError(f"{title}: may not be read; change its permissions") from None
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
        if not isinstance(error, (OSError, KeyError)) and "h5py" not in raised_in:
            raise  # a mistake in the block, not a damaged file
        if not h5py.is_hdf5(path):
            raise UserError(f"{title}: not an h5ad file; {ADVICE}") from None
        reason = " ".join(str(error).split())
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise UserError(
                f"{title}: {reason}; write the file again, with text in UTF-8"
            ) from None
        if "plugin" in reason or "not registered" in reason:  # HDF5's messages for missing filters
            raise UserError(
                f"{title}: compressed by a filter that h5py does not have, such as zstd; "
                "pip install hdf5plugin, or write the file with gzip"
            ) from None
        raise UserError(f"{title}: damaged ({reason}); copy or download it again") from error


def check_contents(file: Any, path: Path, title: str) -> None:
    """Raise an error if a part of a file is in another file or cannot be as large as declared.

    HDF5 would follow external links, external storage and virtual datasets to any file that the
    user may read, and would return zeros if the other file is missing. All hard links are visited,
    so soft links and references lead to datasets that are checked, too. ``title`` is the name of
    the file in messages.
    """
    from h5py import h5d, h5g, h5i, h5l, h5o

    file_size = path.stat().st_size
    root = h5g.open(file.id, b"/")
    waiting, visited = [(root, list(root))], set()
    while waiting:
        group, names = waiting.pop()
        for name in names:
            link, fault = group.links.get_info(name), ""
            if link.type == h5l.TYPE_HARD and link.u not in visited:
                visited.add(link.u)  # the address of the object
                try:
                    stored = h5o.open(group, name)
                    if isinstance(stored, h5g.GroupID):
                        waiting.append((stored, list(stored)))
                except (KeyError, OSError, RuntimeError, ValueError):
                    continue  # damaged: reading it raises an error, but it may not be needed
                if isinstance(stored, h5d.DatasetID):
                    fault = find_fault(stored, file_size)
            elif link.type not in (h5l.TYPE_HARD, h5l.TYPE_SOFT):
                fault = f"is a link to another file; {REWRITE}"
            if fault:
                place = b"/".join([h5i.get_name(group).strip(b"/"), name]).strip(b"/")
                raise UserError(f"{title}: {place.decode(errors='backslashreplace')!r} {fault}")


def find_fault(stored: Any, file_size: int) -> str:
    """Return why a dataset (an h5py ``DatasetID``) is unsafe and advice, or "" if it is safe.

    ``file_size`` is the size of its file in bytes.
    """
    from h5py import h5d

    properties, value_size = stored.get_create_plist(), stored.get_type().get_size()
    layout, largest = properties.get_layout(), LARGEST_RATIO * file_size + ALWAYS_ALLOWED
    if layout == h5d.VIRTUAL or properties.get_external_count():
        return f"has the values of another file; {REWRITE}"
    if math.prod(stored.shape or ()) * value_size > largest:
        return "declares more values than the file can contain; copy or download the file again"
    if layout == h5d.CHUNKED:
        chunk_size = math.prod(properties.get_chunk()) * value_size
        if chunk_size > LARGEST_CHUNK_RATIO * file_size + ALWAYS_ALLOWED:
            return (
                f"has chunks of {chunk_size / 1e6:,.0f} MB in a file of {file_size / 1e6:,.1f} MB; "
                "write it with smaller chunks"
            )
    return ""


def check_layout(file: Any, title: str) -> None:
    """Raise an error if an HDF5 file is not an h5ad file, or has an old layout."""
    import h5py

    for names, (kind, advice) in OTHER_KINDS.items():
        if all(name in file for name in names):
            raise UserError(f"{title}: {kind}, not an h5ad file; {advice}")
    if "obs" not in file and has_barcodes(file):
        raise UserError(
            f"{title}: a 10x file, not an h5ad file; rename it so that it ends with .h5"
        )
    for name in ("obs", "var", *(["raw/var"] if "raw/var" in file else [])):
        if name not in file:
            raise UserError(f"{title}: not an h5ad file ({name} missing); {ADVICE}")
        if isinstance(file[name], h5py.Dataset):
            raise UserError(f"{title}: {name} has the layout of anndata 0.6 and older; {REWRITE}")
        if "_index" not in file[name].attrs or "column-order" not in file[name].attrs:
            raise UserError(f"{title}: {name} is not a data frame as anndata writes it; {ADVICE}")


def has_barcodes(file: Any) -> bool:
    """Return whether an open HDF5 file has a matrix of 10x: a group with ``barcodes``."""
    import h5py

    return any(isinstance(item, h5py.Group) and "barcodes" in item for item in file.values())


def attribute_text(value: Any) -> str:
    """Return an attribute as text. HDF5.jl of Julia writes bytes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def index_name(frame: Any) -> str:
    """Return the name of the index of a stored data frame."""
    return attribute_text(frame.attrs["_index"])


def column_names(frame: Any) -> list[str]:
    """Return the names of the columns of a stored data frame, in order."""
    import h5py

    names = frame.attrs["column-order"]
    if isinstance(names, h5py.Empty):
        return []
    return [*map(attribute_text, np.atleast_1d(names))]  # the name of one column may be a scalar


class StoredFrame:
    """A data frame of an h5ad file (:class:`scsigmoid.corpus.genes.Frame`)."""

    def __init__(self, stored: Any, title: str) -> None:
        """``stored`` is the HDF5 group, and ``title`` the name of the file in messages."""
        self.stored = stored
        self.name = stored.name.strip("/").replace("/", ".")
        self.columns = column_names(stored)
        self._title = title

    def __len__(self) -> int:
        return count_values(self.stored[index_name(self.stored)])

    def __contains__(self, column: str) -> bool:
        return column in self.stored

    def is_text(self, column: str) -> bool:
        """Return whether a column can be read and is not an array of numbers."""
        stored = self.stored[column]
        is_number = hasattr(stored, "dtype") and stored.dtype.kind in "biuf"
        is_categorical = "categories" in stored.attrs  # the numbers are codes, in anndata 0.7
        return has_value_per_row(stored) and (is_categorical or not is_number)

    def read(self, column: str = "") -> Strings:
        """Return a column, by default the index, as text, with ``""`` for missing values.

        Raise a UserError for an unsupported dtype or shape, and an OSError for damaged values.
        """
        import pandas as pd

        values = read_values(self.stored, column or index_name(self.stored), self._title)
        if isinstance(values, pd.Categorical):
            return np.array([*map(str, values.categories), ""], dtype=object)[values.codes]
        series = pd.Series(values)
        return np.where(series.isna(), "", series.astype(str)).astype(object)


def read_values(frame: Any, name: str, file_title: str) -> Any:
    """Read a column of a stored data frame as an array that anndata can write.

    Raise a UserError for an unsupported dtype or shape, and an OSError for damaged values.
    ``file_title`` is the name of the file in messages.
    """
    import h5py
    import pandas as pd

    stored, title = frame[name], f"column {name!r}"
    if not has_value_per_row(stored):
        raise UserError(
            f"{file_title}: {title} of {frame.name.strip('/')} must have one text, number or "
            "category per row; convert or remove it"
        )
    rows = count_values(frame[index_name(frame)])
    if count_values(stored) != rows:
        raise OSError(f"{title}: does not have {rows} rows")
    with reading(title), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata's, about old layouts
        if isinstance(stored, h5py.Dataset) and "categories" in stored.attrs:  # anndata 0.7
            categories = frame["__categories"][name]
            is_ordered = bool(categories.attrs.get("ordered", False))
            values = pd.Categorical.from_codes(
                stored[()], read_array(categories), ordered=is_ordered
            )
            return replace_string_dtypes(values)
        return read_array(stored)


def read_array(stored: Any) -> Any:
    """Read a dataset, or a group with an array as anndata writes it.

    Text is UTF-8, even if the file does not say so.
    """
    import h5py
    from anndata.io import read_elem

    if isinstance(stored, h5py.Group):
        return replace_string_dtypes(read_elem(stored))
    is_text = h5py.check_string_dtype(stored.dtype) is not None
    return stored.asstr("utf-8")[()] if is_text else stored[()]


def replace_string_dtypes(values: Any) -> Any:
    """Return an array without string dtypes of pandas, which anndata does not write by default.

    Strings become objects, or categories if values are missing.
    """
    import pandas as pd

    if values.dtype.type is str:  # of all string dtypes of pandas
        if not values.isna().any():
            return values.astype(object)
        values = pd.Categorical(values)
    if isinstance(values, pd.Categorical) and values.categories.dtype.kind in "OU":
        texts = [x.decode() if isinstance(x, bytes) else x for x in values.categories]
        categories = pd.Index(texts, dtype=object)
        return pd.Categorical.from_codes(values.codes, categories, ordered=values.ordered)
    return values


def has_value_per_row(stored: Any) -> bool:
    """Return whether a stored column has a text, a number or a category for each row."""
    import h5py

    if isinstance(stored, h5py.Group):  # "codes" of categories, or "values" that may be missing
        return "codes" in stored or "values" in stored
    if not isinstance(stored, h5py.Dataset):  # a dtype with a name
        return False
    is_text = h5py.check_string_dtype(stored.dtype) is not None
    return stored.ndim == 1 and (is_text or stored.dtype.kind in "biuf")


def read_obs(path: Path, title: str = "") -> Any:
    """Return ``obs`` of an h5ad file, as a data frame that anndata can write with default settings.

    ``title`` is the name of the file in messages (default: its path).
    """
    import pandas as pd

    title = title or str(path)
    with opened(path, title) as file:
        obs = file["obs"]
        name = index_name(obs)
        values = read_values(obs, name, title)
        index = pd.Index(values, dtype=values.dtype, name=None if name == "_index" else name)
        columns = {}
        for name in column_names(obs):
            values = read_values(obs, name, title)
            columns[name] = pd.Series(values, index, dtype=values.dtype)
        return pd.DataFrame(columns, index)


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


def count_values(stored: Any) -> int:
    """Return the number of values of a stored column, without reading them."""
    import h5py

    if isinstance(stored, h5py.Group):  # values that may be missing, or categories
        stored = stored["values" if "values" in stored else "codes"]
    if not isinstance(stored, h5py.Dataset):
        raise OSError(f"{stored.name}: not an array")
    return len(stored)
