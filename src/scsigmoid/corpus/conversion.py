"""Files that are made of the user's: h5ad of what 10x's hold, and of some cells of an h5ad."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from scsigmoid.config.local_files import files_of
from scsigmoid.corpus.foreign import one_line
from scsigmoid.corpus.h5ad import Cells
from scsigmoid.corpus.layout import SCHEMA
from scsigmoid.corpus.storage import data_frame, opened
from scsigmoid.errors import UserError, naming
from scsigmoid.files import sha256

# Column of ``obs`` of such a copy: rows of the user's file, which messages number.
OWN_ROW = "scsigmoid_row"


def is_tenx(path: Path) -> bool:
    """Whether a path is a folder with a matrix, or an ``.h5`` that is no h5ad by another name."""
    if path.is_dir():
        return bool(files_of(path))
    if path.suffix != ".h5":
        return False
    with opened(path) as file:
        return "obs" not in file


def convert(path: Path, output: Path) -> None:
    """Write a 10x file or folder as h5ad: counts in ``X``, gene ids in the index of ``var``.

    Args:
        path: an ``.h5`` or a folder with matrix, barcodes and features; held in memory.
        output: the h5ad file, with ``feature_name`` and, where there are some, ``feature_types``.

    Raises:
        UserError: for what scanpy cannot read.
    """
    import warnings

    import pandas as pd
    import scanpy

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that are not unique
            if path.is_dir():
                matrix = next(file for file in files_of(path) if "matrix.mtx" in file.name)
                prefix = matrix.name.partition("matrix.mtx")[0]
                adata = scanpy.read_10x_mtx(path, gex_only=False, make_unique=False, prefix=prefix)
            else:
                adata = scanpy.read_10x_h5(path, gex_only=False)
            var = {"feature_name": adata.var_names.astype(str).to_numpy()}
            if "feature_types" in adata.var:
                var["feature_types"] = adata.var["feature_types"].astype(str).to_numpy()
            adata.var = pd.DataFrame(var, index=adata.var["gene_ids"].astype(str).to_numpy())
            adata.X = adata.X.tocsr()
            adata.write_h5ad(output)
    except Exception as error:  # of many kinds, for what is stored otherwise
        raise UserError(
            f"{path}: not a 10x file or folder that scanpy reads ({type(error).__name__}: "
            f"{one_line(error)}); give the matrix as Cell Ranger writes it, or an h5ad file"
        ) from error


@contextmanager
def as_h5ad(path: Path) -> Iterator[Path]:
    """The file itself or, of what is 10x's, a temporary h5ad while the block runs."""
    if not is_tenx(path):
        yield path
        return
    with TemporaryDirectory(prefix="scsigmoid-") as folder:
        copy = Path(folder) / f"{path.stem}.h5ad"
        convert(path, copy)
        with naming(copy, str(path)):
            yield copy


def fingerprint(path: Path) -> tuple[str, int]:
    """SHA-256 and bytes of a file, or of the files of a folder together."""
    found = [(sha256(file), file) for file in files_of(path)]
    size = sum(file.stat().st_size for _, file in found)
    if not path.is_dir():
        return found[0][0], size
    lines = "".join(f"{digest}  {file.name}\n" for digest, file in found)
    return hashlib.sha256(lines.encode()).hexdigest(), size


def copy_cells(cells: Cells, path: Path, title: str) -> None:
    """Write the selected cells: all columns of ``obs`` and their rows, raw counts in ``X``.

    Args:
        cells: what to copy; held in memory meanwhile.
        path: the h5ad file to write.
        title: goes into ``uns``.
    """
    import anndata
    import numpy as np
    import pandas as pd
    from scipy.sparse import vstack

    counts = vstack([chunk.counts for chunk in cells.chunks()], format="csr")
    with opened(cells.path) as file:
        obs = data_frame(file["obs"]).iloc[cells.rows].copy()
    for name in obs.columns[obs.dtypes == "category"]:
        obs[name] = obs[name].cat.remove_unused_categories()
    obs[OWN_ROW] = cells.rows
    adata = anndata.AnnData(
        X=counts.astype(np.float32),
        obs=obs,
        var=pd.DataFrame({"feature_name": cells.names}, index=pd.Index(cells.genes)),
        uns={
            "title": title,
            "schema_version": SCHEMA,
            "scsigmoid": {"simulated": False, "title": title},
        },
    )
    adata.write_h5ad(path, compression="gzip", compression_opts=1)
