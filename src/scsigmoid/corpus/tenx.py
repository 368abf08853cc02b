"""Files and folders of 10x Genomics, read as h5ad."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from scsigmoid.config.local_files import LocalFile, problem_of, samples_of
from scsigmoid.corpus.counts import Cells
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.h5ad_writer import storing
from scsigmoid.corpus.hdf5 import has_barcodes, opened
from scsigmoid.corpus.metadata import one_line
from scsigmoid.errors import UserError
from scsigmoid.files import DAMAGE

REMEDY = "give the matrix as Cell Ranger writes it, or an h5ad file"


def is_tenx(path: Path) -> bool:
    """Return True for folders, which must be 10x folders, and ``.h5`` files without ``obs``.

    Raise a UserError if such a file does not have a 10x matrix.
    """
    if path.is_dir():
        return True
    if path.suffix != ".h5":
        return False
    with opened(path, is_h5ad=False) as file:
        if "obs" in file:
            return False
        if not has_barcodes(file):
            raise UserError(f"{path}: not a 10x file or folder that scanpy reads; {REMEDY}")
    return True


def convert_tenx(path: Path, output: Path) -> None:
    """Read a 10x file or folder into memory and write it as h5ad.

    Counts are in ``X``, and gene ids in the index of ``var``. Raise a UserError if scanpy cannot
    read the path, or if a folder does not have exactly one matrix.
    """
    import pandas as pd
    import scanpy

    if problem := problem_of(path):
        raise UserError(f"{path}: {problem}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # names of genes may not be unique
            if path.is_dir():
                [(prefix, names)] = samples_of(path).items()
                adata = scanpy.read_10x_mtx(path, gex_only=False, make_unique=False, prefix=prefix)
                [barcodes] = [path / name.string for name in names if name["cells"]]
                # Read as text, because scanpy reads digits as a number (01 as 1).
                columns = pd.read_csv(
                    barcodes, sep="\t", header=None, usecols=[0], dtype=str, keep_default_na=False
                )
                adata.obs_names = columns[0].tolist()
            else:
                adata = scanpy.read_10x_h5(path, gex_only=False)
    except Exception as error:
        # scanpy raises a bare Exception for a missing dataset.
        if type(error) is not Exception and not isinstance(error, DAMAGE):
            raise
        raise UserError(
            f"{path}: not a 10x file or folder that scanpy reads ({type(error).__name__}: "
            f"{one_line(error)}); {REMEDY}"
        ) from error
    var = {"feature_name": adata.var_names.astype(str).to_numpy()}
    if "feature_types" in adata.var:
        var["feature_types"] = adata.var["feature_types"].astype(str).to_numpy()
    adata.var = pd.DataFrame(var, index=adata.var["gene_ids"].astype(str).to_numpy())
    adata.X = adata.X.tocsr()
    with storing(str(path)):
        adata.write_h5ad(output)


def open_h5ad_files(files: Iterable[LocalFile]) -> Iterator[tuple[LocalFile, Cells]]:
    """Open the user's h5ad files. 10x files are left out, because their conversion takes long."""
    for file in files:
        if not is_tenx(file.path):
            yield file, open_cells(file.path, layer=file.layer, genes=file.genes)


@contextmanager
def as_h5ad(path: Path) -> Iterator[Path]:
    """Yield an h5ad file itself, or a temporary h5ad file with the content of a 10x file.

    Readers of the temporary file get ``path`` as title for messages.
    """
    if not is_tenx(path):
        yield path
        return
    with TemporaryDirectory(prefix="scsigmoid-") as folder:
        copy = Path(folder) / f"{path.stem}.h5ad"
        convert_tenx(path, copy)
        yield copy
