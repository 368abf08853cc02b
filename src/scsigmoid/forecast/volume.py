"""The amount of data of a configuration: from its files or manifest, or estimated."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scsigmoid.config.initial import initial_header
from scsigmoid.config.local_files import expand, files_of, own_files
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.corpus.cell_types import choose_label
from scsigmoid.corpus.counts import Cells
from scsigmoid.corpus.embedded import list_embedded
from scsigmoid.corpus.genes import compare_genes, organism_of, with_shared_ids
from scsigmoid.corpus.held_out import held_out_text, select_role
from scsigmoid.corpus.metadata import ManifestRow, read_manifest
from scsigmoid.corpus.selection import PAPER_CELLS
from scsigmoid.corpus.tenx import is_tenx, open_h5ad_files
from scsigmoid.errors import UserError, first_few
from scsigmoid.forecast.effort import lengths_of, rates
from scsigmoid.progress import verbosity
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary, read_gene_list

PAPER_FILES = 1600  # approximate number of files with the paper's training cells
EVALUATION_CELLS = 257_888  # number of cells in the paper's evaluation datasets


@dataclass(frozen=True, kw_only=True)
class Volume:
    """The amount of data of a configuration. None means unknown."""

    basis: str  # source of the numbers, for the first line of the forecast
    files: int | None  # number of raw files. Before there is a manifest, only training files count.
    cells: int | None  # number of training cells
    bytes: float  # size of the raw files, including the evaluation datasets
    evaluation_cells: int | None = None


def estimate_volume(config: Config, results: Path) -> Volume:
    """Return the volume of a configuration.

    For CELLxGENE, it is taken from the configured manifest or the manifest in ``results``, or
    estimated if there is none.
    """
    if config.corpus.source == "embedded":
        rows = list_embedded(config.corpus.embedded, config.datasets)
        return listed_volume(rows, "the configuration", config)
    if config.corpus.source == "local":
        files, opened = expand(config.corpus.local), open_training_cells(config)
        return Volume(
            basis="the files",
            files=len(files),
            cells=None if opened is None else sum(cells.n_cells for cells in opened),
            bytes=sum(path.stat().st_size for file in files for path in files_of(file.path)),
        )
    configured = config.corpus.manifest
    path = Path(configured) if configured else results / "corpus" / "manifest.csv"
    if configured or path.is_file():
        rows = read_manifest(path, may_be_edited=bool(configured))
        return listed_volume(rows, f"the manifest {path}", config)
    return expected_volume(config)


def vocabulary_size(config: Config, results: Path) -> int:
    """Return the number of tokens, including special tokens.

    Before the vocabulary is made, return an upper bound from the configured genes or sizes or from
    the user's files, or else the size in the training benchmark.
    """
    path = results / "tokens" / "vocabulary.parquet"
    choice = config.tokens.vocabulary
    if path.is_file():
        return Vocabulary.read(path).size
    if initial := Plan(config).initial:  # without the genes that it lacks, which are few
        return int(initial_header(initial)["vocabulary_size"])
    if choice.genes is not None:
        return len(read_gene_list(choice.genes)) + len(SPECIAL)
    sizes = {str(organism): size for organism, size in (choice.sizes or {}).items()}
    organisms = config.corpus.organisms
    if config.corpus.source == "cellxgene" and set(organisms) <= sizes.keys():
        return sum(sizes[organism] for organism in organisms) + len(SPECIAL)
    if config.corpus.source == "local":
        training_cells = open_training_cells(config)
        if training_cells is None:  # assume one organism
            return max(sizes.values(), default=config.benchmarks.training.vocabulary)
        genes = {gene for cells in training_cells for gene in cells.genes}
        gene_counts = Counter(map(organism_of, genes))  # by organism
        kept = (min(count, sizes.get(organism, count)) for organism, count in gene_counts.items())
        return sum(kept) + len(SPECIAL)
    return config.benchmarks.training.vocabulary


def listed_volume(rows: Sequence[ManifestRow], basis: str, config: Config) -> Volume:
    """Return the volume of the files of a manifest. A missing size is estimated from the cells."""
    return Volume(
        basis=basis,
        files=len(rows),
        cells=sum(int(row.cells or 0) for row in rows if row.role == "training"),
        bytes=sum(int(row.bytes or 0) or bytes_of(int(row.cells or 0), config) for row in rows),
        evaluation_cells=sum(int(row.cells or 0) for row in rows if row.role == "evaluation"),
    )


def open_training_cells(config: Config) -> list[Cells] | None:
    """Open the training cells of the user's files. Return None if a file is a 10x file."""
    # `held_out` is True if all cells of a file are held out.
    files = [file for file in expand(config.corpus.local) if file.held_out is not True]
    if any(is_tenx(file.path) for file in files):
        return None
    with verbosity(False):  # `choose` has already logged the column of genes
        return [
            select_role(cells, held_out_text(file.held_out, config.seed), "training")
            for file, cells in open_h5ad_files(files)
        ]


def check_own_files(config: Config) -> None:
    """Check genes and labels of the user's h5ad files, as the first jobs do.

    Of 10x files, only check that they are 10x files, and that none is evaluated.
    """
    files, cells_of = own_files(config), {}
    if tenx := [file.path for file in files if is_tenx(file.path) and file.dataset]:
        raise UserError(
            f"{first_few(tenx)}: 10x files do not contain labels, so their cells cannot be "
            "evaluated; remove 'held_out' or the dataset, or write an h5ad file with labels"
        )
    with verbosity(False):
        for file, cells in open_h5ad_files(files):
            cells_of[file.path] = cells
            if file.dataset:
                held_out = held_out_text(file.held_out, config.seed)
                part = select_role(cells, held_out, "evaluation")
                choose_label(part, file.dataset, config.datasets[file.dataset])
        if config.corpus.source == "local":
            compare_genes(with_shared_ids(cells_of))


def expected_volume(config: Config) -> Volume:
    """Estimate the volume of CELLxGENE's files before there is a manifest."""
    corpus = config.corpus
    limit = corpus.maximum_cells
    cells = PAPER_CELLS if limit is None else limit
    # maximum_gb limits only the size here. The numbers of cells and files are then upper bounds.
    size = min(bytes_of(cells, config), (corpus.maximum_gb or float("inf")) * 1e9)
    origin = "as in the paper" if limit is None else "as corpus.maximum_cells allows"
    return Volume(
        basis=f"no manifest yet: cells {origin}",
        files=PAPER_FILES if limit is None else None,
        cells=cells,
        bytes=size + bytes_of(EVALUATION_CELLS, config),
        evaluation_cells=EVALUATION_CELLS if config.preset == "paper" else None,
    )


def bytes_of(cells: int, config: Config) -> float:
    """Estimate the size of the raw files that contain a number of cells."""
    genes_per_cell = lengths_of(config).mean()
    return cells * genes_per_cell * float(rates()["raw_bytes_per_nonzero"])
