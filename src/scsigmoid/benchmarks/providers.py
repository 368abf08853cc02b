"""The attention kernels of the kernel benchmark, behind one interface."""

import importlib
import math
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import logsigmoid, scaled_dot_product_attention

from scsigmoid.attention import (
    choose_backend,
    sigmoid_attention,
    sigmoid_attention_padded,
    softmax_attention,
)
from scsigmoid.attention.sdpa import kernel_of
from scsigmoid.attention.torch_internals import flash_attention
from scsigmoid.benchmarks import flash_sigmoid as flash
from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.timing import Kernel
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS, OURS


def import_optional(module: str) -> Any:
    """Import a module of an optional package. Raise UserError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{module.partition('.')[0]} is not installed") from None


def model_backend(
    attention: str, backend: str, inputs: Inputs, *, padded: bool = False, **options: Any
) -> Kernel:
    """Return a kernel that this project's models use, for packed or ``padded`` sequences.

    ``padded`` and ``options``, for example ``accurate``, are for sigmoid attention only. Raise
    UserError if the backend does not run on the device of ``inputs``.
    """
    choose_backend(attention, backend, inputs.device)  # raises the UserError
    if padded:
        return lambda q, k, v: sigmoid_attention_padded(
            q, k, v, inputs.lengths, backend=backend, **options
        )
    attend: Any = sigmoid_attention if attention == "sigmoid" else softmax_attention
    bounds, longest = inputs.cu_seqlens, max(inputs.case.lengths)
    return lambda q, k, v: attend(q, k, v, bounds, longest, backend=backend, **options)


def plain_pytorch(attention: str, inputs: Inputs) -> Kernel:
    """Return attention in plain PyTorch, which stores n x n matrices."""
    bias = -torch.log(inputs.lengths.float())[:, None, None, None]
    padding = ~inputs.valid[:, None, None, :] if inputs.case.has_padding else None

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * inputs.case.head_dimension**-0.5
        if attention == "sigmoid":
            scores = scores + bias.to(q.dtype)
        if padding is not None:
            scores = scores.masked_fill(padding, -math.inf)
        return (torch.sigmoid(scores) if attention == "sigmoid" else scores.softmax(-1)) @ v

    return kernel


def triton_sigmoid(inputs: Inputs) -> Kernel:
    """Return the paper's kernel, triton-sigmoid 0.1.2, padded or (without padding) dense.

    The package's functions copy the scale to the GPU in each call, which a CUDA graph cannot
    contain. During a capture, the returned kernel calls the operators of these functions instead,
    with a scale that is already on the GPU.
    """
    package = import_optional("triton_sigmoid")
    lengths = inputs.lengths
    scale = torch.tensor(inputs.case.head_dimension**-0.5, device=inputs.device)
    # bias, no change of the scores, scale, not causal
    arguments: tuple[Any, ...] = (-torch.log(lengths.float()), None, scale, False)
    if inputs.case.has_padding:
        module = import_optional("triton_sigmoid.sigmoid_triton_padded")
        operator = module.sigmoid_attn_padded_fwd_op
        arguments = (lengths, lengths, *arguments)
        public = partial(package.sigmoid_attention_padded, seq_lens_k=lengths, seq_lens_q=lengths)
    else:
        operator = import_optional("triton_sigmoid.sigmoid_triton_dense").sigmoid_attention_fwd_op
        public = package.sigmoid_attention

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        is_capturing = torch.cuda.is_current_stream_capturing()
        output: Tensor = operator(q, k, v, *arguments) if is_capturing else public(q, k, v)
        return output

    return kernel


def flash_sigmoid(inputs: Inputs) -> Kernel:
    """Return FlashSigmoid (Ramapuram et al.) from the library in an environment variable."""
    case, path = inputs.case, os.environ.get(flash.VARIABLE)
    if case.has_padding:
        raise UserError("takes no padding")
    if case.head_dimension not in (64, 128):
        raise UserError("is built for head dimensions 64 and 128")
    if not path:
        raise UserError(f"{flash.VARIABLE} names no library (docs/measuring.md)")
    try:
        library = flash.load(path)
    except OSError as error:
        raise UserError(f"{flash.VARIABLE}: {error}") from None
    bias = -math.log(case.length)
    return lambda q, k, v: flash.FlashSigmoid.apply(q, k, v, bias, library)


def torch_sdpa(backend: str, inputs: Inputs) -> Kernel:
    """Return one backend of torch's SDPA, over padded sequences.

    Padding is masked, but not skipped. Nested tensors, which do not need padding, are not used:
    cuDNN computes wrong gradients for nested tensors (the error of dQ is larger than its norm,
    torch 2.11 with cuDNN 9.19), and can break the GPU's context.
    """
    mask = inputs.valid[:, None, None, :] if inputs.case.has_padding else None

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return kernel


def flash_attention_2(inputs: Inputs) -> Kernel:
    """Return torch's FlashAttention-2 of packed sequences."""
    bounds, longest = inputs.cu_seqlens, max(inputs.case.lengths)
    return lambda q, k, v: flash_attention(q, k, v, bounds, bounds, longest, longest)


