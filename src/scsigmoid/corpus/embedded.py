"""Make the corpus that ships with the project: 700 real blood cells, and simulated cells.

The real cells are ``scanpy.datasets.pbmc68k_reduced`` (Zheng et al. 2017), read from the installed
package, offline. Its ``raw.X`` stores log(1 + count / total * 10,000), rounded to three decimals,
for 765 genes, and ``obs.n_counts`` the total over all genes of the cell. Hence count =
(exp(x) - 1) * total / 10,000, rounded to the nearest integer. :func:`recover_counts` checks that
the rounded counts give the stored values. scanpy names genes by symbol. ``pbmc68k_genes.csv``
has the Ensembl ids of 760 of these genes in GENCODE v44, the annotation of CELLxGENE.

The simulation follows the paper's section 1 on gene regulation: several regulators drive a gene at
the same time, each through its own enhancer, and do not compete.

1. A *program* is a set of genes under one regulator. A *facet* of cell identity (a lineage, a
   stage, the cell type itself) raises the activity of a few programs. A cell type is the sum of
   its facets. Related types share facets, so they overlap.
2. In a cell, regulator p has activity a_p: the activity in its cell type, times log-normal noise,
   plus a background.
3. Each gene has ``regulators`` enhancers. Enhancer e of regulator p is occupied with probability
   a_p / (1 + a_p) and adds w_e times this probability to the gene's log-rate.
4. Donors shift the log-rates of genes. Counts are gamma-Poisson around library size times rate.
   Dropout then removes a tenth of the non-zero counts.
5. The library size of each cell is set so that the number of expressed genes is log-normal with
   the shape of Fig. 1 (sigma 0.65: 43 % of the cells exceed 128 genes when the median is 115).

The simulated genome consists of the genes of the real cells, so that one vocabulary covers both,
and of made-up genes, ``ENSG90000000000`` and up, a range that Ensembl does not use.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from scsigmoid.config.schema import Dataset, EmbeddedCorpus
from scsigmoid.config.validate import check_known
from scsigmoid.corpus.counts import TARGET_SUM
from scsigmoid.corpus.genes import real_genes
from scsigmoid.corpus.h5ad_writer import REQUIRED_OBS, CellTable, write_cells
from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

REAL_CELLS = 700
REAL_HELD_OUT = 210  # 30 % of the real cells
REAL_TITLE = "PBMC 68k"
# Names of the files with the held-out real cells and with the other real cells.
REAL, REAL_TRAINING = "pbmc68k", "pbmc68k_training"

# The simulation's constants are chosen so that a model of the demo's size learns to separate some
# cell types in a few hundred steps. The first principal components of log counts separate them
# almost perfectly, but the ranks that the model reads contain less information.
# The length of a cell is its expected number of expressed genes.
SIGMA_LENGTH = 0.65  # sigma of the log-normal lengths
SHORTEST, LONGEST_SHARE = 10, 0.8  # smallest length, and largest length as a share of all genes
DROPOUT = 0.1  # probability that a count becomes zero
DISPERSION = 3.0  # shape of the gamma distribution of rates
DONOR_SHIFT = 0.15  # standard deviation of the shifts of log-rates
ACTIVITY_NOISE = 0.3  # sigma of the log-normal noise of activities
BACKGROUND = 0.1  # mean background activity
PROGRAMS_PER_FACET = 2
FACET_ACTIVITY = 2.5  # added to the programs of a facet
TYPE_ACTIVITY = 2.0  # added to the programs of the cell type itself
BASE_SPREAD = 0.8  # standard deviation of log-rates without regulators
ENHANCER_SHAPE, ENHANCER_SCALE = 2.0, 0.8  # gamma distribution of the weights of enhancers
DRIVE = 5.0  # a gene's n weights are multiplied by DRIVE / n: their expected sum is constant

SIMULATED = yaml.safe_load(files(__package__).joinpath("simulated_types.yaml").read_text("utf-8"))
FACETS: dict[str, list[str]] = SIMULATED["facets"]  # of each cell type
DATASETS: dict[str, dict[str, Any]] = SIMULATED["datasets"]  # tissue and types by name


def list_embedded(sizes: EmbeddedCorpus, datasets: Mapping[str, Dataset]) -> list[ManifestRow]:
    """Return the manifest rows of training files and evaluation datasets, without checksums."""
    rows = []
    for index in range(sizes.training_files):
        start = sizes.training_cells * index // sizes.training_files
        end = sizes.training_cells * (index + 1) // sizes.training_files
        title = f"Simulated training cells {index + 1}"
        rows.append(make_row(f"simulated_training_{index:02d}", title, end - start))
    rows.append(make_row(REAL_TRAINING, f"{REAL_TITLE}, training part", REAL_CELLS - REAL_HELD_OUT))
    for name, dataset in datasets.items():
        if dataset.file:  # the user's own file
            continue
        check_known(f"datasets.{name}", "dataset of the embedded corpus", [name], [*DATASETS, REAL])
        cells = REAL_HELD_OUT if name == REAL else sizes.evaluation_cells
        row = make_row(name, dataset.title, cells)
        rows.append(replace(row, role="evaluation", dataset=name, label="", held_out="all"))
    return rows


def make_row(name: str, title: str, cells: int) -> ManifestRow:
    """Return a manifest row, with the role of a training file."""
    return ManifestRow(
        file=name,
        role="training",
        source="embedded",
        location=name,
        title=title,
        organism="Homo sapiens",
        cells=str(cells),
    )


def write_embedded(name: str, sizes: EmbeddedCorpus, seed: int, path: str | Path) -> None:
    """Make the cells of a file of the embedded corpus, and write them as CELLxGENE does.

    ``name`` is the ``location`` in the file's manifest row.
    """
    if name in (REAL, REAL_TRAINING):
        write_cells(path, real_cells(seed, held_out=name == REAL))
        return
    training = {row.file: int(row.cells) for row in list_embedded(sizes, datasets={})}
    if name not in (*DATASETS, *training):
        raise UserError(f"{name}: the embedded corpus has no such file; make the manifest again")
    cells = training.get(name, sizes.evaluation_cells)
    tissue_of_type: dict[str, str] = {}
    # A training file has the cell types of all evaluation datasets.
    for dataset in [name] if name in DATASETS else DATASETS:
        for cell_type in DATASETS[dataset]["types"]:
            # Training cells of a type that occurs in several tissues are from the first tissue.
            tissue_of_type.setdefault(cell_type, DATASETS[dataset]["tissue"])
    write_cells(path, simulate(name, cells, tissue_of_type, sizes, seed))


def recover_counts(raw: Any, totals: NDArray[np.float64]) -> NDArray[np.int64]:
    """Recover counts from ``raw``: log(1 + count / total * 10,000), rounded to three decimals.

    ``raw`` is cells x genes. ``totals`` contains the total count of each cell.
    """
    stored = np.asarray(raw, dtype=np.float64)
    scale = totals[:, None] / TARGET_SUM
    counts = np.rint(np.expm1(stored) * scale)
    # Half a unit of the third decimal, plus the rounding error of float32.
    if np.abs(np.log1p(counts / scale) - stored).max() > 0.000501:
        raise UserError(
            "scanpy.datasets.pbmc68k_reduced: its values differ from the expected ones; "
            "install a scanpy that pyproject.toml allows"
        )
    return counts.astype(np.int64)


def real_cells(seed: int, *, held_out: bool) -> CellTable:
    """Return the held-out real cells (30 %, chosen by the seed) or the other real cells."""
    import scanpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file has an old format
        adata = scanpy.datasets.pbmc68k_reduced()
    genes = real_genes()
    columns = adata.raw.var_names.get_indexer([gene["symbol"] for gene in genes])
    totals = adata.obs["n_counts"].to_numpy(dtype=np.float64)
    counts = recover_counts(adata.raw.X.toarray(), totals)[:, columns]
    order = np.random.default_rng(derive(seed, "embedded", "pbmc68k")).permutation(REAL_CELLS)
    rows = np.sort(order[:REAL_HELD_OUT] if held_out else order[REAL_HELD_OUT:])
    obs = {
        "cell_type": adata.obs["bulk_labels"].astype(str).to_numpy()[rows].tolist(),
        "assay": "10x 3' v1",
        "donor_id": "donor A",
        "tissue": "blood",
        **REQUIRED_OBS,
    }
    ids, names = ([gene[key] for gene in genes] for key in ("gene_id", "feature_name"))
    return CellTable(counts[rows], ids, names, obs, REAL_TITLE)


def draw_genes(sizes: EmbeddedCorpus, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw the properties of the genes, which all simulated cells share.

    Return log-rates without regulators, (genes,), and weights, (genes, programs): how strongly a
    program's regulator drives a gene, 0 if the gene has no enhancer for the regulator.
    """
    generator = np.random.default_rng(derive(seed, "simulated", "genome"))
    base = generator.normal(0.0, BASE_SPREAD, sizes.genes)
    weights = np.zeros((sizes.genes, sizes.programs))
    regulators = min(sizes.regulators, sizes.programs)
    # (genes, regulators): the regulators of each gene, drawn without replacement.
    regulators_of = generator.random(weights.shape).argsort(axis=1)[:, :regulators]
    strength = generator.gamma(ENHANCER_SHAPE, ENHANCER_SCALE, regulators_of.shape)
    np.put_along_axis(weights, regulators_of, strength * DRIVE / regulators, axis=1)
    return base, weights


