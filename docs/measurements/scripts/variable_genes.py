"""Write the ids of the most variable genes of several files, one per line.

    python docs/measurements/scripts/variable_genes.py results/data/*.h5ad --output genes.txt

Genes are ranked by scanpy (flavor ``seurat``, counts per 10,000, each file is a batch). A gene that
a file does not contain has no counts there.
"""

import argparse
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scanpy as sc


def read_counts(path: Path) -> anndata.AnnData:
    """Return the raw counts of a file in float32, with the name of the file in ``obs``."""
    cells = anndata.read_h5ad(path)
    source = cells.raw or cells
    names = [f"{path.stem} {cell}" for cell in cells.obs_names]
    return anndata.AnnData(
        source.X.astype(np.float32),
        obs=pd.DataFrame({"file": path.stem}, index=names),
        var=pd.DataFrame(index=source.var_names),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="h5ad files, genes by Ensembl id")
    parser.add_argument("--genes", type=int, default=3000)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    cells = anndata.concat([read_counts(path) for path in options.files], join="outer")
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    sc.pp.highly_variable_genes(cells, n_top_genes=options.genes, batch_key="file")
    genes = cells.var_names[cells.var["highly_variable"]]
    options.output.write_text("\n".join(sorted(genes)) + "\n")


if __name__ == "__main__":
    main()
