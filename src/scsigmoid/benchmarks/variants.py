"""Attention kernels and layouts of the training benchmark.

This project packs cells. The paper pads each cell to the context. A padded batch is one sequence of
cells * context tokens. Attention separates the cells, and the output layer skips the padding. All
other layers compute the padding like any token, and are the same as for packed batches.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from scsigmoid.attention.flex import BLOCK
from scsigmoid.benchmarks.providers import import_optional, select_kernels
from scsigmoid.kernels import BACKENDS, Backend
from scsigmoid.model.batches import Batch
from scsigmoid.model.devices import backend_of
from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.vocabulary import PAD

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True)
class PaddedAttention:
    """Attention of padded cells.

    Attributes:
        prepare: takes the valid tokens of each cell, (cells,) int32, and the encoder's settings.
            Returns data that all layers share, made once per batch outside the compiled graph.
        attend: takes q, k and v, (cells, context, heads, dim), and the result of ``prepare``.
            Returns attention of the same shape, whose values in the padding are not used.
    """

    prepare: Callable[[Tensor, EncoderSettings], Any]
    attend: Callable[[Tensor, Tensor, Tensor, Any], Tensor]


def pad_cells(batch: Batch, context: int) -> Batch:
    """Pad each packed cell to the context. Lengths in ``cu_seqlens`` exclude the padding."""
    lengths = torch.diff(batch.cu_seqlens).long()
    cells = len(lengths)
    starts = torch.arange(cells) * context
    # (tokens,): the index of each token in the padded batch
    indices = torch.repeat_interleave(starts, lengths) + batch.positions
    tokens = torch.full((cells * context,), PAD)
    tokens[indices] = batch.tokens
    return replace(
        batch,
        tokens=tokens,
        positions=torch.arange(context).repeat(cells),
        masked=indices[batch.masked],
        max_seqlen=context,
    )


def constant_shape(tensor: Tensor) -> Tensor:
    """Mark a shape as constant, so that ``torch.compile`` does not make it dynamic."""
    torch._dynamo.mark_static(tensor)
    return tensor


class PaddedBlock(Block):
    """A block of the encoder with attention over padded cells."""

    def __init__(self, settings: EncoderSettings, layer: int, attention: PaddedAttention) -> None:
        super().__init__(settings, layer)
        self.padded_attention = attention

    def attend(self, qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, mask: Any = None) -> Tensor:
        q, k, v = (x.unflatten(0, (-1, self.settings.context)) for x in qkv.unbind(1))
        return self.padded_attention.attend(q, k, v, mask).flatten(0, 1)


class PaddedEncoder(Encoder):
    """The encoder for batches that :func:`pad_cells` made."""

    def __init__(self, settings: EncoderSettings, attention: PaddedAttention) -> None:
        super().__init__(settings)
        self.padded_attention = attention
        self.blocks = nn.ModuleList(
            PaddedBlock(settings, layer, attention) for layer in range(settings.layers)
        )

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return constant_shape(super().embed(tokens, positions))

    def dropout_keys(
        self, cells: Tensor, positions: Tensor, cu_seqlens: Tensor, seed: int, step: int
    ) -> Tensor | None:
        keys = super().dropout_keys(cells, positions, cu_seqlens, seed, step)
        return None if keys is None else constant_shape(keys)

    def for_tokens(self, of_cells: Tensor, cu_seqlens: Tensor, tokens: int) -> Tensor:
        return of_cells.repeat_interleave(self.settings.context)

    def mask(self, embedded: Tensor, cu_seqlens: Tensor) -> Any:
        return self.padded_attention.prepare(torch.diff(cu_seqlens), self.settings)


def padding_mask(lengths: Tensor, settings: EncoderSettings) -> "BlockMask":
    """Return FlexAttention's block mask: tokens attend to the valid tokens of their cell.

    Computing the mask from ``lengths``, (cells,) int32, is faster than ``create_block_mask``, which
    visits all pairs of tokens. Blocks of rows that contain only padding do not attend to any token.
    """
    from torch.nn.attention.flex_attention import BlockMask

    constant_shape(lengths)
    cells, context = len(lengths), settings.context
    blocks = (context + BLOCK - 1) // BLOCK
    block = torch.arange(blocks, dtype=torch.int32, device=lengths.device)
    # (cells, 1): number of blocks that contain valid tokens, and that contain only valid tokens
    touched = ((lengths + BLOCK - 1) // BLOCK)[:, None]
    whole = (lengths // BLOCK)[:, None]
    # (cells, blocks): only the last of a cell's blocks with valid tokens can be partial.
    is_whole, is_partial = block < whole, (block >= whole) & (block < touched)

    def visits(active: Tensor, counts: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many blocks each block visits, (cells, 1, blocks), and in which order.

        Each block that is ``active``, (cells, blocks) bool, visits the first ``counts`` blocks,
        (cells, 1), of ``order``, (cells, blocks). All other blocks visit none. The returned order
        has the shape (cells, 1, blocks, blocks).
        """
        number = torch.where(active, counts, 0).to(torch.int32)[:, None]
        indices = order.to(torch.int32)[:, None, None].expand(cells, 1, blocks, blocks)
        return constant_shape(number), constant_shape(indices.contiguous())

    ascending = block.expand(cells, blocks)
    partial_first = (block + whole) % blocks  # the partial block of a cell has the index `whole`
    # Blocks of rows visit partial blocks of columns (kv), which need a mask, and whole ones (full).
    is_touched = block < touched
    kv_number, kv_indices = visits(is_touched, touched - whole, partial_first)
    full_kv_number, full_kv_indices = visits(is_touched, whole, ascending)
    # In the backward pass, blocks of columns visit blocks of rows (q).
    q_number, q_indices = visits(is_partial, touched, ascending)
    full_q_number, full_q_indices = visits(is_whole, touched, ascending)

    def is_valid(cell: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return column < lengths[cell]

    return BlockMask(
        seq_lengths=(context, context),
        kv_num_blocks=kv_number,
        kv_indices=kv_indices,
        full_kv_num_blocks=full_kv_number,
        full_kv_indices=full_kv_indices,
        q_num_blocks=q_number,
        q_indices=q_indices,
        full_q_num_blocks=full_q_number,
        full_q_indices=full_q_indices,
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=is_valid,
    )


@functools.cache
def _compiled_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def flex(q: Tensor, k: Tensor, v: Tensor, mask: "BlockMask") -> Tensor:
    """Compute softmax attention by FlexAttention, the paper's baseline."""
    from torch.nn.attention.flex_attention import flex_attention

    # In a compiled region, the enclosing torch.compile generates the kernel.
    attend: Any = flex_attention if torch.compiler.is_compiling() else _compiled_flex()
    return attend(*(x.transpose(1, 2) for x in (q, k, v)), block_mask=mask).transpose(1, 2)


def triton_sigmoid_inputs(
    lengths: Tensor, settings: EncoderSettings
) -> tuple[Tensor, Tensor, Tensor]:
    """Return lengths, biases and scale for triton-sigmoid, once instead of in each layer."""
    register_triton_sigmoid()
    scale = torch.full((), settings.head_dimension**-0.5, device=lengths.device)
    return constant_shape(lengths), constant_shape(-torch.log(lengths.float())), scale


@functools.cache
def register_triton_sigmoid() -> None:
    """Register triton-sigmoid's padded kernels as an operator that torch.compile does not trace.

    The operator calls the package's operators directly, because the package's function copies the
    scale to the GPU in each call and waits for the copy.
    """
    package: Any = import_optional("triton_sigmoid.sigmoid_triton_padded")

    @torch.library.custom_op("scsigmoid::triton_sigmoid_padded", mutates_args=())
    def forward(
        q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, bias: Tensor, scale: Tensor
    ) -> Tensor:
        # lengths of keys and queries, bias, no change of the scores, scale, not causal
        rest = (lengths, lengths, bias, None, scale, False)
        return package.sigmoid_attn_padded_fwd_op(q, k, v, *rest)  # type: ignore[no-any-return]

    @torch.library.custom_op("scsigmoid::triton_sigmoid_padded_backward", mutates_args=())
    def backward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, bias: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        rest = (lengths, lengths, bias, None, scale, False)
        return package.sigmoid_attn_padded_bwd_op(q, k, v, grad, *rest)  # type: ignore[no-any-return]

    forward.register_fake(lambda q, *_: torch.empty_like(q))
    backward.register_fake(lambda grad, q, k, v, *_: tuple(map(torch.empty_like, (q, k, v))))

    def save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*backward(grad.contiguous(), *ctx.saved_tensors), None, None, None)

    forward.register_autograd(differentiate, setup_context=save)


