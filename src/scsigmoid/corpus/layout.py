"""Writes h5ad files in the CELLxGENE layout (schema 5.0.0), the same bytes every time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.files import atomic_path

SCHEMA = "5.0.0"
HUMAN = {"organism": "Homo sapiens", "organism_ontology_term_id": "NCBITaxon:9606"}
TARGET_SUM = 10_000


@dataclass(frozen=True)
class CellTable:
    """Cells before they are written.

    Attributes:
        counts: raw counts, cells x genes, non-negative integers, dense.
        genes: Ensembl ids of the columns.
        names: symbols of the columns.
        obs: columns of ``obs``, one value a cell.
        title: title of the dataset.
        simulated: whether the cells were simulated.
    """

    counts: NDArray[np.int64]
    genes: Sequence[str]
    names: Sequence[str]
    obs: Mapping[str, Sequence[str]]
    title: str
    simulated: bool


def write_cells(path: str | Path, table: CellTable) -> None:
    """Write cells as CELLxGENE does: counts in ``raw.X``, log-normalised values in ``X``.

    Cells are called ``cell_000000`` and so on.  ``uns["scsigmoid"]`` says whether they are
    simulated.
    """
    import anndata
    import pandas as pd
    from scipy.sparse import csr_matrix

    counts = csr_matrix(table.counts.astype(np.float32))
    totals = np.maximum(table.counts.sum(axis=1), 1)
    normalised = counts.copy()
    scale = np.repeat(TARGET_SUM / totals, np.diff(counts.indptr))
    normalised.data = np.log1p(counts.data * scale).astype(np.float32)

    cells = pd.Index([f"cell_{row:06d}" for row in range(len(totals))])
    columns: dict[str, Any] = {
        name: pd.Categorical(list(values), categories=sorted(set(values)))
        for name, values in {**constant(len(cells), HUMAN), **table.obs}.items()
    }
    obs = pd.DataFrame({**columns, "is_primary_data": True}, index=cells)
    var = pd.DataFrame(
        {
            "feature_name": pd.Categorical(list(table.names), categories=sorted(set(table.names))),
            "feature_biotype": pd.Categorical(["gene"] * len(table.genes)),
            "feature_reference": pd.Categorical(
                [HUMAN["organism_ontology_term_id"]] * len(table.genes)
            ),
        },
        index=pd.Index(table.genes),
    )
    adata = anndata.AnnData(
        X=normalised,
        obs=obs,
        var=var.assign(feature_is_filtered=False),
        uns={
            "title": table.title,
            "schema_version": SCHEMA,
            "scsigmoid": {"simulated": table.simulated, "label": "cell_type", "title": table.title},
        },
    )
    adata.raw = anndata.AnnData(X=counts, var=var, obs=obs[[]])
    with atomic_path(path) as temporary:
        adata.write_h5ad(temporary, compression="gzip", compression_opts=1)


def constant(cells: int, values: Mapping[str, str]) -> dict[str, list[str]]:
    """Columns of ``obs`` that hold one value for all cells."""
    return {name: [value] * cells for name, value in values.items()}
