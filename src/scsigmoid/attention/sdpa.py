"""Softmax attention by the kernels of PyTorch.

On a GPU in half precision: ``torch.nn.attention.varlen`` (FlashAttention of packed sequences).
Otherwise: ``scaled_dot_product_attention``, one sequence after the other.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.attention.ops import attend_softmax


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
        attended = varlen_attn(scaled, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
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
