"""The softmax attention kernels that are compared.

Each function makes the kernel for a batch, with all that does not belong into the timing.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.attention import softmax_attention
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.sigmoid_kernels import Kernel, imported, needs_gpu, runs_here


def standard_softmax(inputs: Inputs) -> Kernel:
    """Softmax attention in plain PyTorch: the n x n matrix in memory."""
    padding = ~inputs.valid[:, None, None, :] if inputs.case.uneven else None

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * inputs.case.head_dimension**-0.5
        if padding is not None:
            scores = scores.masked_fill(padding, -math.inf)
        return torch.softmax(scores, dim=-1) @ v

    return kernel


def packed(backend: str) -> Callable[[Inputs], Kernel]:
    """A backend of this project's softmax models, over packed sequences."""

    def prepare(inputs: Inputs) -> Kernel:
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


def flash_2_packed(inputs: Inputs) -> Kernel:
    """FlashAttention-2 for sequences of any length: torch's ``varlen_attn``."""
    needs_gpu(inputs)
    return packed("sdpa")(inputs)


def flash_3(inputs: Inputs) -> Kernel:
    """FlashAttention-3, from its own package."""
    needs_gpu(inputs)
    package = imported("flash_attn_interface")
    bounds, longest = inputs.cu_seqlens, max(inputs.case.lengths)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return first(package.flash_attn_varlen_func(q, k, v, bounds, bounds, longest, longest))

    return kernel


def first(found: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The output, which some versions return together with the row sums."""
    return found[0] if isinstance(found, tuple) else found


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
