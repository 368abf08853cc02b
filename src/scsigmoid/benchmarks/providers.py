"""The attention kernels that are compared, this project's and others', behind one interface."""

import importlib
import math
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.attention import (
    choose_backend,
    sigmoid_attention,
    sigmoid_attention_padded,
    softmax_attention,
)
from scsigmoid.benchmarks import flash_sigmoid as flash
from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.timing import Kernel, Unavailable
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS, OURS


def needs_gpu(inputs: Inputs) -> None:
    """Refuse the CPU."""
    if inputs.lengths.device.type != "cuda":
        raise Unavailable("needs a CUDA GPU")


def imported(module: str) -> Any:
    """An optional package."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise Unavailable(f"{module} is not installed") from None


def ours(
    backend: str, *, accurate: bool = False, padded: bool = False
) -> Callable[[Inputs], Kernel]:
    """This project's kernel.

    Args:
        backend: its path, see :data:`scsigmoid.kernels.BACKENDS`.
        accurate: the exact sigmoid instead of the hardware's approximate tanh.
        padded: over padded sequences, the paper's interface; else over packed ones.
    """

    def prepare(inputs: Inputs) -> Kernel:
        runs_here("sigmoid", backend, inputs)
        if padded:
            return lambda q, k, v: sigmoid_attention_padded(
                q, k, v, inputs.lengths, backend=backend, accurate=accurate
            )
        longest = max(inputs.case.lengths)
        return lambda q, k, v: sigmoid_attention(
            q, k, v, inputs.cu_seqlens, longest, backend=backend, accurate=accurate
        )

    return prepare


def runs_here(attention: str, backend: str, inputs: Inputs) -> None:
    """Refuse a path that this device cannot run."""
    if BACKENDS[attention][backend].runs_on_cpu:
        return
    needs_gpu(inputs)
    try:
        choose_backend(attention, backend, inputs.lengths.device)
    except UserError as error:
        raise Unavailable(str(error)) from None


def plain(attention: str) -> Callable[[Inputs], Kernel]:
    """Attention in plain PyTorch: the n x n matrix in memory."""

    def prepare(inputs: Inputs) -> Kernel:
        bias = -torch.log(inputs.lengths.float())[:, None, None, None]
        padding = ~inputs.valid[:, None, None, :] if inputs.case.uneven else None

        def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = q @ k.mT * inputs.case.head_dimension**-0.5
            if attention == "sigmoid":
                scores = scores + bias.to(q.dtype)
            if padding is not None:
                scores = scores.masked_fill(padding, -math.inf)
            return (torch.sigmoid(scores) if attention == "sigmoid" else scores.softmax(-1)) @ v

        return kernel

    return prepare


def triton_sigmoid(inputs: Inputs) -> Kernel:
    """The paper's kernel, triton-sigmoid 0.1.2: the padded function where there is padding.

    Its functions copy the scale to the GPU at every call, which a CUDA graph cannot hold.  While
    one is captured, the operators behind them are called with a scale that lies there already.
    """
    needs_gpu(inputs)
    package = imported("triton_sigmoid")
    case, lengths = inputs.case, inputs.lengths
    scale = torch.tensor(case.head_dimension**-0.5, device=lengths.device)
    bias = -torch.log(lengths.float())
    if case.uneven:
        padded = imported("triton_sigmoid.sigmoid_triton_padded").sigmoid_attn_padded_fwd_op

        def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if torch.cuda.is_current_stream_capturing():
                return padded(q, k, v, lengths, lengths, bias, None, scale, False)
            return package.sigmoid_attention_padded(q, k, v, seq_lens_k=lengths, seq_lens_q=lengths)

        return kernel
    dense = imported("triton_sigmoid.sigmoid_triton_dense").sigmoid_attention_fwd_op

    def dense_kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            return dense(q, k, v, bias, None, scale, False)
        return package.sigmoid_attention(q, k, v)

    return dense_kernel


def flash_sigmoid(inputs: Inputs) -> Kernel:
    """FlashSigmoid (Ramapuram et al.), from the library that an environment variable names."""
    needs_gpu(inputs)
    case, path = inputs.case, os.environ.get(flash.VARIABLE)
    if case.uneven:
        raise Unavailable("takes no padding")
    if case.head_dimension not in (64, 128):
        raise Unavailable("is built for head dimensions 64 and 128")
    if not path:
        raise Unavailable(f"{flash.VARIABLE} names no library (docs/measuring.md)")
    try:
        library = flash.load(path)
    except OSError as error:
        raise Unavailable(f"{flash.VARIABLE}: {error}") from None
    bias = -math.log(case.length)
    return lambda q, k, v: flash.attention(q, k, v, bias, library)


def packed(backend: str, *, gpu: bool = False) -> Callable[[Inputs], Kernel]:
    """A backend of this project's softmax models, over packed sequences; ``gpu``: there only.

    On a GPU ``sdpa`` is FlashAttention-2 for sequences of any length, torch's ``varlen_attn``.
    """

    def prepare(inputs: Inputs) -> Kernel:
        if gpu:
            needs_gpu(inputs)
        runs_here("softmax", backend, inputs)
        longest = max(inputs.case.lengths)
        return lambda q, k, v: softmax_attention(
            q, k, v, inputs.cu_seqlens, longest, backend=backend
        )

    return prepare


def flash_2(inputs: Inputs) -> Kernel:
    """FlashAttention-2 as torch's SDPA calls it."""
    needs_gpu(inputs)
    return sdpa_with("FLASH_ATTENTION", None)


