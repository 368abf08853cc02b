"""Copies the held-out cells of a user's file to a file of their own."""

from pathlib import Path

from scsigmoid.corpus.h5ad import Cells
from scsigmoid.corpus.layout import SCHEMA
from scsigmoid.corpus.storage import data_frame, opened


def copy_cells(cells: Cells, path: Path, title: str) -> None:
    """Write the selected cells: all columns of ``obs``, raw counts in ``X``.

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
        obs = data_frame(file["obs"]).iloc[cells.rows]
    for name in obs.columns[obs.dtypes == "category"]:
        obs[name] = obs[name].cat.remove_unused_categories()
    adata = anndata.AnnData(
        X=counts.astype(np.float32),
        obs=obs,
        var=pd.DataFrame({"feature_name": cells.names}, index=pd.Index(cells.genes)),
        uns={
            "title": title,
            "schema_version": SCHEMA,
            "scsigmoid": {"simulated": False, "label": cells.label, "title": title},
        },
    )
    adata.write_h5ad(path, compression="gzip", compression_opts=1)
