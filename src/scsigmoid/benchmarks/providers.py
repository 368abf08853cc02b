"""The attention kernels that are compared, each behind one interface."""

import importlib
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.attention import sigmoid_attention, sigmoid_attention_padded, softmax_attention
from scsigmoid.benchmarks.cases import Case, Inputs

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]
# On a GPU a kernel that keeps the n x n matrix takes ten times as long as the others, so it is
# timed in every tenth turn alone; the number of its readings is in the table.
SLOW = 10


class Unavailable(Exception):
    """A provider that cannot run here; the message says why."""


@dataclass(frozen=True)
class Provider:
    """An attention kernel.

    Attributes:
        name: as in the ``provider`` column.
        attention: ``sigmoid`` or ``softmax``.
        layout: of its tensors, see :meth:`Inputs.in_layout`.
        prepare: makes the kernel for a shape, with all that does not belong into the timing; raises
            :class:`Unavailable` if it cannot.
        devices: device types on which it is of interest.
        turns: on a GPU it is timed in one of so many turns.
        compiled_for: what of a shape its compiled code depends on, if that takes long to make.
    """

    name: str
    attention: str
    layout: str
    prepare: Callable[[Inputs], Kernel]
    devices: tuple[str, ...] = ("cuda", "cpu")
    turns: int = 1
    compiled_for: Callable[[Case], Hashable] | None = None

    @property
    def layout_name(self) -> str:
        """``packed`` or ``padded``."""
        return "packed" if self.layout == "packed" else "padded"


def needs_gpu(inputs: Inputs) -> None:
    """Refuse the CPU."""
    if inputs.lengths.device.type != "cuda":
        raise Unavailable("needs a CUDA GPU")


def needs_full(inputs: Inputs) -> None:
    """Refuse padding."""
    if inputs.case.padding > 0:
        raise Unavailable("takes no padding")


def imported(module: str) -> Any:
    """An optional package."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise Unavailable(f"{module} is not installed") from None


def triton_packed(inputs: Inputs) -> Kernel:
    needs_gpu(inputs)
    return sigmoid_packed(inputs, "triton")


def triton_accurate(inputs: Inputs) -> Kernel:
    """With the exact sigmoid instead of the hardware's approximate tanh."""
    needs_gpu(inputs)
    return sigmoid_packed(inputs, "triton", accurate=True)


def reference_packed(inputs: Inputs) -> Kernel:
    return sigmoid_packed(inputs, "reference")


def sigmoid_packed(inputs: Inputs, backend: str, *, accurate: bool = False) -> Kernel:
    """This project's sigmoid attention over packed sequences."""
    longest = max(inputs.case.lengths)
    return lambda q, k, v: sigmoid_attention(
        q, k, v, inputs.cu_seqlens, longest, backend=backend, accurate=accurate
    )


def triton_padded(inputs: Inputs) -> Kernel:
    needs_gpu(inputs)
    return lambda q, k, v: sigmoid_attention_padded(q, k, v, inputs.lengths, backend="triton")


def standard_sigmoid(inputs: Inputs) -> Kernel:
    """Sigmoid attention in plain PyTorch: the n x n matrix in memory."""
    bias = -torch.log(inputs.lengths.float())[:, None, None, None]
    padding = ~inputs.valid[:, None, None, :] if inputs.case.padding > 0 else None

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * inputs.case.head_dimension**-0.5 + bias.to(q.dtype)
        if padding is not None:
            scores = scores.masked_fill(padding, -math.inf)
        return torch.sigmoid(scores) @ v

    return kernel


def standard_softmax(inputs: Inputs) -> Kernel:
    """Softmax attention in plain PyTorch: the n x n matrix in memory."""
    padding = ~inputs.valid[:, None, None, :] if inputs.case.padding > 0 else None

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * inputs.case.head_dimension**-0.5
        if padding is not None:
            scores = scores.masked_fill(padding, -math.inf)
        return torch.softmax(scores, dim=-1) @ v

    return kernel


def softmax_packed(inputs: Inputs, backend: str) -> Kernel:
    """This project's softmax attention over packed sequences."""
    longest = max(inputs.case.lengths)
    return lambda q, k, v: softmax_attention(q, k, v, inputs.cu_seqlens, longest, backend=backend)


def sdpa_packed(inputs: Inputs) -> Kernel:
    return softmax_packed(inputs, "sdpa")