def flash_3(inputs: Inputs) -> Kernel:
    """FlashAttention-3, from its own package."""
    needs_gpu(inputs)
    package = imported("flash_attn_interface")
    bounds, longest = inputs.cu_seqlens, max(inputs.case.lengths)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found = package.flash_attn_varlen_func(q, k, v, bounds, bounds, longest, longest)
        # Some versions return the row sums too.
        out: Tensor = found[0] if isinstance(found, tuple) else found
        return out

    return kernel


def cudnn(inputs: Inputs) -> Kernel:
    """cuDNN's attention as torch's SDPA calls it; padding is a mask, which it does not skip.

    torch also has it for nested tensors, without padding; there its gradients are wrong (dQ by more
    than its own norm, torch 2.11 with cuDNN 9.19), and it can break the GPU's context.
    """
    needs_gpu(inputs)
    mask = inputs.valid[:, None, None, :] if inputs.case.uneven else None
    return sdpa_with("CUDNN_ATTENTION", mask)


def sdpa_with(backend: str, mask: Tensor | None) -> Kernel:
    """Torch's SDPA with one backend and no other."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    choice = getattr(SDPBackend, backend)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(choice):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return kernel


def flex(inputs: Inputs) -> Kernel:
    """FlexAttention with a padding mask, made once: the paper's softmax models."""
    needs_gpu(inputs)
    from torch._functorch import config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    # Its backward pass would overwrite what the forward pass saved, and run once only.
    config.donated_buffer = False
    case, lengths = inputs.case, inputs.lengths
    mask = None
    if case.uneven:

        def attends(sequence: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
            return (column < lengths[sequence]) & (row < lengths[sequence])

        mask = create_block_mask(
            attends, case.sequences, None, case.length, case.length, device=lengths.device
        )
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)


#: Where FlexAttention is timed: it is compiled for each shape anew.
SOME_LENGTHS = (512, 4096, 16384)


BOTH = ("cuda", "cpu")
SETTING = "benchmarks.kernel.providers"


def any_case(case: Case) -> bool:
    """Whether a batch is one."""
    return True


@dataclass(frozen=True)
class Provider:
    """An attention kernel.

    Attributes:
        name: as in the ``provider`` column.
        attention: ``sigmoid`` or ``softmax``.
        layout: of its tensors, see :meth:`Inputs.in_layout`.
        prepare: makes the kernel for a batch; raises
            :class:`~scsigmoid.benchmarks.timing.Unavailable` if it cannot.
        backward_products: matrix products that its backward pass runs, five being counted.
        skips_padding: whether it leaves padding out.
        devices: device types on which it is of interest.
        suits: batches for which this is the form to time; another entry of the same name, or
            none, stands for the rest.
        matrices: whether it holds the n x n matrices of all sequences and heads.  No CUDA graph
            is made, which would keep them; its runs are long beside their launch.
        compiled_for: what of a batch its compiled code depends on.
        chooses: whether that is a choice among many configurations, all compiled.
    """

    name: str
    attention: str
    layout: str
    prepare: Callable[[Inputs], Kernel]
    backward_products: int = 5
    skips_padding: bool = True
    devices: tuple[str, ...] = BOTH
    suits: Callable[[Case], bool] = any_case
    matrices: bool = False
    compiled_for: Callable[[Case], Hashable] | None = None
    chooses: bool = False

    @property
    def layout_name(self) -> str:
        """``packed`` or ``padded``."""
        return "packed" if self.layout == "packed" else "padded"

    @property
    def is_ours(self) -> bool:
        """Whether the kernel is part of this project."""
        return self.name.removesuffix("_accurate") in (*OURS, "reference_sigmoid")

    def executed(self, case: Case, direction: str) -> float:
        """Operations that it runs: its matrix products, the rounding to blocks not counted."""
        products = self.backward_products if direction == "backward" else 2
        return case.matrix_products(products, padded=not self.skips_padding)


