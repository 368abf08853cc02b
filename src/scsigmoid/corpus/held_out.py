"""Training and held-out cells of files, as the manifest divides them."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from scsigmoid.corpus.counts import Cells
from scsigmoid.corpus.genes import check_column
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.metadata import ManifestRow, are_in_ranges, read_part, without_spelling
from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

# Text in the manifest for a random share of the cells (see held_out_text).
FRACTION = re.compile(r"fraction=(?P<share>[0-9]*\.?[0-9]+(e-[0-9]+)?) seed=(?P<seed>-?[0-9]+)")
Role = Literal["training", "evaluation"]


def held_out_text(held_out: bool | float | str, seed: int) -> str:
    """Return the setting ``held_out`` as manifest text, so that all jobs select the same cells.

    The text is ``""`` (none), ``all``, ``fraction=0.1 seed=42`` or ``column=value``.
    """
    if isinstance(held_out, bool):
        return "all" if held_out else ""
    if isinstance(held_out, str):
        return held_out
    return f"fraction={held_out!r} seed={seed}"


def select_role(cells: Cells, held_out: str, role: Role) -> Cells:
    """Select the held-out cells (``"evaluation"``) or the other cells (``"training"``).

    ``held_out`` is the text that :func:`held_out_text` returns. Raise an error if its column or
    value is missing, if its fraction is not between 0 and 1, or if no cell is selected.
    """
    is_held_out = np.full(cells.n_cells, held_out == "all")
    if fraction := FRACTION.fullmatch(held_out):
        share = float(fraction["share"])
        if not 0 < share < 1:
            raise UserError(
                f"{cells.title}: held_out {held_out!r} is not a fraction between 0 and 1; make "
                "the manifest again"
            )
        # The choice depends only on the number of cells and the seed. No role is empty.
        count = min(max(1, round(share * cells.n_cells)), cells.n_cells - 1)
        seed = derive(int(fraction["seed"]), "held out", cells.n_cells)
        is_held_out[np.random.default_rng(seed).permutation(cells.n_cells)[:count]] = True
    elif held_out not in ("", "all"):
        name, _, value = held_out.partition("=")
        with cells.source.opened() as tables:
            check_column(tables.frame("obs"), name, cells.title, "the held-out cells")
        values = cells.obs([name])[name]
        is_held_out = values == value
        if not is_held_out.any():
            known = ", ".join(sorted({*values.tolist()} - {""})[:8])
            raise UserError(
                f"{cells.title}: no cell has {name} {value!r}; its values: {known}; correct "
                "held_out, or list this file in an entry without it"
            )
    selected = cells.select(is_held_out if role == "evaluation" else ~is_held_out)
    if not selected.n_cells:
        raise UserError(
            f"{cells.title}: held_out {held_out!r} leaves no cell for {role}; choose other cells"
        )
    return selected


def find_held_out_values(training: Cells, selections: Iterable[str]) -> list[str]:
    """Describe training cells with a value that is held out in another spelling or another file.

    ``selections`` are manifest texts of :func:`held_out_text` such as ``donor_id=D4``.
    """
    held_out: dict[str, set[str]] = {}  # values by column
    for selection in selections:
        name, _, value = selection.partition("=")
        held_out.setdefault(name, set()).add(without_spelling(value))
    return [
        f"{training.title}: {count:,} with {name} {value!r}"
        for name, values in held_out.items()
        for value, count in sorted(Counter(training.obs([name])[name].tolist()).items())
        if without_spelling(value) in values
    ]


def cells_of(
    row: ManifestRow, path: str | Path, *, title: str = "", sha256: str = "", remake: Path = Path()
) -> Cells:
    """Open the file of a manifest row, and select the row's cells without excluded cells.

    ``title``, ``sha256`` and ``remake`` are as for :func:`~.h5ad.open_cells`.
    """
    role: Role = "evaluation" if row.role == "evaluation" else "training"
    options = {"layer": row.layer, "genes": row.genes, "title": title, "sha256": sha256}
    cells = select_role(open_cells(path, **options, remake=remake), row.held_out, role)
    return cells.select(~are_in_ranges(cells.rows, row.excluded))


def cells_of_part(folder: str | Path) -> list[tuple[ManifestRow, Cells]]:
    """Open the training cells of a part: a folder with h5ad files and ``files.csv``.

    Reading their counts compares the files with the SHA-256 in ``files.csv``.
    """
    folder = Path(folder)
    rows = [row for row in read_part(folder) if row.role == "training"]
    return [
        (row, cells_of(row, folder / f"{row.file}.h5ad", sha256=row.sha256, remake=folder))
        for row in rows
    ]