def triton_sigmoid(
    q: Tensor, k: Tensor, v: Tensor, inputs: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """Compute sigmoid attention by triton-sigmoid, the paper's kernel."""
    q, k, v = (x.contiguous() for x in (q, k, v))
    return torch.ops.scsigmoid.triton_sigmoid_padded(q, k, v, *inputs)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Variant:
    """An attention kernel and a layout.

    Attributes:
        kernel: name in the column ``kernel``. For packed batches, the name of a backend.
        devices: device types on which the variant is timed.
        padded_attention: attention of padded batches, or None for packed batches.
    """

    kernel: str
    attention: str
    devices: tuple[str, ...]
    padded_attention: PaddedAttention | None = None

    @property
    def layout(self) -> str:
        return "packed" if self.padded_attention is None else "padded"

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.layout}"

    @property
    def is_ours(self) -> bool:
        return self.attention == "sigmoid" and self.kernel in BACKENDS["sigmoid"]

    def encoder(self, settings: EncoderSettings, device: torch.device) -> Encoder:
        """Make the encoder, or raise UserError if the kernel cannot run on the device."""
        padded_attention = self.padded_attention
        # A padded encoder does not use the backend.
        backend = "reference" if padded_attention else self.kernel
        settings = replace(settings, attention=self.attention, backend=backend)
        backend_of(settings, device)  # raises the UserError
        with device:
            if padded_attention is None:
                return Encoder(settings)
            return PaddedEncoder(settings, padded_attention)

    def batch(self, packed: Batch, context: int) -> Batch:
        return packed if self.padded_attention is None else pad_cells(packed, context)


