"""Check of the kernels with untested versions of Triton and PyTorch.

This project's kernels use private parts of Triton, which change between releases. PyTorch chooses
the kernel of ``sdpa``, which may change with the versions of PyTorch and cuDNN. If the version of
Triton is not in :data:`scsigmoid.attention.hopper.TRITON`, or that of PyTorch not in
:data:`scsigmoid.attention.sdpa.TORCH`, a backend is compared with plain PyTorch on a small batch
before its first use, separately for each width of tiles and each option. The result is stored in
the cache of Triton's compiled kernels.
"""

import functools
import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import torch

from scsigmoid.attention import ops
from scsigmoid.attention.hopper import TRITON
from scsigmoid.attention.problem import (
    CAUSAL,
    KEY_BIAS,
    Kind,
    compute_dtype,
    make_packed_problem,
)
from scsigmoid.attention.sdpa import TORCH
from scsigmoid.attention.sdpa import attend as attend_by_sdpa
from scsigmoid.files import atomic_path
from scsigmoid.progress import log

#: Lengths of the sequences: several blocks, 0 tokens, 1 token, a block plus 1 token.
LENGTHS = (300, 0, 1, 129)
#: Maximum relative error. Rounding to bfloat16 causes less than 0.006.
LIMIT = 0.02


def _compute(
    tensors: list[torch.Tensor], backend: str, kind: Kind, option: str
) -> list[torch.Tensor]:
    """Return O, dQ, dK and dV of ``tensors``, [dO, Q, K, V], for attention of a kind."""
    grad, q, k, v = tensors
    cu_seqlens = torch.tensor([0, *LENGTHS]).cumsum(0).to(q.device, torch.int32)
    scale = q.shape[-1] ** -0.5
    if backend == "sdpa":
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        with torch.enable_grad():
            out = attend_by_sdpa(inputs, cu_seqlens, max(LENGTHS), scale)
            return [out.detach(), *torch.autograd.grad(out, inputs, grad)]
    problem = make_packed_problem(cu_seqlens, max(LENGTHS), scale, kind)
    # With `deterministic`, `hopper` would launch the backward pass of `triton`.
    problem = problem._replace(accurate=False, deterministic=False)
    has_key_bias = option == KEY_BIAS
    if has_key_bias:
        problem = problem._replace(key_bias=q[:, 0, 0].to(compute_dtype(q)))
    problem = problem._replace(is_causal=option == CAUSAL)
    out = ops.compute(q, k, v, problem, backend)
    gradients = ops.compute_gradients(grad, q, k, v, problem, backend, False, has_key_bias)
    return [out, *(x for x in gradients if x is not None)]  # gradients of absent biases are None


def compare(backend: str, device: torch.device, dimension: int, option: str = "") -> str:
    """Return how a backend's kernels fail, or "" if they agree with plain PyTorch."""
    from triton.errors import TritonError

    kind: Kind = "softmax" if backend == "sdpa" else "sigmoid"
    generator = torch.Generator().manual_seed(0)
    shape = (4, sum(LENGTHS), 2, dimension)
    tensors = list(torch.randn(shape, generator=generator).bfloat16())
    expected = _compute([x.double() for x in tensors], "reference", kind, option)
    try:
        # The second call launches the compiled kernels directly (`launching.launch`).
        for _ in range(2):
            results = _compute([x.to(device) for x in tensors], backend, kind, option)
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise  # a failure of the GPU says nothing about the compiler
    except (TritonError, RuntimeError, ImportError, AttributeError, TypeError) as error:
        # The compiler raises TritonError, and RuntimeError from C++. Python raises the other
        # errors if a private part of Triton is missing or takes other arguments.
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
    names = ("O", "dQ", "dK", "dV", "dkey_bias")[: len(expected)]
    for name, result, exact in zip(names, results, expected, strict=True):
        deviation = (result.double().cpu() - exact).norm() / exact.norm()
        if not deviation < LIMIT:  # also if NaN
            return f"relative error of {name} at head dimension {dimension}: {deviation:.2g}"
    return ""


@functools.cache
def find_failure(backend: str, device: torch.device, dimension: int = 64, option: str = "") -> str:
    """Return why a backend's kernels fail with the installed software, or "" if they work.

    ``dimension``: the width of tiles, 64, 128 or 256. ``option``: :data:`CAUSAL`, :data:`KEY_BIAS`
    or "".
    """
    import triton

    tested: tuple[str, ...]
    if backend == "sdpa":
        tested, version = TORCH, torch.__version__
        software = f"torch {version} and cuDNN {torch.backends.cudnn.version()}"
    else:
        tested, version = TRITON, triton.__version__
        software = f"triton {version}"
    if ".".join(version.split(".")[:2]) in tested:
        return ""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    code = hashlib.sha256(b"".join(sources)).hexdigest()[:16]
    gpu = torch.cuda.get_device_name(device).replace(" ", "-")
    words = [backend, *software.split(), gpu, code, str(dimension), *option.split()]
    path = Path(triton.knobs.cache.dir, "scsigmoid", "-".join(words) + ".txt")
    try:
        failure = path.read_text(encoding="utf-8")
    except OSError:
        log(f"backend {backend}: not tested with {software}; checking its results once")
        # The caller's autocast, dispatch modes and stream do not apply in another thread.
        with ThreadPoolExecutor(1) as pool:
            failure = pool.submit(compare, backend, device, dimension, option).result()
        # If the file cannot be written, each process checks the kernels.
        with suppress(OSError), atomic_path(path) as temporary:
            temporary.write_text(failure, encoding="utf-8")
    if not failure:
        return ""
    return (
        f"its kernels fail with {software}, which they were not tested with ({failure}); "
        f"tested versions: {', '.join(tested)}; delete {path} to check again"
    )
