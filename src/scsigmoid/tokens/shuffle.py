"""The order in which training reads cells: a shuffle without random reads over terabytes.

It has two halves.  When a part is tokenized its cells are permuted over all shards of its store
(:mod:`scsigmoid.tokens.scatter`), so that any run of rows is a uniform sample of the part.  When
the stores are read, the rows of all parts, one after the other, are cut into blocks of
``BLOCK_CELLS`` consecutive ones; every epoch puts the blocks into an order of its own, and the
cells of ``WINDOW_BLOCKS`` successive blocks into an order of theirs.  What is read is therefore
whole blocks (about 200 KB at the paper's lengths), and what must be at hand is one window (262,144
cells, about 1 GB), which the page cache of a machine holds for all its processes.

How near that comes to a uniform permutation: docs/tokens.md.  The order depends on the seed and the
number of cells alone, and any place of it is computed without what comes before.
"""

import numpy as np
from numpy.typing import NDArray

from scsigmoid.seeds import derive

Int64s = NDArray[np.int64]

BLOCK_CELLS = 64
WINDOW_BLOCKS = 4096


class CellOrder:
    """The endless sequence of cells: every epoch holds every cell once.

    Global batch g (from 0) is the slice [g * size, (g + 1) * size) of that sequence, so a batch may
    hold the end of one epoch and the start of the next.  ``cells`` are those of all stores.
    """

    def __init__(self, cells: int, seed: int) -> None:
        if cells < 1:
            raise ValueError("an order of no cells")
        self.cells = cells
        self.seed = seed
        self._blocks: tuple[int, Int64s, int] = (-1, np.zeros(0, dtype=np.int64), 0)
        self._window: tuple[int, int, Int64s] = (-1, -1, np.zeros(0, dtype=np.int64))

    def batch(self, index: int, size: int) -> Int64s:
        """Rows of the stores, read as one, that make up global batch ``index``; (size,) int64."""
        start, end = index * size, (index + 1) * size
        parts = []
        while start < end:
            epoch, place = divmod(start, self.cells)
            window = self.window_at(epoch, place)
            first = self.window_start(epoch, window)
            rows = self.window(epoch, window)[place - first :][: end - start]
            parts.append(rows)
            start += len(rows)
        return np.concatenate(parts)

    def blocks(self, epoch: int) -> Int64s:
        """The order of blocks in an epoch; the last one asked for is kept."""
        if self._blocks[0] != epoch:
            generator = np.random.Generator(np.random.PCG64(derive(self.seed, "blocks", epoch)))
            order = generator.permutation(-(-self.cells // BLOCK_CELLS))
            self._blocks = epoch, order, int(np.argmax(order))
        return self._blocks[1]

    def window(self, epoch: int, window: int) -> Int64s:
        """Rows of one window in the order in which they are read; the last one is kept."""
        if self._window[:2] != (epoch, window):
            blocks = self.blocks(epoch)[window * WINDOW_BLOCKS : (window + 1) * WINDOW_BLOCKS]
            rows = (blocks[:, None] * BLOCK_CELLS + np.arange(BLOCK_CELLS)).ravel()
            name = derive(self.seed, "window", epoch, window)
            generator = np.random.Generator(np.random.PCG64(name))
            self._window = epoch, window, generator.permutation(rows[rows < self.cells])
        return self._window[2]

    def window_start(self, epoch: int, window: int) -> int:
        """Place in the epoch at which a window begins."""
        blocks = window * WINDOW_BLOCKS
        self.blocks(epoch)
        shorter = self._blocks[2]  # where in the order the last, shorter block stands
        missing = -self.cells % BLOCK_CELLS  # cells that it is short of
        return blocks * BLOCK_CELLS - (missing if shorter < blocks else 0)

    def window_at(self, epoch: int, place: int) -> int:
        # Cells are missing from the last block alone; what comes after it begins that much earlier.
        window = place // (WINDOW_BLOCKS * BLOCK_CELLS)
        following = window + 1
        windows = -(-len(self.blocks(epoch)) // WINDOW_BLOCKS)
        moved = following < windows and self.window_start(epoch, following) <= place
        return following if moved else window
