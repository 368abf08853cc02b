"""Check of the kernels with an untested version of Triton.

The kernels use private parts of Triton, which change between releases. If the version is not in
:data:`scsigmoid.attention.hopper.TRITON`, each backend is compared with plain PyTorch on a small
batch before its first use. The result is stored in the cache of Triton's compiled kernels.
"""

import functools
import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import torch

from scsigmoid.attention import ops
from scsigmoid.attention.hopper import DIMENSIONS, TRITON
from scsigmoid.attention.problem import make_packed_problem
from scsigmoid.files import atomic_path
from scsigmoid.progress import log

#: Lengths of the sequences: several blocks, 0 tokens, 1 token, a block plus 1 token.
LENGTHS = (300, 0, 1, 129)
#: Maximum relative error. Rounding to bfloat16 causes less than 0.006.
LIMIT = 0.02


def _compute(tensors: list[torch.Tensor], backend: str) -> list[torch.Tensor]:
    """Return O, dQ, dK and dV of ``tensors``, [dO, Q, K, V]."""
    grad, q, k, v = tensors
    cu_seqlens = torch.tensor([0, *LENGTHS]).cumsum(0).to(q.device, torch.int32)
    problem = make_packed_problem(cu_seqlens, max(LENGTHS), q.shape[-1] ** -0.5)
    # With `deterministic`, `hopper` would launch the backward pass of `triton`.
    problem = problem._replace(accurate=False, deterministic=False)
    out = ops.compute(q, k, v, problem, backend)
    gradients = ops.compute_gradients(grad, q, k, v, problem, backend, bias_grad=False)
    return [out, *(x for x in gradients if x is not None)]  # the gradient of the bias is None


def compare(backend: str, device: torch.device) -> str:
    """Return how a backend's kernels fail, or "" if they agree with plain PyTorch."""
    from triton.errors import TritonError

    for dimension in DIMENSIONS:
        generator = torch.Generator().manual_seed(0)
        shape = (4, sum(LENGTHS), 2, dimension)
        tensors = list(torch.randn(shape, generator=generator).bfloat16())
        expected = _compute([x.double() for x in tensors], "reference")
        try:
            # The second call launches the compiled kernels directly (`launching.launch`).
            for _ in range(2):
                results = _compute([x.to(device) for x in tensors], backend)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise  # a failure of the GPU says nothing about the compiler
        except (TritonError, RuntimeError, ImportError, AttributeError, TypeError) as error:
            # The compiler raises TritonError, and RuntimeError from C++. Python raises the other
            # errors if a private part of Triton is missing or takes other arguments.
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
        for name, result, exact in zip(("O", "dQ", "dK", "dV"), results, expected, strict=True):
            deviation = (result.double().cpu() - exact).norm() / exact.norm()
            if not deviation < LIMIT:  # also if NaN
                return f"relative error of {name} at head dimension {dimension}: {deviation:.2g}"
    return ""


@functools.cache
def find_failure(backend: str, device: torch.device) -> str:
    """Return why a backend's kernels do not work with the installed Triton, or "" if they do."""
    import triton

    version = triton.__version__
    if ".".join(version.split(".")[:2]) in TRITON:
        return ""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    code = hashlib.sha256(b"".join(sources)).hexdigest()[:16]
    gpu = torch.cuda.get_device_name(device).replace(" ", "-")
    name = f"{backend}-triton-{version}-{gpu}-{code}.txt"
    path = Path(triton.knobs.cache.dir, "scsigmoid", name)
    try:
        failure = path.read_text(encoding="utf-8")
    except OSError:
        log(f"backend {backend}: not tested with triton {version}; checking its results once")
        # The caller's autocast, dispatch modes and stream do not apply in another thread.
        with ThreadPoolExecutor(1) as pool:
            failure = pool.submit(compare, backend, device).result()
        # If the file cannot be written, each process checks the kernels.
        with suppress(OSError), atomic_path(path) as temporary:
            temporary.write_text(failure, encoding="utf-8")
    if not failure:
        return ""
    return (
        f"its kernels fail with triton {version}, which they were not tested with ({failure}); "
        f"tested versions: {', '.join(TRITON)}; delete {path} to check again"
    )
