"""The ways to train the same encoder that are compared: an attention kernel and a layout.

Packed cells are training's own layout; the paper pads every cell to the context.  A padded batch is
a stream of cells * context tokens.  All layers of the encoder take it as it is; only attention
looks at it cell by cell, and only the output layer leaves the padding out.  So padded and packed
models are the same but for what is compared.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from scsigmoid.attention.flex import BLOCK
from scsigmoid.benchmarks.providers import imported, of_interest
from scsigmoid.benchmarks.timing import Unavailable
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS
from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.vocabulary import PAD
from scsigmoid.training.batches import Batch
from scsigmoid.training.devices import backend_of

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True)
class PaddedAttention:
    """Attention of padded cells.

    Attributes:
        prepare: from the valid tokens of each cell, (cells,) int32, and the encoder's settings:
            what all layers share, made once a batch outside the compiled graph.
        attend: from q, k and v, (cells, context, heads, dim), and what ``prepare`` made: their
            attention, of the same shape.  What it gives in the padding is not used.
    """

    prepare: Callable[[Tensor, EncoderSettings], Any]
    attend: Callable[[Tensor, Tensor, Tensor, Any], Tensor]


def padded(batch: Batch, context: int) -> Batch:
    """A packed batch with each cell padded to the context.

    ``cu_seqlens`` goes on counting valid tokens.  Targets, and the tokens that are masked, stay the
    same ones.
    """
    lengths = torch.diff(batch.cu_seqlens).long()
    cells = len(lengths)
    starts = torch.arange(cells) * context
    places = torch.repeat_interleave(starts, lengths) + batch.positions
    tokens = torch.full((cells * context,), PAD, dtype=torch.int64)
    tokens[places] = batch.tokens
    return replace(
        batch,
        tokens=tokens,
        positions=torch.arange(context).repeat(cells),
        masked=places[batch.masked],
        max_seqlen=context,
    )


def constant_shape(tensor: Tensor) -> Tensor:
    """The tensor, whose shape ``torch.compile`` shall take for a constant, as batches of one
    padded shape have it; the number of masked places alone varies."""
    torch._dynamo.mark_static(tensor)
    return tensor


class PaddedBlock(Block):
    """A block of the encoder with another attention."""

    def __init__(self, settings: EncoderSettings, layer: int, attention: PaddedAttention) -> None:
        super().__init__(settings, layer)
        self.padded_attention = attention

    def attend(self, qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, mask: Any) -> Tensor:
        q, k, v = (x.unflatten(0, (-1, self.settings.context)) for x in qkv.unbind(1))
        return self.padded_attention.attend(q, k, v, mask).flatten(0, 1)


class PaddedEncoder(Encoder):
    """The encoder for batches that :func:`padded` made."""

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
        """What ``prepare`` of the attention makes."""
        return self.padded_attention.prepare(torch.diff(cu_seqlens), self.settings)


def padding_mask(lengths: Tensor, settings: EncoderSettings) -> "BlockMask":
    """FlexAttention's block mask for padded cells: tokens see the valid tokens of their cell.

    Made from the lengths alone, which is faster than ``create_block_mask``: that looks at all pairs
    of tokens.  Blocks of rows that hold padding alone see nothing.

    Args:
        lengths: (cells,) int32, valid tokens.
        settings: of the encoder; its context is the length of a padded cell.

    Returns:
        The mask of one head, the same for all.
    """
    from torch.nn.attention.flex_attention import BlockMask

    constant_shape(lengths)
    cells, context = len(lengths), settings.context
    blocks = (context + BLOCK - 1) // BLOCK
    block = torch.arange(blocks, dtype=torch.int32, device=lengths.device)
    touched = ((lengths + BLOCK - 1) // BLOCK)[:, None]
    whole = (lengths // BLOCK)[:, None]
    # A block of columns that a length ends in is seen in part, those before it as a whole.
    is_whole, is_partial = block < whole, (block >= whole) & (block < touched)

    def visits(active: Tensor, counts: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """How many blocks each active block visits, and which come first; for one head."""
        number = torch.where(active, counts, 0).to(torch.int32)[:, None]
        indices = order.to(torch.int32)[:, None, None].expand(cells, 1, blocks, blocks)
        return constant_shape(number), constant_shape(indices.contiguous())

    rows_first = block.expand(cells, blocks)
    partial_first = (block + whole) % blocks
    valid_rows = block < touched
    kv_number, kv_indices = visits(valid_rows, touched - whole, partial_first)
    full_kv_number, full_kv_indices = visits(valid_rows, whole, rows_first)
    q_number, q_indices = visits(is_partial, touched, rows_first)
    full_q_number, full_q_indices = visits(is_whole, touched, rows_first)

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
    """Softmax attention by FlexAttention: the paper's baseline."""
    from torch.nn.attention.flex_attention import flex_attention

    # Inside a compiled region the kernel is made by that compilation.
    attend: Any = flex_attention if torch.compiler.is_compiling() else _compiled_flex()
    return attend(*(x.transpose(1, 2) for x in (q, k, v)), block_mask=mask).transpose(1, 2)