def flash_packed(inputs: Inputs) -> Kernel:
    """FlashAttention-2 for sequences of any length: torch's ``varlen_attn``."""
    needs_gpu(inputs)
    return softmax_packed(inputs, "sdpa")


def flash_padded(inputs: Inputs) -> Kernel:
    """FlashAttention-2 as torch's SDPA calls it."""
    needs_gpu(inputs)
    needs_full(inputs)
    return sdpa_with("FLASH_ATTENTION", None)


def cudnn(inputs: Inputs) -> Kernel:
    """cuDNN's attention as torch's SDPA calls it."""
    needs_gpu(inputs)
    mask = inputs.valid[:, None, None, :] if inputs.case.padding > 0 else None
    return sdpa_with("CUDNN_ATTENTION", mask)


def sdpa_with(backend: str, mask: Tensor | None) -> Kernel:
    """Torch's SDPA with one backend and no other."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    choice = getattr(SDPBackend, backend)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(choice):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return kernel


def flex_packed(inputs: Inputs) -> Kernel:
    """FlexAttention with a document mask, made once: a model shares it among its layers."""
    needs_gpu(inputs)
    from scsigmoid.attention.flex import document_mask

    longest = max(inputs.case.lengths)
    mask = document_mask(inputs.cu_seqlens, sum(inputs.case.lengths))
    return lambda q, k, v: softmax_attention(
        q, k, v, inputs.cu_seqlens, longest, backend="flex", mask=mask
    )


def flex_padded(inputs: Inputs) -> Kernel:
    """FlexAttention with a padding mask: the paper's softmax models."""
    needs_gpu(inputs)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    case, lengths = inputs.case, inputs.lengths
    mask = None
    if case.padding > 0:

        def attends(sequence: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
            return (column < lengths[sequence]) & (row < lengths[sequence])

        mask = create_block_mask(
            attends, case.sequences, None, case.length, case.length, device=lengths.device
        )
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)


def triton_sigmoid(inputs: Inputs) -> Kernel:
    """The paper's kernel: its dense function, or its padded one where there is padding."""
    needs_gpu(inputs)
    package = imported("triton_sigmoid")
    if inputs.case.padding > 0:
        lengths = inputs.lengths
        return lambda q, k, v: package.sigmoid_attention_padded(
            q, k, v, seq_lens_k=lengths, seq_lens_q=lengths
        )
    bias = -math.log(inputs.case.length)
    return lambda q, k, v: package.sigmoid_attention(q, k, v, sigmoid_bias=bias)


def flash_sigmoid(inputs: Inputs) -> Kernel:
    """FlashSigmoid (Ramapuram et al.)."""
    needs_gpu(inputs)
    needs_full(inputs)
    package = imported("flash_sigmoid")
    bias = -math.log(inputs.case.length)
    return lambda q, k, v: package.flash_attn_func(q, k, v, sigmoid_bias=bias)


def whole_shape(case: Case) -> Hashable:
    return case


def length_class(case: Case) -> Hashable:
    """triton-sigmoid compiles for classes of lengths, dense and padded."""
    limit = next((limit for limit in (512, 2048, 8192) if case.length <= limit), None)
    return case.head_dimension, case.padding > 0, limit


PROVIDERS = (
    Provider("triton", "sigmoid", "packed", triton_packed),
    Provider("triton", "sigmoid", "padded", triton_padded),
    Provider("triton_accurate", "sigmoid", "packed", triton_accurate, ("cuda",)),
    Provider("reference_sigmoid", "sigmoid", "packed", reference_packed, ("cpu",)),
    Provider("triton_sigmoid", "sigmoid", "padded", triton_sigmoid, compiled_for=length_class),
    Provider("flash_sigmoid", "sigmoid", "padded", flash_sigmoid),
    Provider("pytorch_sigmoid", "sigmoid", "heads", standard_sigmoid, turns=SLOW),
    Provider("pytorch", "softmax", "heads", standard_softmax, turns=SLOW),
    Provider("sdpa", "softmax", "packed", sdpa_packed, ("cpu",)),
    Provider("flash_attention_2", "softmax", "heads", flash_padded),
    Provider("flash_attention_2", "softmax", "packed", flash_packed),
    Provider("cudnn", "softmax", "heads", cudnn),
    Provider("flex", "softmax", "heads", flex_padded, compiled_for=whole_shape),
    Provider("flex", "softmax", "packed", flex_packed),
)
