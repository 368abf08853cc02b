"""Block sizes of the Triton kernels, by head dimension, type and kind of GPU.

A small curated table instead of autotuning: the same on every machine, and nothing to wait for.
The choices for half precision at head dimensions 64 and 128 are the best measured on an H200 for
plain Triton; the others are made to fit into registers and shared memory.
"""

from dataclasses import dataclass
from typing import Literal

Kernel = Literal["forward", "dq", "dkdv"]


@dataclass(frozen=True)
class Configuration:
    """How a kernel is cut into blocks.

    Attributes:
        block_q: query rows of a block.
        block_k: key rows of a block.
        warps: warps of a program.
        stages: blocks in flight in the inner loop.
    """

    block_q: int
    block_k: int
    warps: int
    stages: int


#: Shared memory of a program in bytes: Ada and other GPUs with little of it; Hopper and Blackwell.
SMALL_SHARED_MEMORY = 101_376
LARGE_SHARED_MEMORY = 232_448

#: Blocks are tiny in Triton's interpreter, so that small tests have whole, last and empty ones.
INTERPRETED = Configuration(16, 16, 4, 1)

_HALF: dict[tuple[Kernel, int], Configuration] = {
    ("forward", 16): Configuration(128, 64, 4, 3),
    ("forward", 32): Configuration(128, 64, 4, 3),
    ("forward", 64): Configuration(128, 64, 4, 3),
    ("forward", 128): Configuration(128, 32, 8, 4),
    ("dq", 16): Configuration(64, 64, 4, 3),
    ("dq", 32): Configuration(64, 64, 4, 3),
    ("dq", 64): Configuration(64, 64, 4, 3),
    ("dq", 128): Configuration(64, 64, 4, 2),
    ("dkdv", 16): Configuration(64, 64, 4, 3),
    ("dkdv", 32): Configuration(64, 64, 4, 3),
    ("dkdv", 64): Configuration(64, 64, 4, 3),
    ("dkdv", 128): Configuration(64, 64, 4, 2),
}

# Without matrix units that read shared memory themselves, operands take registers as well.
_HALF_FROM_REGISTERS: dict[tuple[Kernel, int], Configuration] = {
    **_HALF,
    ("forward", 64): Configuration(64, 64, 4, 3),
    ("forward", 128): Configuration(64, 64, 4, 3),
    ("dkdv", 128): Configuration(64, 64, 8, 2),
}

# float32 runs without tensor cores, for exactness; small blocks keep it in registers.
_SINGLE: dict[tuple[Kernel, int], Configuration] = {
    (kernel, width): Configuration(32, 32, 4, 2 if width < 128 else 1)
    for kernel in ("forward", "dq", "dkdv")
    for width in (16, 32, 64, 128)
}


def block_width(dimension: int) -> int:
    """Columns of a block: the head dimension's next power of two, at least 16."""
    return max(16, 1 << (dimension - 1).bit_length())


def configuration(
    kernel: Kernel, dimension: int, itemsize: int, capability: tuple[int, int]
) -> Configuration:
    """The configuration of a kernel.

    Args:
        kernel: ``forward``, ``dq`` or ``dkdv``.
        dimension: head dimension, up to 128.
        itemsize: bytes of an element.
        capability: the GPU's compute capability.
    """
    key = (kernel, block_width(dimension))
    if itemsize == 4:
        return _SINGLE[key]
    # Hopper and data-centre Blackwell; consumer Blackwell (12) has Ampere's matrix units.
    return _HALF[key] if capability[0] in (9, 10) else _HALF_FROM_REGISTERS[key]