def packed_cudnn(inputs: Inputs) -> Kernel:
    """Return torch's ``varlen_attn`` if it uses cuDNN. Otherwise raise UserError."""
    if not (kernel := kernel_of(inputs.device)).startswith("cuDNN"):
        raise UserError(f"varlen_attn of this torch uses {kernel}")
    return model_backend("softmax", "sdpa", inputs)


def flex(inputs: Inputs) -> Kernel:
    """Return FlexAttention with a padding mask, created once as in the paper's softmax models."""
    from torch._functorch import config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    # Otherwise the backward pass overwrites tensors of the forward pass and can run only once.
    config.donated_buffer = False
    case, lengths = inputs.case, inputs.lengths
    mask = None
    if case.has_padding:

        def attends(sequence: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
            return (column < lengths[sequence]) & (row < lengths[sequence])

        mask = create_block_mask(
            attends, case.sequences, None, case.length, case.length, device=inputs.device
        )
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)


def flex_sigmoid(inputs: Inputs) -> Kernel:
    """Return sigmoid attention by FlexAttention, from softmax of log sigmoid(score).

    softmax(log sigmoid(s)) V exp(lse) = sigmoid(s) V, where lse is the log-sum-exp of the scores
    log sigmoid(s) of a query. Equal lengths only, for which the bias -log n is a constant.
    """
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    bias = -math.log(inputs.case.length)

    def modified(
        score: Tensor, sequence: Tensor, head: Tensor, row: Tensor, column: Tensor
    ) -> Tensor:
        return logsigmoid(score + bias)

    compiled: Any = torch.compile(flex_attention, dynamic=False)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, aux = compiled(q, k, v, score_mod=modified, return_aux=AuxRequest(lse=True))
        return out * aux.lse.exp()[..., None].to(out.dtype)

    return kernel


def fa4_sigmoid(inputs: Inputs) -> Kernel:
    """Return sigmoid attention by FlashAttention-4, as :func:`flex_sigmoid`."""
    interface = import_optional("flash_attn.cute.interface")
    module = import_optional("scsigmoid.benchmarks.fa4_score")
    length, bounds = inputs.case.length, inputs.cu_seqlens
    forward, backward = module.score_functions(-math.log(length))

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, lse = interface.flash_attn_varlen_func(
            q, k, v, cu_seqlens_q=bounds, cu_seqlens_k=bounds, max_seqlen_q=length,
            max_seqlen_k=length, score_mod=forward, score_mod_bwd=backward, return_lse=True,
        )[:2]  # fmt: skip
        return out * lse.T.exp()[..., None].to(out.dtype)

    return kernel


#: Lengths at which FlexAttention is timed: few, because it is compiled for each shape.
FLEX_LENGTHS = (512, 4096, 16384)
PROVIDERS_SETTING = "benchmarks.kernel.providers"


@dataclass(frozen=True)
class Provider:
    """An attention kernel.

    Attributes:
        name: name in the column ``provider``.
        attention: ``sigmoid`` or ``softmax``.
        layout: layout of its tensors, see :meth:`Inputs.in_layout`.
        make: makes the kernel for a batch on a supported device. Raises a UserError if it cannot.
        devices: device types for which ``kernel.csv`` has rows of the kernel.
        runs_on_cpu: whether it runs on a CPU. Otherwise its rows for a CPU have no times.
        is_timed_for: whether this entry is timed for a batch. Another entry of the same name may be
            timed for other batches.
        stores_scores: whether it stores the n x n matrices of all sequences and heads. If so, it is
            timed without a CUDA graph, which would keep the matrices in memory. Launches are only a
            small part of its time.
        compiled_for: returns the part of a case on which the compiled code depends. None if the
            kernel is not compiled ahead.
        is_autotuned: whether Triton's autotuner compiles many configurations and chooses one.
    """

    name: str
    attention: str
    layout: str
    make: Callable[[Inputs], Kernel]
    devices: tuple[str, ...] = ("cuda", "cpu")
    runs_on_cpu: bool = False
    is_timed_for: Callable[[Case], bool] = lambda _: True
    stores_scores: bool = False
    compiled_for: Callable[[Case], Hashable] | None = None
    is_autotuned: bool = False

    @property
    def layout_name(self) -> str:
        """The value of the column ``layout``. The layout ``heads`` is padded, too."""
        return "packed" if self.layout == "packed" else "padded"

    @property
    def is_ours(self) -> bool:
        return self.name.removesuffix("_accurate") in (*OURS, "reference_sigmoid")

    def prepare(self, inputs: Inputs) -> Kernel:
        """Make the kernel for a batch, or raise a UserError if it cannot run."""
        if inputs.device.type == "cpu" and not self.runs_on_cpu:
            raise UserError("needs a CUDA GPU")
        return self.make(inputs)


