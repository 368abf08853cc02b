"""Every shipped configuration compiles for every kind of GPU, without a GPU, and does not spill."""

import inspect
import re
import subprocess
from pathlib import Path

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from scsigmoid.attention.launching import FUSED
from scsigmoid.attention.triton_launch import KERNELS, LOOPED, constants
from scsigmoid.attention.tuning import block_width, configuration

TYPES = {"bf16": 2, "fp16": 2, "fp32": 4}
#: Shared memory of a program in bytes, on Hopper and Blackwell, and on GPUs with little of it; A100
#: has 163 KiB but shares its table with those.
SHARED_MEMORY = {90: 232_448, 100: 232_448}
SMALL_SHARED_MEMORY = 101_376
INTEGERS = ("STARTS_Q", "ENDS_Q", "STARTS_K", "ENDS_K", "TILES")
#: Arguments that a launch does not mark as multiples of 16.
UNALIGNED = ("scale", "heads", "blocks", "most", "ENDS_Q", "ENDS_K")


def shipped(kernel, dimension, dtype, capability):
    return configuration(kernel, dimension, TYPES[dtype], divmod(capability, 10))


def compiled(kernel, chosen, dimension, dtype, capability, *, accurate=False, bias_grad=False):
    """The kernel as a launch would compile it for a jagged batch: aligned tensors, no bias."""
    fixed = constants(chosen, dimension, TYPES[dtype], has_bias=False, accurate=accurate)
    fixed |= {"SCHEDULED": True, "BIAS": None}
    if kernel == "dq":
        fixed["BIAS_GRAD"] = bias_grad
    rows = chosen.block_q if kernel == "dkdv" else chosen.block_k
    described = LOOPED[kernel] if chosen.tma else ()
    signature, attributes = {}, {}
    for place, name in enumerate(inspect.signature(KERNELS[kernel].fn).parameters):
        if name == "DBIAS":
            signature[name] = "*fp32" if bias_grad else "constexpr"
            fixed |= {} if bias_grad else {name: None}
        elif name in fixed:
            signature[name] = "constexpr"
        elif name == "scale":
            signature[name] = "fp32"
        elif place in described:
            signature[name] = f"tensordesc<{dtype}[1,1,{rows},1,{block_width(dimension)}]>"
        elif name.isupper():
            signature[name] = "*i32" if name in INTEGERS else f"*{dtype}"
        else:
            signature[name] = "i32"
        aligned = place not in described and signature[name] != "constexpr"
        if aligned and name not in UNALIGNED:
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(KERNELS[kernel], signature, fixed, attributes)
    options = {"num_warps": chosen.warps, "num_stages": chosen.stages, **FUSED}
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    shared = SHARED_MEMORY.get(capability, SMALL_SHARED_MEMORY)
    assert binary.metadata.shared <= shared
    assert binary.metadata.num_warps == chosen.warps
    return binary


def assembled(binary, tmp_path: Path) -> str:
    """What the assembler reports."""
    target = re.search(r"\.target (sm_\w+)", binary.asm["ptx"])[1]
    assembler = get_ptxas(binary.metadata.target.arch).path
    source = tmp_path / "kernel.ptx"
    source.write_text(binary.asm["ptx"])
    report = subprocess.run(
        [assembler, "-v", f"--gpu-name={target}", source, "-o", tmp_path / "kernel.cubin"],
        capture_output=True,
        text=True,
        check=True,
    )
    return report.stderr + report.stdout


def spilled(report: str) -> int:
    """Bytes of registers that the assembler put aside."""
    found = re.findall(r"(\d+) bytes spill stores", report)
    assert found, report
    return sum(map(int, found))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("dimension", "capability"),
    [(64, 80), (128, 80), (64, 90), (128, 90), (128, 100)],
)
def test_half_precision_compiles_without_spills(kernel, dimension, capability, tmp_path):
    chosen = shipped(kernel, dimension, "bf16", capability)
    binary = compiled(kernel, chosen, dimension, "bf16", capability)
    report = assembled(binary, tmp_path)
    assert spilled(report) == 0
    # On Hopper the assembler says where it makes matrix products wait for each other.
    assert "serialized" not in report
    assert "tanh.approx.f32" in binary.asm["ptx"]
    assert ("wgmma" in binary.asm["ptx"]) == (capability == 90)
    assert ("tcgen05.mma" in binary.asm["ptx"]) == (capability == 100)
    assert ("cp.async.bulk.tensor" in binary.asm["ptx"]) == chosen.tma


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("dimension", "dtype", "capability"),
    [
        (16, "fp16", 90),
        (96, "bf16", 90),
        (96, "fp16", 120),
        (64, "fp32", 80),
    ],
)
def test_other_configurations_compile(kernel, dimension, dtype, capability):
    chosen = shipped(kernel, dimension, dtype, capability)
    binary = compiled(kernel, chosen, dimension, dtype, capability)
    # Approximate activations are for half precision alone.
    assert ("tanh.approx" in binary.asm["ptx"]) == (dtype != "fp32")


def test_widest_float32_compiles():
    compiled("dq", shipped("dq", 128, "fp32", 90), 128, "fp32", 90)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [64, 128])
def test_accurate_sigmoid(kernel, dimension, tmp_path):
    chosen = shipped(kernel, dimension, "bf16", 90)
    binary = compiled(kernel, chosen, dimension, "bf16", 90, accurate=True)
    assert "tanh.approx" not in binary.asm["ptx"]
    # One reciprocal for two elements.
    found = {name: binary.asm["ptx"].count(f"{name}.approx") for name in ("ex2", "rcp")}
    assert found["ex2"] == 2 * found["rcp"]
    assert spilled(assembled(binary, tmp_path)) == 0


def test_gradient_of_the_bias_compiles():
    compiled("dq", shipped("dq", 64, "bf16", 90), 64, "bf16", 90, bias_grad=True)


@pytest.mark.parametrize(
    ("dimension", "width"), [(8, 16), (16, 16), (24, 32), (64, 64), (96, 128), (128, 128)]
)
def test_block_width(dimension, width):
    assert block_width(dimension) == width