def type_activity(cell_type: str, programs: int, seed: int) -> NDArray[np.float64]:
    """Return the regulator activities of a cell type, (programs,).

    Programs are assigned to facets in turn, so facets share programs only if there are too few.
    """
    order = np.random.default_rng(derive(seed, "simulated", "programmes")).permutation(programs)
    facets = list(dict.fromkeys(facet for names in FACETS.values() for facet in names))
    activity = np.zeros(programs)
    for facet in FACETS[cell_type]:
        first = PROGRAMS_PER_FACET * facets.index(facet)
        positions = np.arange(first, first + PROGRAMS_PER_FACET) % programs
        # Unlike `+=`, adds several times at a repeated position.
        np.add.at(activity, order[positions], FACET_ACTIVITY)
    generator = np.random.default_rng(derive(seed, "simulated", "type", cell_type))
    own_programs = generator.permutation(programs)[:PROGRAMS_PER_FACET]
    activity[own_programs] += TYPE_ACTIVITY
    return activity


def simulate(
    name: str, cells: int, tissue_of_type: Mapping[str, str], sizes: EmbeddedCorpus, seed: int
) -> CellTable:
    """Simulate the cells of one file, with a seed that depends on its name.

    The first cell type of ``tissue_of_type`` is twice as frequent as the last.
    """
    cell_types = list(tissue_of_type)
    real = real_genes()[: sizes.genes]
    made_up = range(sizes.genes - len(real))
    ids = [*(gene["gene_id"] for gene in real), *(f"ENSG9{index:010d}" for index in made_up)]
    names = [*(gene["feature_name"] for gene in real), *(f"SIM{index}" for index in made_up)]
    base, weights = draw_genes(sizes, seed)
    generator = np.random.default_rng(derive(seed, "simulated", "cells", name))
    frequency = np.linspace(1.0, 0.5, len(cell_types))
    ends = np.rint(np.cumsum(frequency) / frequency.sum() * cells).astype(np.int64)
    cells_per_type = np.diff(ends, prepend=0)
    # (cells,): the type of each cell as an index in `cell_types`, in random order.
    types = generator.permutation(np.repeat(np.arange(len(cell_types)), cells_per_type))
    donors = generator.integers(sizes.donors, size=cells)

    by_type = [type_activity(cell_type, sizes.programs, seed) for cell_type in cell_types]
    noise = np.exp(generator.normal(0.0, ACTIVITY_NOISE, (cells, sizes.programs)))
    background = generator.exponential(BACKGROUND, (cells, sizes.programs))
    activity = np.stack(by_type)[types] * noise + background
    log_rates = base + (activity / (1.0 + activity)) @ weights.T
    log_rates += generator.normal(0.0, DONOR_SHIFT, (sizes.donors, sizes.genes))[donors]
    rates = np.exp(log_rates)
    rates /= rates.sum(axis=1, keepdims=True)

    lengths = sizes.median_length * np.exp(generator.normal(0.0, SIGMA_LENGTH, cells))
    shortest = min(SHORTEST, sizes.genes / 2)  # SHORTEST may exceed a small number of genes
    lengths = np.clip(lengths, shortest, LONGEST_SHARE * sizes.genes)
    library = library_sizes(rates, types, lengths)
    rate_noise = generator.gamma(DISPERSION, 1 / DISPERSION, rates.shape)
    counts = generator.poisson(library[:, None] * rates * rate_noise)
    counts[generator.random(counts.shape) < DROPOUT] = 0
    # Every cell has a transcript, as cell calling ensures in real data.
    empty = counts.sum(axis=1) == 0
    counts[empty, rates[empty].argmax(axis=1)] = 1

    obs = {
        "cell_type": [cell_types[index] for index in types],
        "tissue": [tissue_of_type[cell_types[index]] for index in types],
        "donor_id": [f"{name} donor {index + 1}" for index in donors],
        "assay": "simulated",
        **REQUIRED_OBS,
    }
    return CellTable(counts, ids, names, obs, f"{name} (simulated)")


def library_sizes(
    rates: NDArray[np.float64], types: NDArray[np.int64], lengths: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return library sizes, (cells,), for which the expected numbers of genes are ``lengths``.

    Library sizes are interpolated on a grid, with the mean rates of each cell type. ``rates``,
    (cells, genes), sum to 1 in each cell. ``types`` are the cell types as numbers, (cells,).
    """
    grid = np.exp(np.linspace(np.log(1.0), np.log(1e6), 96))
    library = np.empty(len(lengths))
    for index in np.unique(types):
        is_of_type = types == index
        mean_rates = rates[is_of_type].mean(axis=0)
        # (grid, genes): probability of a count of 0 before dropout.
        zero_probability = (1.0 + grid[:, None] * mean_rates / DISPERSION) ** -DISPERSION
        grid_lengths = (1.0 - DROPOUT) * (1.0 - zero_probability).sum(axis=1)
        library[is_of_type] = np.exp(np.interp(lengths[is_of_type], grid_lengths, np.log(grid)))
    return library
