"""Read cell types: choose the columns of ``obs`` that contain them, and unify their spelling.

A *label* is the name of such a column.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.counts import Cells
from scsigmoid.corpus.genes import Strings, check_column
from scsigmoid.corpus.metadata import without_spelling
from scsigmoid.errors import UserError, first_few
from scsigmoid.progress import log, warn
from scsigmoid.records.measurements import ABSENT as ABSENT

ANY = "*"  # label that stands for all columns of text
NEAREST = 3  # maximum number of columns in a message


def normalize(text: str) -> str:
    """Return a cell type in lower case, with sorted words and without the word "cell"."""
    words = re.findall(r"[^\W_]+", text.casefold())
    return " ".join(sorted(word for word in words if word not in ("cell", "cells"))) or text


def cell_types(cells: Cells, label: str, types: Sequence[str] = ()) -> Strings:
    """Return the cell type of each selected cell, ``""`` if it has none.

    A cell type that differs from one of ``types`` only in spelling is spelled as there.
    """
    import pandas as pd

    index, texts = pd.factorize(cells.obs([label])[label])
    spelling = {normalize(cell_type): cell_type for cell_type in types}

    def type_of(text: str) -> str:
        if text.strip().casefold() in ABSENT:
            return ""
        return text if text in types else spelling.get(normalize(text), text)

    return np.array([type_of(text) for text in texts], dtype=object)[index]


def choose_label(cells: Cells, name: str, dataset: Dataset) -> str:
    """Choose the label of an evaluation dataset, and log its cell types.

    The label with most of the dataset's ``types`` is chosen, in a tie the first. Without ``types``,
    it is the first label that the file has. Raise an error if there is none, or if the chosen label
    lacks one of ``types`` or has fewer than two cell types, or if the column ``batch`` is missing.
    """
    wanted = dataset.labels  # in order of preference
    with cells.source.opened() as tables:
        obs = tables.frame("obs")
        text_columns = [column for column in obs.columns if obs.is_text(column)]
        labels = [label for label in wanted if label in obs]
        labels += text_columns if ANY in wanted else []
        if not labels and not dataset.types:  # with types, the error below names similar columns
            purpose = (
                "the cell types that held-out cells need (set 'label' to one of its columns, or "
                "remove 'held_out' or the dataset)"
            )
            check_column(obs, wanted[0], cells.title, purpose)
    types_of = {label: set(cell_types(cells, label, dataset.types)) for label in labels}
    chosen = max(labels, key=lambda label: len(types_of[label] & set(dataset.types)), default="")
    present = types_of.get(chosen, set())
    missing = [cell_type for cell_type in dataset.types if cell_type not in present]
    if missing:
        lacking = f"{chosen!r} lacks" if chosen else f"has no column {wanted[0]!r} and lacks"
        raise UserError(
            f"{cells.title}: {lacking} the cell types {', '.join(map(repr, missing))} of "
            f"datasets.{name}.types; nearest columns: "
            f"{nearest_columns(cells, text_columns, dataset.types)}; set datasets.{name}.label to "
            f"the column with these types, or datasets.{name}.types to the types to compare"
        )
    present -= {""}
    if len(present) < 2:
        only = ", ".join(map(repr, present)) or "none"
        raise UserError(
            f"{cells.title}: all {cells.n_cells} evaluated cells have the {chosen} {only}; "
            "evaluation needs at least two cell types; set 'label' to another column, or hold out "
            "other cells"
        )
    by_spelling: dict[str, list[str]] = {}
    for cell_type in sorted(present):
        by_spelling.setdefault(without_spelling(cell_type), []).append(cell_type)
    if alike := [names for names in by_spelling.values() if len(names) > 1]:
        warn(
            f"{cells.title}: different spellings in {chosen!r} count as different cell types: "
            f"{first_few(' and '.join(map(repr, names)) for names in alike)}; use one spelling"
        )
    types_in_file = cell_types(cells, chosen)  # as the file spells them
    without_type = int((types_in_file == "").sum())
    log(
        f"{name}: {len(present)} cell types from {chosen!r}; {without_type} of {cells.n_cells} "
        "cells have none" + (" and are left out of scores" if without_type else "")
    )
    for cell_type in sorted({*types_in_file} - {*present, ""}):
        log(f"{name}: {cell_type!r} is spelled as datasets.{name}.types spells it")
    if dataset.batch:
        check_batch(cells, name, dataset.batch)
    return chosen


def check_batch(cells: Cells, name: str, column: str) -> None:
    """Log the number of batches of an evaluation dataset.

    Raise an error if the column is missing, or has more than one value for every two cells.
    """
    with cells.source.opened() as tables:
        purpose = "the batches (set 'batch' to one of its columns, or remove it)"
        check_column(tables.frame("obs"), column, cells.title, purpose)
    batches = {*cell_types(cells, column)}
    if 2 * len(batches) > cells.n_cells:
        raise UserError(
            f"{cells.title}: {column!r} has {len(batches)} values for {cells.n_cells} evaluated "
            "cells; set 'batch' to a column with fewer values, or remove it"
        )
    message = f"{name}: {len(batches - {''})} batches from {column!r}"
    if len(batches - {""}) < 2:
        warn(f"{message}; scores of batches need two and are left out")
    else:
        log(message)


def check_enough(
    file: str | Path, types: NDArray[Any], *, scib: int = 0, mmd: int = 0, umap: int = 0
) -> None:
    """Raise an error if a file has too few evaluated cells for the metrics.

    Args:
        file: the file, for messages.
        types: cell type of each cell, ``""`` if it has none.
        scib, umap: number of neighbors; 0 if the metric is not computed.
        mmd: smallest number of cells of a compared type; 0 if MMD is not computed.
    """
    size_of = Counter(types.tolist())
    del size_of[""]
    lacking = []
    if scib and (size_of.total() <= scib or len(size_of) < 2):
        needed = f"two types and more than {scib} cells (evaluation.scib.neighbors)"
        lacking.append(f"scIB needs {needed}")
    if mmd and sum(size >= mmd for size in size_of.values()) < 2:
        lacking.append(f"MMD needs two types of at least {mmd} (evaluation.mmd.minimum_cells)")
    if umap and len(types) <= umap:  # UMAP also shows cells without type
        lacking.append(f"UMAP needs more than {umap} cells in all (evaluation.umap.neighbors)")
    if lacking:
        largest = ", ".join(f"{size} {name!r}" for name, size in size_of.most_common(2))
        raise UserError(
            f"{file}: {size_of.total()} of {len(types)} evaluated cells have a cell type "
            f"({len(size_of)} types; the largest: {largest}), too few: {'; '.join(lacking)}; "
            "evaluate more cells (a larger held_out), choose another label or lower the setting"
        )


def nearest_columns(cells: Cells, columns: Sequence[str], types: Sequence[str]) -> str:
    """List the columns with most of the ``types``, for a message."""
    counts = Counter({name: len({*cell_types(cells, name, types)} & {*types}) for name in columns})
    best = counts.most_common(NEAREST)
    return ", ".join(f"{name!r} ({count} of {len(types)} types)" for name, count in best) or "none"
