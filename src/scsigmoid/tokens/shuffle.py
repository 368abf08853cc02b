"""The order in which training reads cells: a shuffle without random reads over terabytes.

The shuffle has two steps:

1. Tokenization permutes the cells of each part over the shards of its store
   (:mod:`scsigmoid.tokens.scatter`). Consecutive cells are therefore a random sample of the part.
2. Training divides the concatenated cells of all parts into blocks of ``BLOCK_CELLS`` cells. Each
   epoch shuffles the blocks, then the cells within each window of ``WINDOW_BLOCKS`` blocks.

Training reads whole blocks (about 200 KB at the paper's lengths). A window has 262,144 cells (about
1 GB) and stays in the page cache, which all processes of a host share.

The order depends only on the seed and the number of cells. Any batch can be computed without its
predecessors. docs/tokens.md compares the order with a uniform permutation.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scsigmoid.seeds import derive

Int64s = NDArray[np.int64]

BLOCK_CELLS = 64
WINDOW_BLOCKS = 4096


class CellOrder:
    """An infinite sequence of cells in which every epoch contains every cell once.

    A global batch contains the cells of one optimizer step, for all processes. Batch g (from 0) is
    the slice [g * size, (g + 1) * size) of the sequence, and may contain cells of two epochs.
    ``cells`` is the number of cells in all stores, at least 1.
    """

    def __init__(self, cells: int, seed: int) -> None:
        self.cells = cells
        self.seed = seed
        # Batches are usually read in order, so they often need the same epoch and window again.
        self.blocks = lru_cache(maxsize=1)(self.shuffle_blocks)
        self.window = lru_cache(maxsize=1)(self.shuffle_window)

    def batch(self, index: int, size: int) -> Int64s:
        """Return the rows of a global batch in the concatenated stores: int64, shape (size,)."""
        start, end = index * size, (index + 1) * size
        pieces = []
        while start < end:
            epoch, place = divmod(start, self.cells)
            _, window_starts = self.blocks(epoch)
            window = int(np.searchsorted(window_starts, place, side="right")) - 1
            # From the place to the end of the window or of the batch.
            rows = self.window(epoch, window)[place - window_starts[window] :][: end - start]
            pieces.append(rows)
            start += len(rows)
        return np.concatenate(pieces)

    def shuffle_blocks(self, epoch: int) -> tuple[Int64s, Int64s]:
        """Return the order of blocks in an epoch, and the place of each window's first cell."""
        generator = np.random.Generator(np.random.PCG64(derive(self.seed, "blocks", epoch)))
        order = generator.permutation(-(-self.cells // BLOCK_CELLS))
        starts = np.arange(0, len(order), WINDOW_BLOCKS) * BLOCK_CELLS
        # The block with the largest number may lack cells. Windows after this block start earlier
        # by the number of missing cells.
        start_of_short_block = order.argmax() * BLOCK_CELLS
        starts[starts > start_of_short_block] -= len(order) * BLOCK_CELLS - self.cells
        return order, starts

    def shuffle_window(self, epoch: int, window: int) -> Int64s:
        """Return the shuffled rows of a window."""
        order, _ = self.blocks(epoch)
        blocks = order[window * WINDOW_BLOCKS : (window + 1) * WINDOW_BLOCKS]
        rows = (blocks[:, None] * BLOCK_CELLS + np.arange(BLOCK_CELLS)).ravel()
        seed = derive(self.seed, "window", epoch, window)
        generator = np.random.Generator(np.random.PCG64(seed))
        return generator.permutation(rows[rows < self.cells])
