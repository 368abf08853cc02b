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
BOUNDARIES = ("STARTS_Q", "ENDS_Q", "STARTS_K", "ENDS_K")


def compiled(kernel, dimension, dtype, capability, *, accurate=False, small=False):
    """The kernel as a launch would compile it: aligned pointers and strides, no bias given."""
    shared = SMALL_SHARED_MEMORY if small else LARGE_SHARED_MEMORY
    chosen = configuration(kernel, dimension, TYPES[dtype], shared)
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
    return binary, chosen, shared


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


TUNED = [
    (kernel, dimension, capability)
    for kernel in KERNELS
    for dimension in (64, 128)
    for capability in (80, 90, 100)
]


@pytest.mark.parametrize(("kernel", "dimension", "capability"), TUNED)
def test_tuned_configurations_compile_without_spills(kernel, dimension, capability, tmp_path):
    binary, chosen, shared = compiled(kernel, dimension, "bf16", capability)
    assert binary.metadata.shared <= shared
    assert binary.metadata.num_warps == chosen.warps
    assert spilled(binary, tmp_path) == 0
    assert "tanh.approx.f32" in binary.asm["ptx"]
    if capability == 90:
        assert "wgmma" in binary.asm["ptx"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [64, 128])
def test_configurations_for_small_shared_memory(kernel, dimension, tmp_path):
    binary, _, shared = compiled(kernel, dimension, "bf16", 89, small=True)
    assert binary.metadata.shared <= shared
    assert spilled(binary, tmp_path) == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("dimension", "dtype", "capability"),
    [(16, "bf16", 80), (32, "fp16", 90), (96, "bf16", 90), (96, "bf16", 80)]
    + [(dimension, "fp32", capability) for dimension in (32, 128) for capability in (80, 90)]
    + [(64, "fp32", 100)],
)
def test_other_configurations_compile(kernel, dimension, dtype, capability):
    binary, _, shared = compiled(kernel, dimension, dtype, capability)
    assert binary.metadata.shared <= min(shared, SMALL_SHARED_MEMORY if dtype == "fp32" else shared)
    # Approximate activations are for half precision alone.
    assert ("tanh.approx" in binary.asm["ptx"]) == (dtype != "fp32")


@pytest.mark.parametrize("kernel", KERNELS)
def test_accurate_sigmoid_has_no_approximate_tanh(kernel):
    binary, _, _ = compiled(kernel, 64, "bf16", 90, accurate=True)
    assert "tanh.approx" not in binary.asm["ptx"]


@pytest.mark.parametrize(
    ("dimension", "width"), [(8, 16), (16, 16), (24, 32), (64, 64), (96, 128), (128, 128)]
)
def test_block_width(dimension, width):
    assert block_width(dimension) == width
