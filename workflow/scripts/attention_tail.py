"""Estimate how much of the attention time is lost at the end of a kernel and at the edges of tiles.

    python workflow/scripts/attention_tail.py

Simulates the Hopper kernels at head dimension 64 with 12 heads. 132 programs take tiles from a
list, longest sequence first. A forward tile has 256 queries and visits blocks of 64 keys. A
backward tile has 128 keys and visits blocks of 128 queries. A visit takes one unit of time. The
start of a tile takes two units (forward) or one (backward). No GPU is needed. Results:
docs/kernel-log.md.
"""

import heapq
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.config.check import load

PROGRAMS, HEADS, BATCHES = 132, 12, 6
#: Rows of a tile, columns of a block, and time of the start of a tile.
PASSES = {"forward": (256, 64, 2), "backward": (128, 128, 1)}


def shares(lengths: NDArray[np.int32], rows: int, columns: int, start: int) -> tuple[float, float]:
    """Return two shares of time: programs have work, and the part of it spent on valid tokens.

    Args:
        lengths: tokens of each cell of a batch.
        rows, columns, start: see :data:`PASSES`.
    """
    tiles, visits = -(-lengths // rows), -(-lengths // columns)
    times = np.repeat(visits + start, tiles * HEADS)
    programs = [0] * PROGRAMS
    for time in sorted(times.tolist(), reverse=True):
        heapq.heapreplace(programs, programs[0] + time)
    needed = HEADS * float((lengths.astype(float) ** 2).sum()) / (rows * columns)
    return times.sum() / (PROGRAMS * max(programs)), needed / times.sum()


def main() -> None:
    root = Path(__file__).parents[2]
    config = load(root / "config.yaml", root / "workflow/presets", {"preset": "paper"})
    for context in config.benchmarks.training.contexts:
        for cells in (16, 32, 64):
            batches = simulated_batches(
                config.benchmarks.training, context, cells, config.training, config.seed
            )
            lengths = [np.diff(batch.cu_seqlens.numpy()) for batch in islice(batches, BATCHES)]
            line = [f"{context:,} tokens, {cells} cells:"]
            for name, numbers in PASSES.items():
                busy, needed = np.mean([shares(each, *numbers) for each in lengths], axis=0)
                line.append(f"{name} busy {busy:.3f}, needed {needed:.3f}")
            print(*line)


if __name__ == "__main__":
    main()
