"""Softmax attention by FlexAttention with a document mask: the paper's softmax baseline."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

#: Rows and columns of a block of the mask, FlexAttention's default.
BLOCK = 128


def document_mask(cu_seqlens: Tensor, tokens: int) -> BlockMask:
    """FlexAttention's block mask for packed sequences: tokens see their own sequence only.

    Built from the first and the last sequence of each block instead of from all pairs of tokens,
    so it costs (tokens / 128)^2 steps and does not wait for the device.  A training step builds it
    once and passes it to every layer.

    Args:
        cu_seqlens: (sequences + 1,) int32.
        tokens: number of tokens.

    Returns:
        The mask of one head, the same for all.
    """
    device = cu_seqlens.device
    index = torch.arange(tokens, dtype=torch.int32, device=device)
    document = torch.searchsorted(cu_seqlens[1:], index, right=True, out_int32=True)
    blocks = (tokens + BLOCK - 1) // BLOCK
    edges = torch.arange(blocks, device=device) * BLOCK
    first = document[edges]
    last = document[torch.clamp(edges + BLOCK - 1, max=tokens - 1)]
    touching = (first[:, None] <= last[None, :]) & (first[None, :] <= last[:, None])
    # The last block may reach past the end, so it is never whole.
    whole_block = (first == last) & (edges + BLOCK <= tokens)
    whole = touching & whole_block[:, None] & whole_block[None, :]

    def indices(chosen: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.argsort(chosen.to(torch.int8), dim=-1, descending=True, stable=True)
        return chosen.sum(-1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]

    def same_document(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return document[row] == document[column]

    return BlockMask.from_kv_blocks(
        *indices(touching & ~whole),
        *indices(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=same_document,
        seq_lengths=(tokens, tokens),
    )


@functools.cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


def flex_attention_packed(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, scale: float, mask: BlockMask | None = None
) -> Tensor:
    """Softmax attention of packed sequences; makes the :func:`document_mask` if it is not given."""
    if q.shape[0] == 0:
        return q.new_zeros(q.shape)
    if mask is None:
        mask = document_mask(cu_seqlens, q.shape[0])
    rows = [x.transpose(0, 1)[None] for x in (q, k, v)]
    # Inside a compiled region the kernel is made by that compilation.
    attend: Any = flex_attention if torch.compiler.is_compiling() else _compiled()
    return attend(*rows, block_mask=mask, scale=scale)[0].transpose(0, 1)
