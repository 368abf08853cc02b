"""The corpus that ships with the project: 700 real blood cells, and simulated ones.

A *recipe* names what a file of it holds; the manifest gives the recipe as the file's location.
"""

from dataclasses import dataclass
from pathlib import Path

from scsigmoid.config.schema import Dataset, EmbeddedCorpus
from scsigmoid.corpus import real_cells
from scsigmoid.corpus.cell_types import DATASETS
from scsigmoid.corpus.layout import write_cells
from scsigmoid.corpus.simulate import simulate
from scsigmoid.errors import UserError

REAL = "pbmc68k"
REAL_TRAINING = "pbmc68k_training"
TRAINING = "simulated_training_"


@dataclass(frozen=True)
class Recipe:
    """One file of the embedded corpus.

    Attributes:
        name: of the recipe.
        title: title of the dataset.
        cells: number of cells.
        simulated: whether they are simulated.
    """

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
    real = Recipe(
        REAL_TRAINING,
        f"{real_cells.TITLE}, training part",
        real_cells.CELLS - real_cells.HELD_OUT,
        False,
    )
    return [*simulated, real]


def evaluation_recipe(name: str, dataset: Dataset, sizes: EmbeddedCorpus) -> Recipe:
    """The recipe of an evaluation dataset.

    Raises:
        UserError: if the embedded corpus has no dataset of this name.
    """
    if name == REAL:
        return Recipe(REAL, dataset.title, real_cells.HELD_OUT, False)
    if name in DATASETS:
        return Recipe(name, dataset.title, sizes.evaluation_cells, True)
    raise UserError(
        f"datasets.{name}: the embedded corpus has no such dataset; "
        f"expected one of {', '.join([*DATASETS, REAL])}"
    )


def write_recipe(name: str, sizes: EmbeddedCorpus, seed: int, path: str | Path) -> None:
    """Make the cells of a recipe and write them in the CELLxGENE layout.

    Raises:
        UserError: if there is no such recipe.
    """
    if name in (REAL, REAL_TRAINING):
        write_cells(path, real_cells.real_cells(seed, held_out=name == REAL))
        return
    training = {recipe.name: recipe for recipe in training_recipes(sizes)}
    if name in DATASETS:
        cells, tissues = (
            sizes.evaluation_cells,
            dict.fromkeys(DATASETS[name].cell_types, DATASETS[name].tissue),
        )
    elif name in training:
        cells, tissues = training[name].cells, {}
        # a cell type that occurs in several tissues is trained on in the first of them
        for dataset in DATASETS.values():
            for cell_type in dataset.cell_types:
                tissues.setdefault(cell_type, dataset.tissue)
    else:
        raise UserError(f"{name}: the embedded corpus has no such file; make the manifest again")
    write_cells(path, simulate(name, cells, tissues, sizes, seed))
