"""Write h5ad files: cells of the embedded corpus, 10x files, and selected cells of other files.

The same input gives the same bytes.
"""

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from scsigmoid.config.local_files import files_of, problem_of, samples_of
from scsigmoid.corpus.h5ad import Cells
from scsigmoid.corpus.hdf5 import opened, read_data_frame
from scsigmoid.corpus.metadata import one_line
from scsigmoid.errors import UserError, shown_as
from scsigmoid.files import DAMAGE, atomic_path, sha256

SCHEMA_VERSION = "5.0.0"  # of the CELLxGENE schema
# Columns of ``obs`` that the schema requires, each with a value for all cells.
HUMAN = {"organism": "Homo sapiens", "organism_ontology_term_id": "NCBITaxon:9606"}
REQUIRED_OBS = {"tissue_type": "tissue", "disease": "normal", "suspension_type": "cell"}
TARGET_SUM = 10_000  # total of a cell's normalized values
# Column of ``obs`` in copies of selected cells: row of the cell in the user's file, for messages.
OWN_ROW = "scsigmoid_row"


@dataclass(frozen=True)
class CellTable:
    """Counts and metadata of cells, for :func:`write_cells`."""

    counts: NDArray[np.int64]  # raw, cells x genes
    genes: Sequence[str]  # Ensembl ids
    names: Sequence[str]  # symbols
    obs: Mapping[str, Sequence[str] | str]  # a value per cell, or a value for all cells
    title: str  # of the dataset
    simulated: bool


def write_cells(path: str | Path, table: CellTable) -> None:
    """Write cells as CELLxGENE does: counts in ``raw.X``, log-normalized values in ``X``.

    Cells are named ``cell_000000`` and so on. ``uns["scsigmoid"]`` says whether they are simulated.
    """
    import anndata
    import pandas as pd
    from scipy.sparse import csr_matrix

    counts = csr_matrix(table.counts.astype(np.float32))
    totals = np.maximum(table.counts.sum(axis=1), 1)  # avoids a division by 0
    normalized = counts.copy()
    scale = np.repeat(TARGET_SUM / totals, np.diff(counts.indptr))
    normalized.data = np.log1p(counts.data * scale).astype(np.float32)

    cell_names = pd.Index([f"cell_{row:06d}" for row in range(len(totals))])
    obs = pd.DataFrame({**HUMAN, **table.obs}, index=cell_names).astype("category")
    columns = {
        "feature_name": table.names,
        "feature_biotype": "gene",
        "feature_reference": HUMAN["organism_ontology_term_id"],
    }
    var = pd.DataFrame(columns, index=pd.Index(table.genes)).astype("category")
    metadata = {"simulated": table.simulated, "label": "cell_type", "title": table.title}
    adata = anndata.AnnData(
        X=normalized,
        obs=obs.assign(is_primary_data=True),
        var=var.assign(feature_is_filtered=False),
        uns={"title": table.title, "schema_version": SCHEMA_VERSION, "scsigmoid": metadata},
    )
    adata.raw = anndata.AnnData(X=counts, var=var, obs=obs[[]])
    with storing(str(path)), atomic_path(path) as temporary:
        adata.write_h5ad(temporary, compression="gzip", compression_opts=1)


@contextmanager
def storing(title: str) -> Iterator[None]:
    """Raise a ``UserError`` that names ``title`` if anndata cannot write an h5ad file.

    In the block, anndata writes strings as pandas stores them. By default, it refuses the strings
    of pandas 3 (``future.infer_string``), because anndata 0.10 and older cannot read them.
    """
    import anndata
    from anndata._io.specs.registry import IORegistryError

    try:
        with anndata.settings.override(allow_write_nullable_strings=True):
            yield
    except (TypeError, ValueError, IORegistryError) as error:
        # anndata adds a note with the element of the file that cannot be written.
        where = next(iter(getattr(error, "__notes__", [])), "")
        raise UserError(
            f"{title}: cannot be stored as h5ad: {one_line(f'{error}. {where}')}; convert or "
            "remove that part"
        ) from error


def is_tenx(path: Path) -> bool:
    """Return whether a path is a folder, which must be a 10x folder, or an ``.h5`` file without
    ``obs``.
    """
    if path.is_dir():
        return True
    if path.suffix != ".h5":
        return False
    with opened(path, is_h5ad=False) as file:
        return "obs" not in file


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
                [prefix] = samples_of(path)
                adata = scanpy.read_10x_mtx(path, gex_only=False, make_unique=False, prefix=prefix)
            else:
                adata = scanpy.read_10x_h5(path, gex_only=False)
    except Exception as error:
        # scanpy raises a bare Exception for a missing dataset.
        if type(error) is not Exception and not isinstance(error, DAMAGE):
            raise
        raise UserError(
            f"{path}: not a 10x file or folder that scanpy reads ({type(error).__name__}: "
            f"{one_line(error)}); give the matrix as Cell Ranger writes it, or an h5ad file"
        ) from error
    var = {"feature_name": adata.var_names.astype(str).to_numpy()}
    if "feature_types" in adata.var:
        var["feature_types"] = adata.var["feature_types"].astype(str).to_numpy()
    adata.var = pd.DataFrame(var, index=adata.var["gene_ids"].astype(str).to_numpy())
    adata.X = adata.X.tocsr()
    with storing(str(path)):
        adata.write_h5ad(output)


@contextmanager
def as_h5ad(path: Path) -> Iterator[Path]:
    """Yield an h5ad file itself, or a temporary h5ad file with the content of a 10x file."""
    if not is_tenx(path):
        yield path
        return
    with TemporaryDirectory(prefix="scsigmoid-") as folder:
        copy = Path(folder) / f"{path.stem}.h5ad"
        convert_tenx(path, copy)
        with shown_as(copy, str(path)):
            yield copy


def fingerprint(path: Path) -> tuple[str, int]:
    """Return the SHA-256 and the size in bytes of a file, or of all files of a 10x folder.

    The SHA-256 of a folder is the SHA-256 of a list of its files, as ``sha256sum`` prints it.
    """
    if not path.is_dir():
        return sha256(path), path.stat().st_size
    files = files_of(path)
    lines = "".join(f"{sha256(file)}  {file.name}\n" for file in files)
    size = sum(file.stat().st_size for file in files)
    return hashlib.sha256(lines.encode()).hexdigest(), size


def copy_cells(cells: Cells, path: Path, title: str) -> None:
    """Write the selected cells as h5ad: counts in ``X``, and ``obs`` with :data:`OWN_ROW`."""
    import anndata
    import pandas as pd
    from scipy.sparse import vstack

    counts = vstack([chunk.counts for chunk in cells.chunks()], format="csr")
    counts.sort_indices()
    with opened(cells.path) as file:
        obs = read_data_frame(file["obs"]).iloc[cells.rows].copy()
    for name in obs.columns[obs.dtypes == "category"]:
        obs[name] = obs[name].cat.remove_unused_categories()
    obs[OWN_ROW] = cells.rows
    var = pd.DataFrame({"feature_name": cells.names}, index=pd.Index(cells.genes))
    metadata = {"simulated": False, "title": title}
    uns = {"title": title, "schema_version": SCHEMA_VERSION, "scsigmoid": metadata}
    adata = anndata.AnnData(X=counts.astype(np.float32), obs=obs, var=var, uns=uns)
    with storing(str(cells.path)):
        adata.write_h5ad(path, compression="gzip", compression_opts=1)
