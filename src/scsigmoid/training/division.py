"""Dividing a global batch: even work for every process, and for every micro-batch of a process.

A cell of n tokens costs a n + b n^2 floating-point operations: the linear layers and the output
layer, and attention.  Processes wait for each other once a step, so the slowest one sets the pace.
"""

import heapq
from math import ceil

import numpy as np
import numpy.typing as npt

from scsigmoid.model.parameters import count_flops
from scsigmoid.model.sizes import EncoderSettings

Integers = npt.NDArray[np.integer]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]


class Work:
    """The counted work of a cell's training step (:func:`count_flops`), by its length.

    Attributes:
        linear: operations for each token; masked ones are spread over all.
        quadratic: operations for each pair of tokens.
    """

    def __init__(self, settings: EncoderSettings, mask_fraction: float) -> None:
        one, two = (count_flops(settings, [length], 0) for length in (1, 2))
        # f(1) = a + b and f(2) = 2 a + 4 b
        self.quadratic = two / 2 - one
        self.linear = one - self.quadratic + mask_fraction * count_flops(settings, [], 1)

    def of(self, lengths: Integers) -> Float64s:
        """(cells,) operations of cells of so many tokens."""
        tokens = lengths.astype(np.float64)
        return tokens * (self.linear + self.quadratic * tokens)


def divide(work: Float64s, parts: int) -> list[Int64s]:
    """Divide cells into parts of about equal work.

    The heaviest cell that is left goes to the part that has the least (Graham 1969, LPT): with 8
    cells or more a part, lengths as in Fig. 1 come out even within 2 %.

    Args:
        work: (cells,) work of each cell.
        parts: how many; at most the number of cells, if none is to be empty.

    Returns:
        For each part its cells' indices, ascending.
    """
    members: list[list[int]] = [[] for _ in range(parts)]
    heap = [(0.0, part) for part in range(parts)]
    for cell in np.argsort(-work, kind="stable").tolist():
        load, part = heap[0]
        members[part].append(cell)
        heapq.heapreplace(heap, (load + float(work[cell]), part))
    return [np.array(sorted(cells), dtype=np.int64) for cells in members]


def micro_batches(lengths: Integers, work: Float64s, budget: int) -> list[Int64s]:
    """Divide one process's cells into as few micro-batches of even work as the memory allows.

    Args:
        lengths: (cells,) tokens of each cell.
        work: (cells,) work of each cell.
        budget: tokens of a micro-batch at most; a longer cell goes alone.

    Returns:
        For each micro-batch its cells' indices, ascending.
    """
    count = min(len(lengths), max(1, ceil(int(lengths.sum()) / budget)))
    while True:
        parts = divide(work, count)
        if all(len(part) == 1 or lengths[part].sum() <= budget for part in parts):
            return parts
        count += 1
