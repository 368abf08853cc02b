"""Compilation of the Triton kernels for several GPUs, without a GPU."""

import inspect

import pytest
import triton
from assembler import assemble, count_spilled_bytes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from scsigmoid.attention.launching import FUSED
from scsigmoid.attention.triton_launch import KERNELS, LOOPED, make_constants
from scsigmoid.attention.tuning import find_configuration, pad_dimension

ITEMSIZE = {"bf16": 2, "fp16": 2, "fp32": 4}
#: Maximum bytes of shared memory of a program on Hopper and data-center Blackwell.
SHARED_MEMORY = {90: 232_448, 100: 232_448}
#: The same on all other GPUs.
SMALL_SHARED_MEMORY = 101_376
INTEGERS = ("STARTS_Q", "ENDS_Q", "STARTS_K", "ENDS_K", "TILES")
#: Arguments that a launch does not mark as multiples of 16.
UNALIGNED = ("scale", "heads", "blocks", "programs", "ENDS_Q", "ENDS_K")


def compile_kernel(
    kernel,
    dimension,
    dtype,
    capability,
    *,
    accurate=False,
    bias_grad=False,
    causal=False,
    key_bias=False,
):
    """Compile a kernel as a launch would for a jagged batch of aligned tensors without bias."""
    itemsize, width = ITEMSIZE[dtype], pad_dimension(dimension)
    configuration = find_configuration(kernel, dimension, itemsize, divmod(capability, 10))
    options = {"accurate": accurate, "causal": causal}
    constants = make_constants(configuration, dimension, itemsize, **options)
    constants["BIAS"] = None
    if not key_bias:
        constants["KEY_BIAS"] = None
    if kernel != "forward":
        constants["BIAS_GRAD"] = bias_grad
    rows = configuration.block_q if kernel == "dkdv" else configuration.block_k
    descriptors = LOOPED[kernel] if configuration.tma else ()
    signature, attributes = {}, {}
    for index, name in enumerate(inspect.signature(KERNELS[kernel].fn).parameters):
        if (name == "DBIAS" and bias_grad) or (name == "KEY_BIAS" and key_bias):
            signature[name] = "*fp32"
        elif name == "DBIAS":
            signature[name] = "constexpr"
            constants[name] = None
        elif name in constants:
            signature[name] = "constexpr"
        elif name == "scale":
            signature[name] = "fp32"
        elif index in descriptors:
            signature[name] = f"tensordesc<{dtype}[1,1,{rows},1,{width}]>"
        elif name.isupper():
            signature[name] = "*i32" if name in INTEGERS else f"*{dtype}"
        else:
            signature[name] = "i32"
        is_aligned = index not in descriptors and signature[name] != "constexpr"
        if is_aligned and name not in UNALIGNED:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(KERNELS[kernel], signature, constants, attributes)
    options = {"num_warps": configuration.warps, "num_stages": configuration.stages, **FUSED}
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assert binary.metadata.shared <= SHARED_MEMORY.get(capability, SMALL_SHARED_MEMORY)
    assert binary.metadata.num_warps == configuration.warps
    assert ("cp.async.bulk.tensor" in binary.asm["ptx"]) == configuration.tma
    return binary


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("dimension", "capability"), [(64, 80), (128, 80), (64, 90), (128, 90), (128, 100), (128, 120)]
)
def test_half_precision_does_not_spill(kernel, dimension, capability):
    binary = compile_kernel(kernel, dimension, "bf16", capability)
    report = assemble(binary)
    assert count_spilled_bytes(report) == 0
    # On Hopper ptxas says if matrix products must wait for each other.
    assert "serialized" not in report
    assert "tanh.approx.f32" in binary.asm["ptx"]
    assert ("wgmma" in binary.asm["ptx"]) == (capability == 90)
    assert ("tcgen05.mma" in binary.asm["ptx"]) == (capability == 100)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("dimension", "dtype", "capability"),
    [
        (16, "fp16", 90),
        (32, "bf16", 90),
        (96, "bf16", 90),
        (96, "fp16", 120),
        (64, "fp32", 80),
        (64, "fp32", 120),
        (128, "fp32", 90),
        (256, "fp32", 80),
    ],
)
def test_other_configurations_compile(kernel, dimension, dtype, capability):
    binary = compile_kernel(kernel, dimension, dtype, capability)
    # float32 always has the exact sigmoid.
    assert ("tanh.approx" in binary.asm["ptx"]) == (dtype != "fp32")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [64, 128])
def test_accurate_sigmoid(kernel, dimension):
    binary = compile_kernel(kernel, dimension, "bf16", 90, accurate=True)
    assert "tanh.approx" not in binary.asm["ptx"]
    # One reciprocal for two elements.
    counts = {name: binary.asm["ptx"].count(f"{name}.approx") for name in ("ex2", "rcp")}
    assert counts["ex2"] == 2 * counts["rcp"]
    assert count_spilled_bytes(assemble(binary)) == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("capability", [80, 90, 100, 120])
@pytest.mark.parametrize(("dimension", "causal"), [(64, True), (128, True), (256, False)])
def test_masked_and_wide_kernels_spill_little(kernel, capability, dimension, causal):
    binary = compile_kernel(kernel, dimension, "bf16", capability, causal=causal)
    report = assemble(binary)
    assert count_spilled_bytes(report) <= 256
    assert "serialized" not in report


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_bias_of_each_key(kernel, dimension, causal):
    options = {"key_bias": True, "bias_grad": kernel == "dkdv", "causal": causal}
    report = assemble(compile_kernel(kernel, dimension, "bf16", 90, **options))
    assert count_spilled_bytes(report) <= 256


def test_gradient_of_the_bias_compiles():
    compile_kernel("dq", 64, "bf16", 90, bias_grad=True)
