"""Write h5ad files: cells of the embedded corpus, and selected cells of other files.

The same input gives the same bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.counts import OWN_ROW, Cells, log_normalized
from scsigmoid.corpus.hdf5 import read_obs
from scsigmoid.corpus.metadata import one_line
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path

SCHEMA_VERSION = "5.0.0"  # of the CELLxGENE schema
# Columns of ``obs`` that the schema requires, each with a value for all cells.
HUMAN = {"organism": "Homo sapiens", "organism_ontology_term_id": "NCBITaxon:9606"}
REQUIRED_OBS = {"tissue_type": "tissue", "disease": "normal", "suspension_type": "cell"}


@dataclass(frozen=True)
class CellTable:
    """Counts and metadata of cells, for :func:`write_cells`."""

    counts: NDArray[np.int64]  # raw, cells x genes
    genes: Sequence[str]  # Ensembl ids
    names: Sequence[str]  # symbols
    obs: Mapping[str, Sequence[str] | str]  # a value per cell, or a value for all cells
    title: str  # of the dataset


def write_cells(path: str | Path, table: CellTable) -> None:
    """Write cells as CELLxGENE does: counts in ``raw.X``, log-normalized values in ``X``.

    Cells are named ``cell_000000`` and so on.
    """
    import anndata
    import pandas as pd
    from scipy.sparse import csr_matrix

    counts = csr_matrix(table.counts.astype(np.float32))
    cell_names = pd.Index([f"cell_{row:06d}" for row in range(len(table.counts))])
    obs = pd.DataFrame({**HUMAN, **table.obs}, index=cell_names).astype("category")
    columns = {
        "feature_name": table.names,
        "feature_biotype": "gene",
        "feature_reference": HUMAN["organism_ontology_term_id"],
    }
    var = pd.DataFrame(columns, index=pd.Index(table.genes)).astype("category")
    adata = anndata.AnnData(
        X=log_normalized(counts).astype(np.float32),
        obs=obs.assign(is_primary_data=True),
        var=var.assign(feature_is_filtered=False),
        uns={"title": table.title, "schema_version": SCHEMA_VERSION},
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


def copy_cells(cells: Cells, source: Path, path: Path, title: str) -> None:
    """Write the selected cells of the file ``source`` as h5ad, with the title of the dataset.

    Counts are in ``X``, and ``obs`` has the column :data:`~.counts.OWN_ROW`.
    """
    import anndata
    import pandas as pd
    from scipy.sparse import vstack

    counts = vstack([chunk.counts for chunk in cells.chunks()], format="csr")
    counts.sort_indices()
    obs = read_obs(source).iloc[cells.rows].copy()
    for name in obs.columns[obs.dtypes == "category"]:
        obs[name] = obs[name].cat.remove_unused_categories()
    obs[OWN_ROW] = cells.rows
    var = pd.DataFrame({"feature_name": cells.names}, index=pd.Index(cells.genes))
    uns = {"title": title, "schema_version": SCHEMA_VERSION}
    values = counts.astype(np.float32)
    if (values.data != counts.data).any():  # above 2^24
        values = counts
    adata = anndata.AnnData(X=values, obs=obs, var=var, uns=uns)
    with storing(str(source)):
        adata.write_h5ad(path, compression="gzip", compression_opts=1)
