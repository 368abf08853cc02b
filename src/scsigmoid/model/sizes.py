"""Dimensions of an encoder, and its number of parameters and floating-point operations."""

from collections.abc import Sequence
from dataclasses import dataclass

from scsigmoid.config.schema import Architecture, Size
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """Settings of an encoder (table tab:model_arch).

    :class:`Size` and :class:`Architecture` describe the attributes that are not in this list.

    Attributes:
        attention: ``sigmoid`` or ``softmax``.
        context: maximum sequence length in tokens, the number of position embeddings.
        vocabulary_size: number of tokens, including special tokens.
        dropout: probability of dropping an activation after the embedding and each half of a block.
        backend: ``auto`` or a key of ``BACKENDS[attention]``.
        cls_token: whether [CLS] precedes the genes of a cell. It counts as a token of the context.
        variants: changes to attention (:mod:`scsigmoid.model.encoder`).
    """

    attention: str
    context: int
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary_size: int
    dropout: float
    layer_norm_epsilon: float
    initializer_range: float
    backend: str = "auto"
    cls_token: bool = True
    variants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.attention not in BACKENDS:
            raise UserError(
                f"attention {self.attention!r}: unknown; use one of {', '.join(sorted(BACKENDS))}"
            )

    @property
    def head_dimension(self) -> int:
        return self.hidden // self.heads

    @property
    def genes(self) -> int:
        """Maximum number of genes of a cell."""
        return self.context - self.cls_token

    @classmethod
    def of(
        cls,
        size: Size,
        architecture: Architecture,
        attention: str,
        context: int,
        vocabulary_size: int,
        backend: str = "auto",
        cls_token: bool = True,
    ) -> "EncoderSettings":
        """Create settings from an entry of ``sizes``, ``architecture``, and settings of a model."""
        return cls(
            attention=attention,
            context=context,
            **size.model_dump(),
            vocabulary_size=vocabulary_size,
            dropout=architecture.dropout,
            layer_norm_epsilon=architecture.layer_norm_epsilon,
            initializer_range=architecture.initializer_range,
            backend=backend,
            cls_token=cls_token,
            variants=tuple(architecture.variants),
        )


def count_parameters(settings: EncoderSettings) -> int:
    """Return the number of parameters without building the encoder."""
    hidden, wide = settings.hidden, settings.feed_forward

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + outputs

    norm = 2 * hidden  # gains and biases of a layer normalization
    embeddings = (settings.vocabulary_size + settings.context) * hidden
    attention = linear(hidden, 3 * hidden) + linear(hidden, hidden)
    attention += 2 * settings.head_dimension * ("qk_norm" in settings.variants)
    attention += norm * ("hybrid_norm" in settings.variants)
    feed_forward = linear(hidden, wide) + linear(wide, hidden)
    blocks = settings.layers * (2 * norm + attention + feed_forward)
    return embeddings + blocks + norm + linear(hidden, settings.vocabulary_size)


def count_flops(settings: EncoderSettings, lengths: Sequence[int], masked: int) -> int:
    """Return the floating-point operations of a forward and backward pass of a packed batch.

    A matrix product counts twice as much in the backward pass as in the forward pass. Attention
    of n tokens counts 4 n^2 hidden in the forward pass and 2.5 times as much in the backward pass
    (appendix "FLOP Calculation" of the paper). Element-wise operations and the optimizer are not
    counted. The output layer computes logits for ``masked`` positions only.
    """
    hidden, wide = settings.hidden, settings.feed_forward
    tokens = sum(int(length) for length in lengths)
    weights = settings.layers * (4 * hidden * hidden + 2 * hidden * wide)  # 4: q, k, v, projection
    linear = 6 * weights * tokens  # 6 = 2 operations per weight * (1 forward + 2 backward)
    pairs = sum(int(length) ** 2 for length in lengths)
    attention = 14 * settings.layers * hidden * pairs  # 14 = 4 * (1 + 2.5)
    output = 6 * hidden * settings.vocabulary_size * masked
    return linear + attention + output
