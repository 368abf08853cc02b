"""The 700 real blood cells that scanpy ships, with their counts recovered.

``scanpy.datasets.pbmc68k_reduced`` (Zheng et al. 2017) is read from the installed package, offline.
Its ``raw.X`` holds log(1 + count / total * 10,000), rounded to three decimals, for 765 genes, and
``obs.n_counts`` the total over all genes of the cell.  Hence count = (exp(x) - 1) * total / 10,000,
rounded to the next integer; recomputing x from the rounded counts gives the stored values back, and
:func:`recovered_counts` checks that it does.  The totals that the rest of the project computes are
those of the genes at hand, a fifth of each cell's transcripts.

scanpy names genes by symbol; ``pbmc68k_genes.csv`` gives their Ensembl ids in GENCODE v44, the
annotation of CELLxGENE.  Five genes that it no longer holds are left out.
"""

import csv
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.layout import TARGET_SUM, CellTable, constant
from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

CELLS = 700
HELD_OUT = 210  # 30 %
TITLE = "PBMC 68k"


def real_genes() -> list[tuple[str, str, str]]:
    """Symbol in scanpy's file, Ensembl id and GENCODE v44 name of the 760 genes, by symbol."""
    text = files("scsigmoid.corpus").joinpath("pbmc68k_genes.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [(row["symbol"], row["gene_id"], row["feature_name"]) for row in rows]


def recovered_counts(raw: Any, totals: NDArray[np.float64]) -> NDArray[np.int64]:
    """Recover integer counts from log(1 + count / total * 10,000).

    Args:
        raw: stored values, cells x genes, rounded to three decimals.
        totals: total count of each cell.

    Returns:
        Counts, cells x genes.

    Raises:
        UserError: if the stored values do not come from integers.
    """
    stored = np.asarray(raw, dtype=np.float64)
    scale = totals[:, None] / TARGET_SUM
    counts = np.rint(np.expm1(stored) * scale)
    # half a unit of the third decimal, and what float32 adds
    if np.abs(np.log1p(counts / scale) - stored).max() > 0.000501:
        raise UserError(
            "scanpy.datasets.pbmc68k_reduced: its values are not the ones expected; "
            "install a scanpy that pyproject.toml allows"
        )
    return counts.astype(np.int64)


def real_cells(seed: int, *, held_out: bool) -> CellTable:
    """The training part (70 %) or the held-out part (30 %) of the real cells.

    Args:
        seed: the configuration's seed; decides the split.
        held_out: which part.
    """
    import warnings

    import scanpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the file's age
        adata = scanpy.datasets.pbmc68k_reduced()
    genes = real_genes()
    kept = adata.raw.var_names.get_indexer([symbol for symbol, _, _ in genes])
    stored = adata.raw.X.toarray()
    counts = recovered_counts(stored, adata.obs["n_counts"].to_numpy(dtype=np.float64))[:, kept]
    order = np.random.default_rng(derive(seed, "embedded", "pbmc68k")).permutation(CELLS)
    rows = np.sort(order[:HELD_OUT] if held_out else order[HELD_OUT:])
    obs = {
        "cell_type": adata.obs["bulk_labels"].astype(str).to_numpy()[rows].tolist(),
        **constant(
            len(rows),
            {
                "assay": "10x 3' v1",
                "donor_id": "donor A",
                "tissue": "blood",
                "tissue_type": "tissue",
                "disease": "normal",
                "suspension_type": "cell",
            },
        ),
    }
    return CellTable(
        counts=counts[rows],
        genes=[identifier for _, identifier, _ in genes],
        names=[name for _, _, name in genes],
        obs=obs,
        title=TITLE,
        simulated=False,
    )
