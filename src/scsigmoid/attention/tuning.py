"""Block sizes of the Triton kernels, by kernel, head dimension, dtype and compute capability.

For half precision at head dimensions 64 and 128 on compute capability 9.0, the block sizes are the
fastest measured on an H200 (docs/kernel-log.md). All other block sizes were not measured, but fit
into registers and shared memory.
"""

import functools
from dataclasses import dataclass
from typing import Literal

Kernel = Literal["forward", "dq", "dkdv"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """Block sizes, warps and loop options of a kernel.

    Attributes:
        block_q, block_k: query and key rows of a block.
        warps: warps of a program.
        stages: number of blocks in flight in the inner loop.
        tma: load the blocks of the inner loop by tensor descriptors.
        tail_last: without ``tma``, compute the partial block at the end of a sequence after the
            whole blocks, instead of before them. On Hopper, matrix products then overlap with the
            code that follows. On Ampere this order costs registers.
    """

    block_q: int
    block_k: int
    warps: int
    stages: int
    tma: bool = False
    tail_last: bool = False


#: Small blocks for Triton's interpreter, so that small tests have full, partial and empty blocks.
INTERPRETED = Configuration(16, 16, 4, 1)

# Hopper and data-center Blackwell: matrix units read shared memory.
_DATA_CENTER = {
    ("forward", 64): Configuration(64, 64, 4, 3, tail_last=True),
    ("forward", 128): Configuration(64, 64, 4, 3, tma=True),
    ("dq", 64): Configuration(64, 64, 4, 3, tma=True),
    ("dq", 128): Configuration(64, 64, 4, 2, tma=True),
    ("dkdv", 64): Configuration(64, 64, 4, 3, tma=True),
    ("dkdv", 128): Configuration(64, 64, 4, 2, tma=True),
    ("forward", 256): Configuration(64, 32, 8, 2, tail_last=True),
    ("dq", 256): Configuration(64, 32, 8, 2, tail_last=True),
    ("dkdv", 256): Configuration(32, 64, 8, 2, tail_last=True),
}
# Other GPUs, also consumer Blackwell: operands need registers, and shared memory may be small.
_OTHER = {
    ("dq", 128): Configuration(64, 64, 4, 2),
    ("dkdv", 128): Configuration(64, 64, 8, 2),
    ("forward", 256): Configuration(64, 32, 8, 2),
    ("dq", 256): Configuration(32, 32, 4, 2),
    ("dkdv", 256): Configuration(32, 32, 8, 2),
}


def pad_dimension(dimension: int) -> int:
    """Return the columns of a block: the head dimension's next power of two, at least 16."""
    return max(16, 1 << (dimension - 1).bit_length())


@functools.cache
def find_configuration(
    kernel: Kernel, dimension: int, itemsize: int, capability: tuple[int, int]
) -> Configuration:
    """Return the configuration of a kernel for a head dimension up to 256.

    ``itemsize`` is the number of bytes of an element.
    """
    width = pad_dimension(dimension)
    if itemsize == 4:
        # Three products of tensor cores for one of float32 need many registers.
        block = 32 if width <= 128 else 16
        return Configuration(block, block, 4, 2 if width < 128 else 1)
    reads_shared_memory = capability[0] in (9, 10)
    if width < 64:
        block_q = 128 if kernel == "forward" else 64
        return Configuration(block_q, 64, 4, 3, tail_last=reads_shared_memory)
    if reads_shared_memory:
        return _DATA_CENTER[kernel, width]
    return _OTHER.get((kernel, width), Configuration(64, 64, 4, 3))
