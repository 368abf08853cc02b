"""Softmax attention by the kernels of PyTorch.

On a GPU in half precision: ``torch.nn.attention.varlen``, for which PyTorch chooses the kernel
(:func:`kernel_of`). Otherwise: ``scaled_dot_product_attention``, one sequence after the other.
"""

import functools
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.attention.ops import attend_softmax
from scsigmoid.attention.torch_internals import flash_attention

#: Tested versions of PyTorch. With other versions, `selfcheck` checks the results on a GPU.
TORCH = ("2.11",)


def attend(
    tensors: Sequence[Tensor],
    cu_seqlens: Tensor,
    max_seqlen: int,
    scale: float,
    mask: object = None,
) -> Tensor:
    """Compute :func:`softmax_attention` of packed [q, k, v]. Ignores ``mask``."""
    q, k, v = tensors
    if q.device.type == "cuda" and q.dtype in (torch.bfloat16, torch.float16):
        from torch.nn.attention.varlen import varlen_attn

        # In some supported versions of PyTorch, varlen_attn always scales by 1 / sqrt(dim).
        # Multiply q by the ratio of `scale` to this factor.
        ratio = scale * q.shape[-1] ** 0.5
        scaled = q if abs(ratio - 1.0) < 1e-6 else q * ratio
        # varlen_attn may choose cuDNN also in deterministic mode, where cuDNN's gradients differ
        # between runs (torch 2.14, cuDNN 9.24).
        deterministic = torch.are_deterministic_algorithms_enabled()
        varlen = flash_attention if deterministic else varlen_attn
        attended = varlen(scaled, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
        assert isinstance(attended, Tensor)
        return attended
    if cu_seqlens.is_meta or type(cu_seqlens) is not Tensor:
        # Meta and fake tensors have no lengths to read. Here the reference computes only a shape,
        # because it is an operator.
        return attend_softmax(tensors, cu_seqlens, max_seqlen, scale)
    outputs = []
    for start, end in pairwise(cu_seqlens.tolist()):
        queries, keys, values = (x[start:end].transpose(0, 1)[None] for x in (q, k, v))
        attended = scaled_dot_product_attention(queries, keys, values, scale=scale)
        outputs.append(attended[0].transpose(0, 1))
    # Without sequences, q is empty. The result is a new empty tensor that autograd links to q.
    return torch.cat(outputs) if outputs else q * 1.0


#: Names of the kernels behind ``varlen_attn``, by the operator that calls them.
KERNELS = {
    "aten::_cudnn_attention_forward": "cuDNN",
    "aten::_flash_attention_forward": "FlashAttention-2",
}


def kernel_of(device: torch.device) -> str:
    """Return the kernel that :func:`attend` runs on a GPU in half precision: "cuDNN 9.24", ...

    PyTorch chooses it by the GPU and by the versions of PyTorch and cuDNN: since torch 2.14, GPUs
    of compute capability 9.x and 10.x use cuDNN for sequences of more than 128 tokens. In
    deterministic mode it is FlashAttention-2. The name is read from the operators of a call, and is
    "unknown" if none of them is in :data:`KERNELS`.
    """
    return _kernel_of(device, torch.are_deterministic_algorithms_enabled())


@functools.cache
def _kernel_of(device: torch.device, deterministic: bool) -> str:
    from torch.profiler import ProfilerActivity, profile

    x = torch.zeros(256, 1, 64, dtype=torch.bfloat16, device=device)
    cu_seqlens = torch.tensor([0, 256], dtype=torch.int32, device=device)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as record:
        attend([x, x, x], cu_seqlens, 256, 64**-0.5)
    operators = {event.name for event in record.events()}
    names = [name for operator, name in KERNELS.items() if operator in operators]
    if names == ["cuDNN"]:
        major, minor = divmod(torch.backends.cudnn.version() or 0, 10_000)
        return f"cuDNN {major}.{minor // 100}"
    return names[0] if len(names) == 1 else "unknown"
