"""The corpus that ships with the project: 700 real blood cells, and simulated ones.

A *recipe* names what a file of it holds; the manifest gives the recipe as the file's location.

The real cells are ``scanpy.datasets.pbmc68k_reduced`` (Zheng et al. 2017), read from the installed
package, offline.  Its ``raw.X`` holds log(1 + count / total * 10,000), rounded to three decimals,
for 765 genes, and ``obs.n_counts`` the total over all genes of the cell.  Hence count =
(exp(x) - 1) * total / 10,000, rounded to the next integer; :func:`recovered_counts` checks that the
rounded counts give the stored values back.  scanpy names genes by symbol; ``pbmc68k_genes.csv``
gives their Ensembl ids in GENCODE v44, the annotation of CELLxGENE.  Five genes that it no longer
holds are left out.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.config.schema import Dataset, EmbeddedCorpus
from scsigmoid.corpus.h5ad_writer import ORDINARY, TARGET_SUM, CellTable, write_cells
from scsigmoid.corpus.simulate import DATASETS, real_genes, simulate
from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

CELLS = 700
HELD_OUT = 210  # 30 %
TITLE = "PBMC 68k"
REAL = "pbmc68k"
REAL_TRAINING = "pbmc68k_training"
TRAINING = "simulated_training_"


@dataclass(frozen=True)
class Recipe:
    """One file of the embedded corpus."""

    name: str
    title: str
    cells: int
    simulated: bool


def training_recipes(sizes: EmbeddedCorpus) -> list[Recipe]:
    """The training files: simulated ones, and the larger part of the real cells."""
    files, cells = sizes.training_files, sizes.training_cells
    simulated = [
        Recipe(
            f"{TRAINING}{index:02d}",
            f"Simulated training cells {index + 1}",
            cells * (index + 1) // files - cells * index // files,
            True,
        )
        for index in range(files)
    ]
    return [*simulated, Recipe(REAL_TRAINING, f"{TITLE}, training part", CELLS - HELD_OUT, False)]


def evaluation_recipe(name: str, dataset: Dataset, sizes: EmbeddedCorpus) -> Recipe:
    if name == REAL:
        return Recipe(REAL, dataset.title, HELD_OUT, False)
    if name in DATASETS:
        return Recipe(name, dataset.title, sizes.evaluation_cells, True)
    raise UserError(
        f"datasets.{name}: the embedded corpus has no such dataset; "
        f"expected one of {', '.join([*DATASETS, REAL])}"
    )


def write_recipe(name: str, sizes: EmbeddedCorpus, seed: int, path: str | Path) -> None:
    """Make the cells of a recipe and write them in the CELLxGENE layout."""
    if name in (REAL, REAL_TRAINING):
        write_cells(path, real_cells(seed, held_out=name == REAL))
        return
    training = {recipe.name: recipe for recipe in training_recipes(sizes)}
    if name in DATASETS:
        cells, dataset = sizes.evaluation_cells, DATASETS[name]
        tissues = dict.fromkeys(dataset.cell_types, dataset.tissue)
    elif name in training:
        cells, tissues = training[name].cells, {}
        # a cell type that occurs in several tissues is trained on in the first of them
        for dataset in DATASETS.values():
            for cell_type in dataset.cell_types:
                tissues.setdefault(cell_type, dataset.tissue)
    else:
        raise UserError(f"{name}: the embedded corpus has no such file; make the manifest again")
    write_cells(path, simulate(name, cells, tissues, sizes, seed))


def recovered_counts(raw: Any, totals: NDArray[np.float64]) -> NDArray[np.int64]:
    """Recover integer counts from log(1 + count / total * 10,000).

    ``raw`` (cells x genes) is rounded to three decimals, ``totals`` are the cells' counts.

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
    """The training part (70 %) or the held-out part (30 %) of the real cells, split by the seed."""
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
        "assay": "10x 3' v1",
        "donor_id": "donor A",
        "tissue": "blood",
        **ORDINARY,
    }
    _, identifiers, names = zip(*genes, strict=True)
    return CellTable(counts[rows], identifiers, names, obs, TITLE, simulated=False)
