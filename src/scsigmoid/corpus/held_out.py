"""Which cells of a file are held out for evaluation.

The manifest writes the choice as text, so that training and evaluation read the same one: ``""``
(none), ``all``, ``fraction=0.1 seed=42`` or ``column=value``.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

FRACTION = re.compile(r"fraction=(?P<share>[0-9.e-]+) seed=(?P<seed>-?\d+)")


def as_text(held_out: bool | float | str, seed: int) -> str:
    """The choice as the manifest writes it."""
    if isinstance(held_out, bool):
        return "all" if held_out else ""
    if isinstance(held_out, str):
        return held_out
    return f"fraction={held_out!r} seed={seed}"


def choose(
    held_out: str, n_cells: int, values: Callable[[str], NDArray[np.object_]], path: Path
) -> NDArray[np.bool_]:
    """Mark the held-out cells.

    Args:
        held_out: the choice as the manifest writes it.
        n_cells: cells of the file; the seeded choice depends on their number alone.
        values: reads a column of ``obs`` as strings.
        path: the file, for messages.

    Returns:
        A boolean array of ``n_cells``.

    Raises:
        UserError: if no cell has the value.
    """
    if held_out in ("", "all"):
        return np.full(n_cells, held_out == "all")
    fraction = FRACTION.fullmatch(held_out)
    if fraction:
        count = min(max(1, round(float(fraction["share"]) * n_cells)), n_cells - 1)
        generator = np.random.default_rng(derive(int(fraction["seed"]), "held out", n_cells))
        held = np.zeros(n_cells, dtype=bool)
        held[generator.permutation(n_cells)[:count]] = True
        return held
    name, _, value = held_out.partition("=")
    present = values(name)
    held = present == value
    if not held.any():
        known = sorted(set(present.tolist()))
        raise UserError(f"{path}: no cell has {name} {value!r}; its values: {', '.join(known[:8])}")
    return held
