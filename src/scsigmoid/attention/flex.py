"""Softmax attention by FlexAttention, the paper's softmax baseline.

A document mask, in the words of FlexAttention, lets tokens attend to their own sequence only.
FlexAttention is imported in functions, because it imports the compiler of PyTorch. This takes one
second, also in programs that do not compile.
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

#: Rows and columns of a block of the mask, the default of FlexAttention.
BLOCK = 128


# An operator, because torch 2.11 cannot compile this function for varying numbers of tokens.
@torch.library.custom_op("scsigmoid::document_blocks", mutates_args=())
def document_blocks(
    cu_seqlens: Tensor, tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute the parts of the document mask. B is the number of blocks, tokens / 128 rounded up.

    A block of the mask is full if the tokens of each of its pairs are in the same sequence, and
    partial if this is true for some pairs only. Compares the sequences of the first and last token
    of blocks instead of all pairs of tokens, and does not wait for the device.

    Returns:
        Five int32 tensors: the sequence of each token, (tokens,). For each row of blocks, the
        number of partial blocks, (1, 1, B), and the indices of all blocks, (1, 1, B, B), partial
        blocks first. The same two tensors for full blocks.
    """
    device = cu_seqlens.device
    index = torch.arange(tokens, dtype=torch.int32, device=device)
    document = torch.searchsorted(cu_seqlens[1:], index, right=True, out_int32=True)
    blocks = (tokens + BLOCK - 1) // BLOCK
    starts = torch.arange(blocks, device=device) * BLOCK
    first = document[starts]
    last = document[torch.clamp(starts + BLOCK - 1, max=tokens - 1)]
    overlapping = (first[:, None] <= last[None, :]) & (first[None, :] <= last[:, None])
    # If the last block has fewer than 128 tokens, it is not full, so that its end is masked.
    is_uniform = (first == last) & (starts + BLOCK <= tokens)
    full = overlapping & is_uniform[:, None] & is_uniform[None, :]

    def count_and_sort(selected: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.argsort(selected.to(torch.int8), dim=-1, descending=True, stable=True)
        return selected.sum(-1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]

    return (document, *count_and_sort(overlapping & ~full), *count_and_sort(full))


@document_blocks.register_fake
def _(cu_seqlens: Tensor, tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    blocks = (tokens + BLOCK - 1) // BLOCK
    empty = functools.partial(cu_seqlens.new_empty, dtype=torch.int32)
    counts, indices = (1, 1, blocks), (1, 1, blocks, blocks)
    return empty((tokens,)), empty(counts), empty(indices), empty(counts), empty(indices)


def document_mask(cu_seqlens: Tensor, tokens: int) -> "BlockMask":
    """Create the document mask of packed sequences, for all layers and heads of a training step.

    ``cu_seqlens`` is (sequences + 1,) int32.
    """
    from torch.nn.attention.flex_attention import BlockMask

    document, partial, partial_indices, full, full_indices = document_blocks(cu_seqlens, tokens)

    def same_document(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return document[row] == document[column]

    # The mask is symmetric, so rows and columns of blocks have the same indices.
    return BlockMask(
        seq_lengths=(tokens, tokens),
        kv_num_blocks=partial,
        kv_indices=partial_indices,
        full_kv_num_blocks=full,
        full_kv_indices=full_indices,
        q_num_blocks=partial,
        q_indices=partial_indices,
        full_q_num_blocks=full,
        full_q_indices=full_indices,
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=same_document,
    )


@functools.cache
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)


def attend(
    tensors: Sequence[Tensor],
    cu_seqlens: Tensor,
    max_seqlen: int,
    scale: float,
    mask: "BlockMask | None" = None,
) -> Tensor:
    """Compute :func:`softmax_attention` of packed [q, k, v]."""
    q = tensors[0]
    if q.shape[0] == 0:
        return q.new_zeros(q.shape)
    from torch.nn.attention.flex_attention import flex_attention

    if mask is None:
        mask = document_mask(cu_seqlens, q.shape[0])
    qkv = [x.transpose(0, 1)[None] for x in tensors]  # (1, heads, tokens, dim)
    # In a compiled region, the enclosing torch.compile generates the kernel.
    kernel: Any = flex_attention if torch.compiler.is_compiling() else _compiled()
    return kernel(*qkv, block_mask=mask, scale=scale)[0].transpose(0, 1)
