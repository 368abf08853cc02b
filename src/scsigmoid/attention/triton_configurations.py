"""Block sizes of the Triton kernels, by head dimension, type and kind of GPU.

A small curated table.  The first entry of a list is what runs on the GPUs that it was measured on;
on others, and on request, :mod:`scsigmoid.attention.tuning` times the entries of the list.  The
first choices for half precision at head dimensions 64 and 128 are the best measured on an H200
(docs/kernel-log.md); the others are made to fit into registers and shared memory.
"""

from dataclasses import dataclass
from typing import Literal

Kernel = Literal["forward", "dq", "dkdv"]
KERNELS: tuple[Kernel, ...] = ("forward", "dq", "dkdv")


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a kernel is cut into blocks.

    Attributes:
        block_q: query rows of a block.
        block_k: key rows of a block.
        warps: warps of a program.
        stages: blocks in flight in the inner loop.
        tma: the inner loop's blocks are copied whole by the hardware, by tensor descriptors.
        tail_last: without ``tma``, a sequence's last, partial block is done behind the others.
            Hopper's matrix units do not overlap with what follows otherwise; on Ampere it costs
            registers.
    """

    block_q: int
    block_k: int
    warps: int
    stages: int
    tma: bool = False
    tail_last: bool = False


#: Blocks are tiny in Triton's interpreter, so that small tests have whole, last and empty ones.
INTERPRETED = Configuration(16, 16, 4, 1)

#: GPUs that the first entries were measured on, by compute capability.
MEASURED = ((9, 0),)

_Table = dict[tuple[Kernel, int], tuple[Configuration, ...]]

# Hopper and data-centre Blackwell: matrix units read shared memory, and tiles are copied whole.
_HALF: _Table = {
    ("forward", 16): (Configuration(128, 64, 4, 3, tail_last=True),),
    ("forward", 32): (Configuration(128, 64, 4, 3, tail_last=True),),
    ("forward", 64): (
        Configuration(64, 64, 4, 3, tail_last=True),
        Configuration(128, 64, 8, 3, tma=True),
        Configuration(128, 64, 4, 3, tail_last=True),
        Configuration(128, 64, 4, 3, tma=True),
    ),
    ("forward", 128): (
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(128, 32, 8, 4, tma=True),
        Configuration(128, 64, 8, 3, tma=True),
    ),
    ("dq", 16): (Configuration(64, 64, 4, 3, tail_last=True),),
    ("dq", 32): (Configuration(64, 64, 4, 3, tail_last=True),),
    ("dq", 64): (
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(128, 64, 8, 3, tma=True),
        Configuration(64, 64, 4, 3, tail_last=True),
    ),
    ("dq", 128): (
        Configuration(64, 64, 4, 2, tma=True),
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(128, 64, 8, 2, tma=True),
        Configuration(64, 64, 4, 2, tail_last=True),
    ),
    ("dkdv", 16): (Configuration(64, 64, 4, 3, tail_last=True),),
    ("dkdv", 32): (Configuration(64, 64, 4, 3, tail_last=True),),
    ("dkdv", 64): (
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(64, 64, 4, 3, tail_last=True),
        Configuration(64, 128, 8, 3, tma=True),
    ),
    ("dkdv", 128): (
        Configuration(64, 64, 4, 2, tma=True),
        Configuration(64, 64, 4, 3, tma=True),
        Configuration(64, 128, 8, 2, tma=True),
    ),
}

# Other GPUs: operands take registers as well, and shared memory may be small.
_HALF_FROM_REGISTERS: _Table = {
    ("forward", 16): (Configuration(128, 64, 4, 3),),
    ("forward", 32): (Configuration(128, 64, 4, 3),),
    ("dq", 16): (Configuration(64, 64, 4, 3),),
    ("dq", 32): (Configuration(64, 64, 4, 3),),
    ("dkdv", 16): (Configuration(64, 64, 4, 3),),
    ("dkdv", 32): (Configuration(64, 64, 4, 3),),
    ("forward", 64): (
        Configuration(64, 64, 4, 3),
        Configuration(128, 64, 8, 3),
        Configuration(128, 64, 4, 3),
    ),
    ("forward", 128): (
        Configuration(64, 64, 4, 3),
        Configuration(128, 64, 8, 2),
        Configuration(128, 32, 8, 3),
    ),
    ("dq", 64): (
        Configuration(64, 64, 4, 3),
        Configuration(64, 64, 4, 2),
        Configuration(128, 64, 8, 2),
    ),
    ("dq", 128): (
        Configuration(64, 64, 4, 2),
        Configuration(64, 32, 4, 2),
        Configuration(64, 64, 8, 2),
    ),
    ("dkdv", 64): (
        Configuration(64, 64, 4, 3),
        Configuration(64, 64, 4, 2),
        Configuration(64, 128, 8, 2),
    ),
    ("dkdv", 128): (
        Configuration(64, 64, 8, 2),
        Configuration(32, 64, 4, 2),
        Configuration(32, 64, 8, 2),
    ),
}

# float32 runs without tensor cores, for exactness; small blocks keep it in registers.
_SINGLE: _Table = {
    (kernel, width): (Configuration(32, 32, 4, 2 if width < 128 else 1),)
    for kernel in KERNELS
    for width in (16, 32, 64, 128)
}


def block_width(dimension: int) -> int:
    """Columns of a block: the head dimension's next power of two, at least 16."""
    return max(16, 1 << (dimension - 1).bit_length())


def configurations(
    kernel: Kernel, dimension: int, itemsize: int, capability: tuple[int, int]
) -> tuple[Configuration, ...]:
    """The configurations of a kernel that are worth timing, the preferred one first.

    Args:
        kernel: ``forward``, ``dq`` or ``dkdv``.
        dimension: head dimension, up to 128.
        itemsize: bytes of an element.
        capability: the GPU's compute capability.
    """
    key = (kernel, block_width(dimension))
    if itemsize == 4:
        return _SINGLE[key]
    # Consumer Blackwell (12) has Ampere's matrix units.
    return _HALF[key] if capability[0] in (9, 10) else _HALF_FROM_REGISTERS[key]
