"""Attention kernels by name: this project's backends, and other kernels that benchmarks time.

To add a backend, add an entry to :data:`BACKENDS`, a module to :mod:`scsigmoid.attention`, and
tests. To compare with another kernel, add a label to :data:`OTHERS`, a provider to
:mod:`scsigmoid.benchmarks.providers`, its package to :data:`PACKAGES`, and tests. This module
imports only the standard library.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

#: Compute capabilities. Kernels need Ampere for ``tanh.approx``, asynchronous copies and bfloat16.
AMPERE, HOPPER = (8, 0), (9, 0)


@dataclass(frozen=True, kw_only=True)
class Backend:
    """An implementation of attention.

    Modules are named relative to :mod:`scsigmoid.attention`, and imported on first use.
    """

    label: str  # name in tables and figures
    launcher: str = ""  # for sigmoid attention: module with the functions `forward`, `backward`
    # For softmax attention: the function, as `module:function`. Its arguments are the list
    # [q, k, v], `cu_seqlens`, `max_seqlen`, the scale, and a mask, if any.
    attend: str = ""
    # For softmax attention that needs a mask: the function that makes it, as `module:function`. Its
    # arguments are `cu_seqlens` and the number of tokens.
    mask: str = ""
    # Whether `attend` also accepts [qkv] of shape (tokens, 3, heads, head dimension).
    takes_qkv: bool = False
    capability: tuple[int, int] | None = None  # minimum compute capability, None if all GPUs run it
    needs_exact_capability: bool = False  # whether GPUs of a higher capability are not supported
    runs_on_cpu: bool = False
    # Whether its results on a GPU are compared with plain PyTorch before the first use with
    # untested versions of Triton or PyTorch (:mod:`scsigmoid.attention.selfcheck`).
    is_checked: bool = False
    is_automatic: bool = True  # whether `auto` may choose the backend
    alternative: str = "reference"  # backend that messages recommend if this one does not run
    # Module with the function `unavailable`. It returns why the kernels do not run on a GPU of the
    # required capability, or "" if they do.
    kernels: str = ""
    packages: tuple[str, ...] = ()  # pip names. The first package contains the kernels.
    # Whether benchmarks on a GPU time the backend under its own name. If not, they time it only if
    # :mod:`scsigmoid.benchmarks.providers` has an entry for it.
    is_compared: bool = False

    @property
    def package(self) -> str:
        """The optional package with the kernels, or "" if none is needed."""
        return self.packages[0] if self.packages else ""


#: The backends of each attention, fastest on a GPU first. The backward pass of ``triton`` computes
#: scores and their gradients twice, for dQ and for dK and dV, so it has two products more.
BACKENDS: dict[str, dict[str, Backend]] = {
    "sigmoid": {
        "hopper": Backend(
            label="Sigmoid, Hopper",
            launcher="hopper_launch",
            capability=HOPPER,
            needs_exact_capability=True,
            alternative="triton",
            kernels="hopper",
            is_checked=True,
            is_compared=True,
        ),
        "triton": Backend(
            label="Sigmoid, Triton",
            launcher="triton_launch",
            capability=AMPERE,
            is_checked=True,
            is_compared=True,
        ),
        "reference": Backend(label="Sigmoid, reference", launcher="reference", runs_on_cpu=True),
    },
    "softmax": {
        "fa4": Backend(
            label="FlashAttention-4",
            attend="fa4:attend",
            takes_qkv=True,
            capability=HOPPER,
            needs_exact_capability=True,
            alternative="sdpa",
            kernels="fa4",
            packages=("flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels"),
            is_compared=True,
        ),
        "sdpa": Backend(
            label="Softmax, SDPA",
            attend="sdpa:attend",
            capability=AMPERE,
            runs_on_cpu=True,
            is_checked=True,
        ),
        "flex": Backend(
            label="Softmax, FlexAttention",
            attend="flex:attend",
            mask="flex:document_mask",
            capability=AMPERE,
            is_automatic=False,
            alternative="sdpa",
        ),
        "reference": Backend(
            label="Softmax, reference", attend="ops:attend_softmax", runs_on_cpu=True
        ),
    },
}

#: This project's kernels of sigmoid attention, fastest first.
OURS = tuple(name for name, backend in BACKENDS["sigmoid"].items() if backend.is_compared)

#: Labels in tables and figures of all other names under which benchmarks time kernels.
OTHERS = {
    "triton_sigmoid": "TritonSigmoid",
    "flash_sigmoid": "FlashSigmoid",
    "fa4_sigmoid": "Sigmoid, FlashAttention-4",
    "flex_sigmoid": "Sigmoid, FlexAttention",
    "flash_attention_2": "FlashAttention-2",
    "pytorch": "Softmax, PyTorch",
    "pytorch_sigmoid": "Sigmoid, PyTorch",
    "reference_sigmoid": "Sigmoid, reference",
    "cudnn": "Softmax, cuDNN",
}

#: Label of each kernel in tables and figures. Later entries replace earlier ones: ``reference`` has
#: the label of sigmoid attention, and our kernels have the addition "(ours)".
LABELS = {
    **{name: backend.label for name, backend in BACKENDS["softmax"].items()},
    **{name: backend.label for name, backend in BACKENDS["sigmoid"].items()},
    **{name: f"{BACKENDS['sigmoid'][name].label} (ours)" for name in OURS},
    **{f"{name}_accurate": f"{BACKENDS['sigmoid'][name].label} (ours, exact)" for name in OURS},
    **OTHERS,
}

#: pip names of optional packages with kernels. Benchmarks record their versions.
PACKAGES = ["triton-sigmoid"]
for backends in BACKENDS.values():
    for backend in backends.values():
        PACKAGES += backend.packages


def version_of(package: str) -> str:
    """Return the version of an optional package, or "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
