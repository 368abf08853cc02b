"""Compile the Hopper kernels for sm_90 without a GPU and print the assembler's findings as JSON.

``test_hopper_compile.py`` runs this program with each version of Triton, in a process of its own,
because a simulated driver replaces the CUDA driver of the whole process.
"""

import json
import re
import sys

import torch
import triton
from assembler import assemble, count_spilled_bytes
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver


class SimulatedDriver:
    """The part of a driver that compilation needs."""

    class utils:
        @staticmethod
        def get_device_properties(device):
            return {"max_shared_mem": 232_448, "multiprocessor_count": 132, "warpSize": 32}

    class launcher_cls:
        def __init__(self, *arguments, **options):
            pass

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0

    def set_current_device(self, device):
        pass

    def get_active_torch_device(self):
        return torch.device("cpu")

    def map_python_to_cpp_type(self, name):
        return name


def inspect(kernel) -> dict:
    """Return spills, shared memory, warnings and counts of instructions of a compiled kernel."""
    report, ptx = assemble(kernel), kernel.asm["ptx"]
    return {
        "spilled": count_spilled_bytes(report),
        "serialized": sorted(set(re.findall(r"\(C75\d\d\)", report))),
        "shared": kernel.metadata.shared,
        "products": ptx.count("wgmma.mma_async"),
        "reductions": ptx.count("cp.reduce.async.bulk.tensor"),
        "tanh": ptx.count("tanh.approx"),
        "votes": ptx.count("vote.sync.any"),
    }


def parameter_sizes(ptx: str) -> list[int]:
    """Return the bytes of each parameter of the kernel in ``ptx``."""
    sizes = re.findall(r"\.param (?:\.align \d+ )?\.[bfsu](\d+)[^\[,\n]*(?:\[(\d+)\])?", ptx)
    return [int(bits) // 8 * int(count or 1) for bits, count in sizes]


def is_launched_directly(kernel, tiles: int, arguments: int) -> bool:
    """Return True if the kernel has the parameters that :mod:`cuda_driver` passes to it."""
    from scsigmoid.attention import cuda_driver

    class SimulatedLibrary:
        def parameter_sizes(self, function):
            return parameter_sizes(kernel.asm["ptx"])

    cuda_driver.load_driver = SimulatedLibrary
    return cuda_driver.prepare(kernel, [None] * tiles, [None] * arguments, None) is not None


def main() -> None:
    driver.set_active(SimulatedDriver())
    from scsigmoid.attention import hopper_launch
    from scsigmoid.attention.hopper_gluon import make_descriptor
    from scsigmoid.attention.launching import FUSED

    def describe(rows, dtype, dimension):
        return make_descriptor(torch.empty(4096, 4, dimension, dtype=dtype), rows, dimension)

    table = torch.empty(64, dtype=torch.int32)
    for dimension, form, dtype in (
        (64, "tanh", torch.bfloat16),
        (128, "tanh", torch.bfloat16),
        (64, "vote", torch.bfloat16),
        (128, "vote", torch.bfloat16),
        (128, "pair", torch.float16),
    ):
        options = {"FORM": form, "num_warps": 4, "grid": (132,), **FUSED}
        constants = hopper_launch.FORWARD[dimension]
        block = constants["BLOCK_K"]
        forward = hopper_launch.forward_kernel.warmup(
            *(describe(n, dtype, dimension) for n in (64, block, block, 64)),
            table,
            1.0,  # factor
            **constants,
            **options,
            maxnreg=hopper_launch.FORWARD_REGISTERS[dimension],
        )
        constants = hopper_launch.BACKWARD[dimension]
        block = constants["BLOCK_Q"]
        backward = hopper_launch.backward_kernel.warmup(
            *(describe(n, dtype, dimension) for n in (block, block, 64, 64)),
            make_descriptor(torch.empty(4096, 4, dimension), 64, 64),
            *(describe(64, dtype, dimension) for _ in range(2)),
            table,
            1.0,  # factor
            1.0,  # scale
            **constants,
            **options,
            maxnreg=hopper_launch.BACKWARD_REGISTERS,
        )
        for name, kernel, *counts in (("forward", forward, 4, 2), ("backward", backward, 7, 3)):
            row = {"kernel": name, "dimension": dimension, "form": form}
            row["direct"] = is_launched_directly(kernel, *counts)
            print(json.dumps(row | inspect(kernel)))


if __name__ == "__main__":
    print(f"triton {triton.__version__}", file=sys.stderr)
    main()