class PublishedBatch(NamedTuple):
    """What triton-sigmoid needs of a batch beside q, k and v.

    Attributes:
        lengths: (cells,) int32, valid tokens.
        bias: (cells,) float32, -log of the lengths.
        scale: () float32, factor of the scores.
    """

    lengths: Tensor
    bias: Tensor
    scale: Tensor


def published_batch(lengths: Tensor, settings: EncoderSettings) -> PublishedBatch:
    """What all layers share; the package makes it anew at each call."""
    register_published()
    scale = torch.full((), settings.head_dimension**-0.5, device=lengths.device)
    bias = -torch.log(lengths.float())
    return PublishedBatch(constant_shape(lengths), constant_shape(bias), scale)


@functools.cache
def register_published() -> None:
    """Make an operator of triton-sigmoid's padded kernels that ``torch.compile`` takes as it is.

    The package's function copies the scale to the GPU at every call and waits for that; the
    operators behind it, called here, do not.

    Raises:
        Unavailable: if the package is not installed.
    """
    package = imported("triton_sigmoid.sigmoid_triton_padded")

    def attend(
        q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, bias: Tensor, scale: Tensor
    ) -> Tensor:
        out: Tensor = package.sigmoid_attn_padded_fwd_op(
            q, k, v, lengths, lengths, bias, None, scale, False
        )
        return out

    def gradients(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, bias: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = package.sigmoid_attn_padded_bwd_op(
            q, k, v, grad, lengths, lengths, bias, None, scale, False
        )
        return found

    forward = torch.library.custom_op("scsigmoid::published_padded", attend, mutates_args=())
    backward = torch.library.custom_op(
        "scsigmoid::published_padded_backward", gradients, mutates_args=()
    )
    forward.register_fake(lambda q, *_: torch.empty_like(q))
    backward.register_fake(lambda grad, q, k, v, *_: tuple(map(torch.empty_like, (q, k, v))))

    def save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*backward(grad.contiguous(), *ctx.saved_tensors), None, None, None)

    forward.register_autograd(differentiate, setup_context=save)


def published(q: Tensor, k: Tensor, v: Tensor, batch: PublishedBatch) -> Tensor:
    """Sigmoid attention by triton-sigmoid, the paper's kernel."""
    q, k, v = (x.contiguous() for x in (q, k, v))
    attended: Tensor = torch.ops.scsigmoid.published_padded(q, k, v, *batch)
    return attended


@dataclass(frozen=True)
class Variant:
    """An attention kernel and a layout.

    Attributes:
        kernel: its name, as in the column; for packed batches the name of a backend.
        attention: ``sigmoid`` or ``softmax``.
        devices: device types on which the variant is compared.
        padded: how attention of padded batches is computed; None for packed batches.
        package: the optional package that contains the kernel.
    """

    kernel: str
    attention: str
    devices: tuple[str, ...]
    padded: PaddedAttention | None = None
    package: str = ""

    @property
    def layout(self) -> str:
        """``packed`` or ``padded``."""
        return "packed" if self.padded is None else "padded"

    @property
    def name(self) -> str:
        """Kernel and layout."""
        return f"{self.kernel} {self.layout}"

    @property
    def is_ours(self) -> bool:
        """Whether the kernel is part of this project."""
        return self.attention == "sigmoid" and self.kernel in BACKENDS["sigmoid"]

    def encoder(self, like: EncoderSettings, device: torch.device) -> Encoder:
        """Make the encoder, with random weights.

        Raises:
            Unavailable: if the device or the installation lacks the kernel.
        """
        backend = "reference" if self.padded else self.kernel
        settings = replace(like, attention=self.attention, backend=backend)
        if self.package:
            imported(self.package)
        with device:
            if self.padded is not None:
                return PaddedEncoder(settings, self.padded)
            try:
                backend_of(settings, device)
            except UserError as error:
                raise Unavailable(str(error)) from None
            return Encoder(settings)

    def batch(self, packed: Batch, context: int) -> Batch:
        """Return a packed batch in this layout."""
        return packed if self.padded is None else padded(packed, context)


#: Our kernels first. Plain softmax attention is left out: SDPA runs on every device.
VARIANTS = (
    *(
        Variant(
            name,
            attention,
            ("cuda",) * (backend.capability is not None) + ("cpu",) * backend.runs_on_cpu,
        )
        for attention, backends in BACKENDS.items()
        for name, backend in backends.items()
        if (attention, name) != ("softmax", "reference")
    ),
    Variant("flex", "softmax", ("cuda",), PaddedAttention(padding_mask, flex)),
    Variant(
        "triton_sigmoid",
        "sigmoid",
        ("cuda",),
        PaddedAttention(published_batch, published),
        package="triton_sigmoid",
    ),
)


SETTING = "benchmarks.training.kernels"


def chosen_variants(names: Sequence[str] | None, device: str) -> list[Variant]:
    """Return the :data:`VARIANTS` with these names on a device; see :func:`of_interest`.

    ``flex`` names both layouts of a kernel, ``flex padded`` one of them.
    """
    table = [(name, variant) for variant in VARIANTS for name in (variant.kernel, variant.name)]
    return list(dict.fromkeys(of_interest(table, SETTING, names, device)))
