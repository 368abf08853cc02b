"""Estimate how much attention time is lost at the end of a kernel and at the edges of tiles.

    python workflow/scripts/attention_tail.py

The script simulates the Hopper kernels at head dimension 64 with 12 heads. 132 programs take tiles
from a list, longest sequence first. A forward tile has 256 queries and visits blocks of 64 keys. A
backward tile has 128 keys and visits blocks of 128 queries. A visit takes one unit of time. The
start of a tile takes two units (forward) or one (backward).

For each context and number of cells, the script prints the share of the programs' time in which
they have a tile (``busy``), and the share of the busy time that is spent on valid tokens
(``needed``). It does not need a GPU. Results: docs/kernel-log.md.
"""

import heapq
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.config.check import load

PROGRAMS, HEADS, BATCHES = 132, 12, 6
#: Tokens of a tile, tokens of a block, and time of the start of a tile.
PASSES = {"forward": (256, 64, 2), "backward": (128, 128, 1)}


def shares(lengths: NDArray[np.int32], tile: int, block: int, start: int) -> tuple[float, float]:
    """Return the busy share of the programs' time, and the share of the busy time that is needed.

    Args:
        lengths: tokens of each cell of a batch.
        tile, block, start: see :data:`PASSES`.
    """
    # Tiles of each cell, and visits of each of these tiles, rounded up.
    tiles, visits = -(-lengths // tile), -(-lengths // block)
    times = np.repeat(visits + start, tiles * HEADS)
    ends = [0] * PROGRAMS  # a heap: time at which each program has finished its tiles
    for time in sorted(times.tolist(), reverse=True):
        heapq.heapreplace(ends, ends[0] + time)
    pairs = HEADS * float((lengths.astype(float) ** 2).sum())  # pairs of valid queries and keys
    needed_time = pairs / (tile * block)
    return times.sum() / (PROGRAMS * max(ends)), needed_time / times.sum()


def main() -> None:
    """Print the mean shares over simulated batches of the training benchmark."""
    root = Path(__file__).parents[2]
    config = load(root / "config.yaml", root / "workflow/presets", {"preset": "paper"})
    for context in config.benchmarks.training.contexts:
        for cells in (16, 32, 64):
            batches = simulated_batches(
                config.benchmarks.training, context, cells, config.training, config.seed
            )
            # The lengths of the cells of each batch.
            lengths = [np.diff(batch.cu_seqlens.numpy()) for batch in islice(batches, BATCHES)]
            line = [f"{context:,} tokens, {cells} cells:"]
            for name, sizes in PASSES.items():
                busy, needed = np.mean([shares(batch, *sizes) for batch in lengths], axis=0)
                line.append(f"{name} busy {busy:.3f}, needed {needed:.3f}")
            print(*line)


if __name__ == "__main__":
    main()
