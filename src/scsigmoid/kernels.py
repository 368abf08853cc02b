"""Attention kernels by name: this project's backends, and others that benchmarks compare them with.

The configuration, the choice of a backend for a device, the benchmarks and the labels of tables and
figures read these two tables.  A new backend is an entry here, a module of
:mod:`scsigmoid.attention` and its tests; a new kernel to compare with is an entry here, its
provider in :mod:`scsigmoid.benchmarks.providers` and its tests.  Needs nothing but Python.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

#: Compute capabilities: ``tanh.approx``, asynchronous copies and bfloat16 need Ampere.
AMPERE, HOPPER = (8, 0), (9, 0)


@dataclass(frozen=True, kw_only=True)
class Backend:
    """An implementation of attention, and where it runs.  Modules: of :mod:`scsigmoid.attention`.

    Attributes:
        label: in tables and figures.
        launcher: sigmoid attention: the module whose ``forward`` and ``backward`` launch its
            kernels; none for plain torch.
        attend: softmax attention: ``module:function`` that computes it of [q, k, v],
            ``cu_seqlens``, ``max_seqlen``, the scale and FlexAttention's mask.
        takes_qkv: whether that also takes [qkv], (tokens, 3, heads, dim).
        capability: compute capability that a GPU must have, or exceed; None if any does.
        needs_exact_capability: whether no other capability will do.
        runs_on_cpu: whether it also runs where there is no GPU.
        is_automatic: whether ``auto`` may take it.
        alternative: what to take where it does not run.
        kernels: the module whose ``unavailable()`` says why its kernels do not run on a GPU
            that has the capability; empty if they do.
        packages: of an optional backend, as pip knows them: the one that has it, then those whose
            versions matter too.
        is_compared: whether benchmarks time it by its name on a GPU; others have rows of their own
            in :mod:`scsigmoid.benchmarks.providers`.
        backward_products: matrix products that its backward pass runs, five being counted.
    """

    label: str
    launcher: str = ""
    attend: str = ""
    takes_qkv: bool = False
    capability: tuple[int, int] | None = None
    needs_exact_capability: bool = False
    runs_on_cpu: bool = False
    is_automatic: bool = True
    alternative: str = "reference"
    kernels: str = ""
    packages: tuple[str, ...] = ()
    is_compared: bool = False
    backward_products: int = 5

    @property
    def package(self) -> str:
        """The optional package that has it; empty if none is needed."""
        return self.packages[0] if self.packages else ""


#: The backends of each attention, fastest on a GPU first.  The backward pass of ``triton`` computes
#: scores and their gradients twice, for dQ and for dK and dV; that of ``hopper`` once.
BACKENDS: dict[str, dict[str, Backend]] = {
    "sigmoid": {
        "hopper": Backend(
            label="Sigmoid, Hopper",
            launcher="hopper_launch",
            capability=HOPPER,
            needs_exact_capability=True,
            alternative="triton",
            kernels="hopper",
            is_compared=True,
        ),
        "triton": Backend(
            label="Sigmoid, Triton",
            launcher="triton_launch",
            capability=AMPERE,
            is_compared=True,
            backward_products=7,
        ),
        "reference": Backend(label="Sigmoid, reference", runs_on_cpu=True),
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
            label="Softmax, SDPA", attend="sdpa:attend", capability=AMPERE, runs_on_cpu=True
        ),
        "flex": Backend(
            label="Softmax, FlexAttention",
            attend="flex:attend",
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

#: Further kernels that benchmarks time: label, and the packages whose versions are noted.
OTHERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "triton_sigmoid": ("TritonSigmoid", ("triton-sigmoid",)),
    "flash_sigmoid": ("FlashSigmoid", ()),
    "flash_attention_2": ("FlashAttention-2", ()),
    "flash_attention_3": ("FlashAttention-3", ("flash-attn-3",)),
    "pytorch": ("Softmax, PyTorch", ()),
    "pytorch_sigmoid": ("Sigmoid, PyTorch", ()),
    "reference_sigmoid": ("Sigmoid, reference", ()),
    "cudnn": ("Softmax, cuDNN", ()),
}

#: How each kernel of the benchmarks is called in tables and figures.
LABELS = {
    **{
        name: backend.label
        for kind in reversed(BACKENDS.values())
        for name, backend in kind.items()
    },
    **{name: f"{BACKENDS['sigmoid'][name].label} (ours)" for name in OURS},
    **{f"{name}_accurate": f"{BACKENDS['sigmoid'][name].label} (ours, exact)" for name in OURS},
    **{name: label for name, (label, _) in OTHERS.items()},
}

#: Optional packages whose kernels are compared, as pip knows them.
PACKAGES = (
    *(package for _, packages in OTHERS.values() for package in packages),
    *(
        package
        for kind in BACKENDS.values()
        for backend in kind.values()
        for package in backend.packages
    ),
)


def version_of(package: str) -> str:
    """An optional package's version; empty where pip knows none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
