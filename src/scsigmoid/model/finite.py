"""A check of embeddings. Does not import torch, so that commands start fast."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError


def check_finite(values: NDArray[np.float32], names: Any, subject: str, rows: Any = None) -> None:
    """Raise a UserError that counts the cells with NaN or infinity, and names the first.

    Args:
        values: cells x hidden.
        names: name of each cell.
        subject: start of the message with the verb, e.g. ``"model.safetensors: embeds"``.
        rows: for a copy of selected cells, the row of each cell in the user's file.
    """
    # Extremes take less memory than a mask of all values, and are NaN if a value is NaN.
    extremes = values.min(axis=1), values.max(axis=1)
    not_finite = np.flatnonzero(~np.isfinite(extremes).all(axis=0))
    if len(not_finite):
        first = not_finite[0]
        row = "" if rows is None else f" of row {np.asarray(rows)[first]}"
        raise UserError(
            f"{subject} {len(not_finite)} of {len(values)} cells as NaN or infinity (the first is "
            f"{names[first]!r}{row}); the model diverged: check its journal and train it again"
        )
