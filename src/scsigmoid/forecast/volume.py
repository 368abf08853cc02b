"""The amount of data of a configuration: from its manifest, or estimated without one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scsigmoid.config.local_files import expand
from scsigmoid.config.schema import Config
from scsigmoid.corpus.embedded import evaluation_recipe, training_recipes
from scsigmoid.corpus.genes import organism_of
from scsigmoid.corpus.h5ad import Cells, Part, held_out_text, open_cells
from scsigmoid.corpus.h5ad_writer import is_tenx
from scsigmoid.corpus.metadata import REMOTE, ManifestRow, read_manifest
from scsigmoid.corpus.selection import PAPER_CELLS
from scsigmoid.forecast.effort import Lengths, lengths_of, rates
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary, read_gene_list

PAPER_FILES = 1600
EVALUATION_CELLS = 257_888  # of the six datasets of tab:eval_datasets


@dataclass(frozen=True, kw_only=True)
class Volume:
    """The amount of data of a configuration.

    Attributes:
        basis: source of the numbers.
        files: number of raw files, or None if unknown.
        cells: number of training cells, or None if unknown.
        evaluation_cells: number of cells of the evaluation datasets, or None if unknown.
        bytes: size of the raw files, including the evaluation datasets.
        bytes_basis: source of the size.
    """

    basis: str
    files: int | None
    cells: int | None
    evaluation_cells: int | None
    bytes: float
    bytes_basis: str


def volume(config: Config, results: Path) -> Volume:
    """Return the volume of a configuration, from the manifest in its results folder if any."""
    if config.corpus.source == "embedded":
        return embedded_volume(config)
    if config.corpus.source == "local":
        return local_volume(config)
    lock = config.corpus.manifest
    path = Path(lock) if lock else results / "corpus" / "manifest.csv"
    if lock or path.is_file():
        return locked_volume(read_manifest(path), str(path), lengths_of(config))
    return expected_volume(config)


def vocabulary_size(config: Config, results: Path) -> tuple[int, str]:
    """Return the number of tokens, including special ones, and the source of this number."""
    path, choice = results / "tokens" / "vocabulary.parquet", config.tokens.vocabulary
    if path.is_file():
        return Vocabulary.read(path).size, f"the vocabulary {path}"
    if choice.genes is not None:
        return len(read_gene_list(choice.genes)) + len(SPECIAL), f"the list {choice.genes}"
    sizes = {str(organism): size for organism, size in (choice.sizes or {}).items()}
    organisms = config.corpus.organisms
    if config.corpus.source in REMOTE and set(organisms) <= sizes.keys():
        size = sum(sizes[organism] for organism in organisms) + len(SPECIAL)
        return size, f"at most, by tokens.vocabulary.sizes: {' and '.join(organisms)}"
    if config.corpus.source == "local" and (opened := training_files(config)) is not None:
        genes = Counter(organism_of(gene) for gene in {g for cells in opened for g in cells.genes})
        size = sum(min(count, sizes.get(name, count)) for name, count in genes.items())
        return size + len(SPECIAL), "at most: genes of the files, by tokens.vocabulary.sizes"
    return config.benchmarks.training.vocabulary, "assumed, as benchmarks.training.vocabulary"


def locked_volume(rows: Sequence[ManifestRow], path: str, lengths: Lengths) -> Volume:
    """Return the volume of a manifest. Missing sizes are estimated."""
    unknown = [row for row in rows if not row.bytes]
    estimated = sum(bytes_of(int(row.cells or 0), lengths) for row in unknown)
    note = f"; sizes estimated for {len(unknown)} of {len(rows)}" if unknown else ""
    return Volume(
        basis=f"the manifest {path}",
        files=len(rows),
        cells=sum(int(row.cells or 0) for row in rows if row.role == "training"),
        evaluation_cells=sum(int(row.cells or 0) for row in rows if row.role == "evaluation"),
        bytes=sum(int(row.bytes or 0) for row in rows) + estimated,
        bytes_basis="manifest" + note,
    )


def embedded_volume(config: Config) -> Volume:
    """Return the volume of the embedded corpus."""
    sizes = config.corpus.embedded
    training = training_recipes(sizes)
    evaluation = [
        evaluation_recipe(name, dataset, sizes)
        for name, dataset in config.datasets.items()
        if not dataset.file
    ]
    return Volume(
        basis="the configuration",
        files=len(training) + len(evaluation),
        cells=sum(recipe.cells for recipe in training),
        evaluation_cells=sum(recipe.cells for recipe in evaluation),
        bytes=sum(bytes_of(recipe.cells, lengths_of(config)) for recipe in training + evaluation),
        bytes_basis=by_nonzero(),
    )


def local_volume(config: Config) -> Volume:
    """Return the volume of the user's own files."""
    files, opened = expand(config.corpus.local), training_files(config)
    return Volume(
        basis="the files",
        files=len(files),
        cells=None if opened is None else sum(cells.n_cells for cells in opened),
        evaluation_cells=sum(cells.n_cells for cells in cells_of_files(config, "evaluation")),
        bytes=sum(path.stat().st_size for file in files for path in file.files),
        bytes_basis="on the disk already",
    )


def training_files(config: Config) -> list[Cells] | None:
    """Open the training cells of the user's files. None if a 10x file had to be converted."""
    files = expand(config.corpus.local)
    if any(is_tenx(file.path) for file in files):
        return None
    return cells_of_files(config, "training")


def cells_of_files(config: Config, part: Part) -> list[Cells]:
    """Open the training or the held-out cells of the user's h5ad files."""
    none = part == "training"  # `held_out` of files without cells of this part
    return [
        open_cells(
            file.path,
            held_out_text(file.held_out, config.seed),
            part,
            layer=file.layer,
            genes=file.genes,
        )
        for file in expand(config.corpus.local)
        if file.held_out is not none and not is_tenx(file.path)
    ]


def expected_volume(config: Config) -> Volume:
    """Estimate the volume of CELLxGENE's files before there is a manifest."""
    corpus = config.corpus
    whole = corpus.maximum_cells is None
    cells = PAPER_CELLS if corpus.maximum_cells is None else corpus.maximum_cells
    size, basis = bytes_of(cells, lengths_of(config)), by_nonzero()
    if corpus.maximum_gb is not None and size > corpus.maximum_gb * 1e9:
        size, basis = corpus.maximum_gb * 1e9, "corpus.maximum_gb"
    size += bytes_of(EVALUATION_CELLS, lengths_of(config))
    return Volume(
        basis="no manifest yet: cells "
        + ("as in the paper" if whole else "as corpus.maximum_cells allows"),
        files=PAPER_FILES if whole else None,
        cells=cells,
        evaluation_cells=EVALUATION_CELLS,
        bytes=size,
        bytes_basis=basis,
    )


def bytes_of(cells: int, lengths: Lengths) -> float:
    """Estimate the size of the raw files of some cells."""
    return cells * lengths.mean() * float(rates()["raw_files"]["bytes_per_nonzero"])


def by_nonzero() -> str:
    """Return the source of :func:`bytes_of`."""
    return f"estimate, {rates()['raw_files']['bytes_per_nonzero']} bytes per non-zero count"
