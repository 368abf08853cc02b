"""FlashSigmoid (Ramapuram et al.), the rival that the paper names: built from its sources, timed.

Its package takes one old torch; its kernels need none.  :func:`build` compiles them from a checkout
of apple/ml-sigmoid-attention behind the plain C interface of ``flash_sigmoid.cu``, and
:func:`attention` calls the library that :data:`VARIABLE` names.
"""

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path

#: The environment variable with the library's path.
VARIABLE = "SCSIGMOID_FLASH_SIGMOID"
# Of the sources' own build.  The torch headers that they include are replaced by empty files.
FLAGS = (
    "-O3", "-std=c++20", "-arch=sm_90", "--expt-relaxed-constexpr", "--expt-extended-lambda",
    "--use_fast_math", "-shared", "-Xcompiler", "-fPIC", "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
)  # fmt: skip
HEADERS = ("CUDAContext.h", "CUDAGeneratorImpl.h", "CUDAGraphsUtils.cuh")


def build(checkout: Path, include: Sequence[Path], nvcc: str, output: Path) -> None:
    """Compile the kernels for Hopper; takes minutes of one core, and no GPU.

    Args:
        checkout: of apple/ml-sigmoid-attention.
        include: further folders with headers; those of CUTLASS 3.4 must be in one of them where the
            checkout lacks its submodule.
        nvcc: CUDA's compiler.
        output: the shared library.

    Raises:
        UserError: if sources, headers or compiler are missing, or it does not compile.
    """
    found = sorted(checkout.rglob("flash_bwd_launch_template.h"))
    if not found:
        raise UserError(
            f"--checkout {checkout}: no flash_bwd_launch_template.h in it; clone "
            "https://github.com/apple/ml-sigmoid-attention"
        )
    folders = [found[0].parent, *include, found[0].parent.parents[1] / "cutlass" / "include"]
    if not any((folder / "cutlass" / "cutlass.h").exists() for folder in folders):
        raise UserError(
            "--include: cutlass/cutlass.h is in none of the folders; clone CUTLASS 3.4 "
            "(https://github.com/NVIDIA/cutlass) and name its folder include"
        )
    with tempfile.TemporaryDirectory() as empty, atomic_path(output) as library:
        aten = Path(empty) / "ATen" / "cuda"
        aten.mkdir(parents=True)
        for header in HEADERS:
            (aten / header).touch()
        places = [f"-I{folder}" for folder in (empty, *folders)]
        source = Path(__file__).with_suffix(".cu")
        command = [nvcc, *FLAGS, *places, str(source), "-o", str(library)]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise UserError(f"--nvcc {nvcc}: cannot be run ({error.strerror})") from None
        if ran.returncode:
            errors = [line for line in ran.stderr.splitlines() if "error" in line]
            raise UserError(f"{source}: does not compile: {errors[0] if errors else ran.stderr}")


@functools.cache
def load(path: str) -> ctypes.CDLL:
    """A library that :func:`build` made.

    Raises:
        OSError: if it cannot be loaded.
    """
    library = ctypes.CDLL(path)
    common: list[Any] = [
        *[ctypes.c_void_p] * 4,
        *[ctypes.c_int] * 4,
        *[ctypes.c_float] * 2,
        ctypes.c_void_p,
    ]
    library.flash_sigmoid_forward.argtypes = common
    library.flash_sigmoid_backward.argtypes = [*common, *[ctypes.c_void_p] * 5]
    for function in (library.flash_sigmoid_forward, library.flash_sigmoid_backward):
        function.restype = ctypes.c_char_p
    return library


def stream() -> int:
    """Where torch launches kernels now."""
    return torch.cuda.current_stream().cuda_stream


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, bias, library):  # type: ignore[no-untyped-def]
        tensors = [x.contiguous() for x in (q, k, v)]
        tensors.append(torch.empty_like(tensors[0]))
        ctx.save_for_backward(*tensors)
        ctx.options = (*q.shape, q.shape[-1] ** -0.5, bias)
        ctx.library = library
        _call(library.flash_sigmoid_forward, tensors, ctx.options, [])
        return tensors[3]

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        tensors = ctx.saved_tensors
        gradients = [torch.empty_like(x) for x in tensors[:3]]
        sequences, length, heads, dimension, *_ = ctx.options
        rows = -(-length // 128) * 128
        sums = grad.new_empty(sequences, rows, heads, dimension, dtype=torch.float32)
        more = [grad.contiguous(), *gradients, sums]
        _call(ctx.library.flash_sigmoid_backward, tensors, ctx.options, more)
        return *gradients, None, None


def _call(function: Any, tensors: Sequence[Tensor], options: Any, more: Sequence[Tensor]) -> None:
    first, last = ([x.data_ptr() for x in each] for each in (tensors, more))
    failure = function(*first, *options, stream(), *last)
    if failure:
        raise RuntimeError(f"FlashSigmoid: {failure.decode()}")


def attention(q: Tensor, k: Tensor, v: Tensor, bias: float, library: ctypes.CDLL) -> Tensor:
    """Sigmoid attention of equally long sequences, with gradients of q, k and v.

    Args:
        q, k, v: (sequences, length, heads, dim), bfloat16, dim 64 or 128.
        bias: b, added to the scaled scores.
        library: of :func:`load`.
    """
    return _Attention.apply(q, k, v, bias, library)