def devices_of(backend: Backend) -> tuple[str, ...]:
    """Return the device types on which a backend is timed. References are not timed on a GPU."""
    cuda = ("cuda",) if backend.capability is not None else ()  # None: a reference
    cpu = ("cpu",) if backend.runs_on_cpu else ()
    return cuda + cpu


#: All kernels and layouts. The softmax reference is not timed, because SDPA runs on all devices.
VARIANTS = (
    *(
        Variant(name, attention, devices_of(backend))
        for attention, backends in BACKENDS.items()
        for name, backend in backends.items()
        if (attention, name) != ("softmax", "reference")
    ),
    Variant("flex", "softmax", ("cuda",), PaddedAttention(padding_mask, flex)),
    Variant(
        "triton_sigmoid",
        "sigmoid",
        ("cuda",),
        PaddedAttention(triton_sigmoid_inputs, triton_sigmoid),
    ),
)


KERNELS_SETTING = "benchmarks.training.kernels"


def choose_variants(names: Sequence[str] | None, device: str) -> list[Variant]:
    """Return the :data:`VARIANTS` with these names on a device (:func:`select_kernels`).

    A name without layout (``flex``) selects both layouts, ``flex padded`` selects one layout.
    """
    table = [(name, variant) for variant in VARIANTS for name in (variant.kernel, variant.name)]
    return list(dict.fromkeys(select_kernels(table, KERNELS_SETTING, names, device)))