def length_class(case: Case) -> Hashable:
    """triton-sigmoid compiles for classes of lengths, dense and padded."""
    limit = next((limit for limit in (512, 2048, 8192) if case.length <= limit), None)
    return case.head_dimension, case.uneven, limit


#: The plain PyTorch ones save the scores and so run four products backward; the paper's kernel and
#: FlexAttention compute them twice, in separate loops for dQ and for dK and dV.
PROVIDERS = (
    *(
        Provider(
            name,
            "sigmoid",
            layout,
            prepare,
            backward_products=BACKENDS["sigmoid"][path].backward_products,
            devices=devices,
            suits=suits,
            compiled_for=lambda case: case.head_dimension,
        )
        for path in OURS
        for name, layout, prepare, devices, suits in (
            (path, "packed", ours(path), BOTH, any_case),
            (path, "padded", ours(path, padded=True), BOTH, lambda case: case.batch == "paper"),
            (f"{path}_accurate", "packed", ours(path, accurate=True), ("cuda",), any_case),
        )
    ),
    Provider("reference_sigmoid", "sigmoid", "packed", ours("reference"), devices=("cpu",)),
    Provider(
        "triton_sigmoid",
        "sigmoid",
        "padded",
        triton_sigmoid,
        backward_products=7,
        compiled_for=length_class,
        chooses=True,
    ),
    Provider("flash_sigmoid", "sigmoid", "padded", flash_sigmoid),
    *(
        Provider(
            name,
            attention,
            "heads",
            plain(attention),
            backward_products=4,
            skips_padding=False,
            matrices=True,
        )
        for name, attention in (("pytorch_sigmoid", "sigmoid"), ("pytorch", "softmax"))
    ),
    Provider("sdpa", "softmax", "packed", packed("sdpa"), devices=("cpu",)),
    Provider("flash_attention_2", "softmax", "heads", flash_2, suits=lambda case: not case.uneven),
    Provider(
        "flash_attention_2",
        "softmax",
        "packed",
        packed("sdpa", gpu=True),
        suits=lambda case: case.uneven,
    ),
    Provider("flash_attention_3", "softmax", "packed", flash_3),
    *(
        Provider(name, "softmax", "packed", packed(name))
        for name, backend in BACKENDS["softmax"].items()
        if backend.is_compared
    ),
    Provider("cudnn", "softmax", "heads", cudnn, skips_padding=False),
    Provider(
        "flex",
        "softmax",
        "heads",
        flex,
        backward_products=7,
        suits=lambda case: case.batch == "paper" and case.length in SOME_LENGTHS,
        compiled_for=lambda case: case,
    ),
)


def chosen(names: Sequence[str] | None, device: str) -> list[Provider]:
    """Those of :data:`PROVIDERS` that are of interest; see :func:`of_interest`."""
    table = [(provider.name, provider) for provider in PROVIDERS]
    return of_interest(table, SETTING, names, device)


def of_interest(
    table: Sequence[tuple[str, Any]], setting: str, names: Sequence[str] | None, device: str
) -> list[Any]:
    """What is of interest on a type of device.

    Args:
        table: kernels by name.
        setting: that has the names, for the message.
        names: those to take; all where None.
        device: ``cuda`` or ``cpu``.

    Raises:
        UserError: if there is none of some name, or none of all names on the device.
    """
    known = dict(table)
    for name in names or ():
        if name not in known:
            raise UserError(f"{setting}: unknown kernel {name!r}; take some of {', '.join(known)}")
    here = [(name, kernel) for name, kernel in table if device in kernel.devices]
    found = [kernel for name, kernel in here if names is None or name in names]
    if not found:
        raise UserError(
            f"{setting}: none is timed on device {device!r}; take some of {', '.join(dict(here))}"
        )
    return found