def is_of_paper(case: Case) -> bool:
    return case.batch == "paper"


def has_equal_lengths(case: Case) -> bool:
    return is_of_paper(case) and not case.has_padding


def length_class(case: Case) -> Hashable:
    """Return the part of a case on which the compiled code of triton-sigmoid depends."""
    limit = next((limit for limit in (512, 2048, 8192) if case.length <= limit), None)
    return case.head_dimension, case.has_padding, limit


#: All kernels.
PROVIDERS = (
    *(
        Provider(
            backend + suffix,
            "sigmoid",
            layout,
            partial(
                model_backend, "sigmoid", backend, padded=layout == "padded", accurate=bool(suffix)
            ),
            devices=("cuda",) if suffix else ("cuda", "cpu"),
            is_timed_for=is_of_paper if layout == "padded" else lambda _: True,
            compiled_for=lambda case: case.head_dimension,
        )
        for backend in OURS
        for suffix, layout in (("", "packed"), ("", "padded"), ("_accurate", "packed"))
    ),
    Provider(
        "reference_sigmoid",
        "sigmoid",
        "packed",
        partial(model_backend, "sigmoid", "reference"),
        devices=("cpu",),
        runs_on_cpu=True,
    ),
    Provider(
        "triton_sigmoid",
        "sigmoid",
        "padded",
        triton_sigmoid,
        compiled_for=length_class,
        is_autotuned=True,
    ),
    Provider("flash_sigmoid", "sigmoid", "padded", flash_sigmoid),
    Provider(
        "fa4_sigmoid",
        "sigmoid",
        "packed",
        fa4_sigmoid,
        devices=("cuda",),
        is_timed_for=has_equal_lengths,
        compiled_for=lambda case: (case.head_dimension, case.length),
    ),
    Provider(
        "flex_sigmoid",
        "sigmoid",
        "heads",
        flex_sigmoid,
        devices=("cuda",),
        is_timed_for=lambda case: has_equal_lengths(case) and case.length in FLEX_LENGTHS,
        compiled_for=lambda case: case,
    ),
    *(
        Provider(
            name,
            attention,
            "heads",
            partial(plain_pytorch, attention),
            runs_on_cpu=True,
            stores_scores=True,
        )
        for name, attention in (("pytorch_sigmoid", "sigmoid"), ("pytorch", "softmax"))
    ),
    Provider(
        "sdpa",
        "softmax",
        "packed",
        partial(model_backend, "softmax", "sdpa"),
        devices=("cpu",),
        runs_on_cpu=True,
    ),
    Provider(
        "flash_attention_2",
        "softmax",
        "heads",
        partial(torch_sdpa, "FLASH_ATTENTION"),
        is_timed_for=lambda case: not case.has_padding,
    ),
    Provider(
        "flash_attention_2",
        "softmax",
        "packed",
        flash_attention_2,
        is_timed_for=lambda case: case.has_padding,
    ),
    *(
        Provider(name, "softmax", "packed", partial(model_backend, "softmax", name))
        for name, backend in BACKENDS["softmax"].items()
        if backend.is_compared
    ),
    Provider("cudnn", "softmax", "heads", partial(torch_sdpa, "CUDNN_ATTENTION")),
    Provider(
        "cudnn", "softmax", "packed", packed_cudnn, is_timed_for=lambda case: case.has_padding
    ),
    Provider(
        "flex",
        "softmax",
        "heads",
        flex,
        is_timed_for=lambda case: is_of_paper(case) and case.length in FLEX_LENGTHS,
        compiled_for=lambda case: case,
    ),
)


def choose_providers(names: Sequence[str] | None, device: str) -> list[Provider]:
    """Return the :data:`PROVIDERS` with these names on a device (:func:`select_kernels`)."""
    table = [(provider.name, provider) for provider in PROVIDERS]
    return select_kernels(table, PROVIDERS_SETTING, names, device)


def select_kernels(
    table: Sequence[tuple[str, Any]], setting: str, names: Sequence[str] | None, device: str
) -> list[Any]:
    """Return the kernels in ``table`` (names and kernels) that are timed on a type of device.

    Return only kernels in ``names``, or all if ``names`` is None. Raise UserError with ``setting``
    in its message if a name is unknown or no kernel is left.
    """
    known = dict(table)
    for name in names or ():
        if name not in known:
            raise UserError(f"{setting}: unknown kernel {name!r}; choose from: {', '.join(known)}")
    on_device = [(name, kernel) for name, kernel in table if device in kernel.devices]
    kernels = [kernel for name, kernel in on_device if names is None or name in names]
    if not kernels:
        raise UserError(
            f"{setting}: none of these kernels is timed on device {device!r}; choose from: "
            f"{', '.join(dict(on_device))}"
        )
    return kernels
