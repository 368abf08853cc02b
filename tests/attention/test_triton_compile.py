"""Every shipped configuration compiles for every kind of GPU, without a GPU, and does not spill."""

import inspect
import re
import subprocess
from pathlib import Path

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from scsigmoid.attention import triton_sigmoid
from scsigmoid.attention.triton_configurations import (
    LARGE_SHARED_MEMORY,
    SMALL_SHARED_MEMORY,
    block_width,
    configuration,
)
from scsigmoid.attention.triton_launch import constants

KERNELS = {
    "forward": triton_sigmoid.forward_kernel,
    "dq": triton_sigmoid.dq_kernel,
    "dkdv": triton_sigmoid.dkdv_kernel,
}
TYPES = {"bf16": 2, "fp16": 2, "fp32": 4}
#: Shared memory of a program in bytes; A100 has 163 KiB but shares its table with smaller GPUs.
SHARED_MEMORY = {90: LARGE_SHARED_MEMORY, 100: LARGE_SHARED_MEMORY}
BOUNDARIES = ("STARTS_Q", "ENDS_Q", "STARTS_K", "ENDS_K")


def compiled(kernel, dimension, dtype, capability, *, accurate=False):
    """The kernel as a launch would compile it: aligned pointers and strides, no bias given."""
    chosen = configuration(kernel, dimension, TYPES[dtype], divmod(capability, 10))
    fixed = constants(chosen, dimension, TYPES[dtype], has_bias=False, accurate=accurate)
    signature, attributes = {}, {}
    for place, name in enumerate(inspect.signature(KERNELS[kernel].fn).parameters):
        if name in fixed:
            signature[name] = "constexpr"
        elif name == "BIAS":
            signature[name], fixed[name] = "constexpr", None
        elif name == "scale":
            signature[name] = "fp32"
        elif name.isupper():
            signature[name] = "*i32" if name in BOUNDARIES else f"*{dtype}"
        else:
            signature[name] = "i32"
        if signature[name] != "constexpr" and name not in ("scale", "blocks", "ENDS_Q", "ENDS_K"):
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(KERNELS[kernel], signature, fixed, attributes)
    options = {"num_warps": chosen.warps, "num_stages": chosen.stages}
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    shared = SHARED_MEMORY.get(capability, SMALL_SHARED_MEMORY)
    assert binary.metadata.shared <= shared
    assert binary.metadata.num_warps == chosen.warps
    return binary


def spilled(binary, tmp_path: Path) -> int:
    """Bytes of registers that the assembler spilled, by its own report."""
    target = re.search(r"\.target (sm_\w+)", binary.asm["ptx"])[1]
    folder = Path(triton.__file__).parent / "backends/nvidia/bin"
    blackwell = folder / "ptxas-blackwell"
    assembler = blackwell if target.startswith("sm_1") and blackwell.exists() else folder / "ptxas"
    source = tmp_path / "kernel.ptx"
    source.write_text(binary.asm["ptx"])
    report = subprocess.run(
        [assembler, "-v", f"--gpu-name={target}", source, "-o", tmp_path / "kernel.cubin"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.findall(r"(\d+) bytes spill stores", report.stderr + report.stdout)
    assert found, report.stderr
    return sum(map(int, found))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("dimension", "capability"),
    [(64, 80), (128, 80), (128, 89), (64, 90), (128, 90), (64, 100), (128, 100)],
)
def test_tuned_configurations_compile_without_spills(kernel, dimension, capability, tmp_path):
    binary = compiled(kernel, dimension, "bf16", capability)
    # dK and dV at 128 fill Hopper's registers: two words are put aside, outside of the loop.
    tolerated = 8 if (kernel, dimension, capability) == ("dkdv", 128, 90) else 0
    assert spilled(binary, tmp_path) <= tolerated
    assert "tanh.approx.f32" in binary.asm["ptx"]
    assert ("wgmma" in binary.asm["ptx"]) == (capability == 90)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("dimension", "dtype", "capability"),
    [
        (16, "bf16", 80),
        (32, "fp16", 90),
        (96, "bf16", 90),
        (96, "fp16", 120),
        (64, "fp32", 80),
    ],
)
def test_other_configurations_compile(kernel, dimension, dtype, capability):
    binary = compiled(kernel, dimension, dtype, capability)
    # Approximate activations are for half precision alone.
    assert ("tanh.approx" in binary.asm["ptx"]) == (dtype != "fp32")


def test_widest_float32_compiles():
    compiled("dq", 128, "fp32", 90)


@pytest.mark.parametrize("kernel", KERNELS)
def test_accurate_sigmoid_has_no_approximate_tanh(kernel):
    assert "tanh.approx" not in compiled(kernel, 64, "bf16", 90, accurate=True).asm["ptx"]


@pytest.mark.parametrize(
    ("dimension", "width"), [(8, 16), (16, 16), (24, 32), (64, 64), (96, 128), (128, 128)]
)
def test_block_width(dimension, width):
    assert block_width(dimension) == width
