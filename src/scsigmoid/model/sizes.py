"""The dimensions of an encoder, its parameters, and the arithmetic that a training step counts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from scsigmoid.config.schema import Architecture, Size
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """What determines an encoder (tab:model_arch); limits are those of the configuration's schema.

    Attributes:
        attention: ``sigmoid`` or ``softmax``.
        context: longest sequence in tokens; rows of the position embedding.
        layers: transformer blocks.
        hidden: width of the residual stream.
        heads: attention heads; ``hidden / heads`` is the head dimension.
        feed_forward: width of the feed-forward layer.
        vocabulary_size: tokens, the special ones included.
        dropout: share of activations dropped, after the embedding and after each half of a block.
        layer_norm_epsilon: epsilon of the layer normalisations.
        initializer_range: standard deviation of the initial weights.
        backend: attention backend.
        cls_token: whether [CLS] is in front of a cell's genes; it takes a place of the context.
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
        """Genes of a cell that are read at most."""
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
        """Settings from the configuration's ``sizes`` entry and ``architecture`` section."""
        return cls(
            attention=attention,
            context=context,
            **asdict(size),
            vocabulary_size=vocabulary_size,
            dropout=architecture.dropout,
            layer_norm_epsilon=architecture.layer_norm_epsilon,
            initializer_range=architecture.initializer_range,
            backend=backend,
            cls_token=cls_token,
            variants=tuple(architecture.variants),
        )


def count_parameters(settings: EncoderSettings) -> int:
    """Count an encoder's parameters from its settings, without building it."""
    hidden, wide = settings.hidden, settings.feed_forward

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + outputs

    norm = 2 * hidden
    embeddings = (settings.vocabulary_size + settings.context) * hidden
    attention = linear(hidden, 3 * hidden) + linear(hidden, hidden)
    attention += 2 * settings.head_dimension * ("qk_norm" in settings.variants)
    attention += norm * ("hybrid_norm" in settings.variants)
    feed_forward = linear(hidden, wide) + linear(wide, hidden)
    blocks = settings.layers * (2 * norm + attention + feed_forward)
    return embeddings + blocks + norm + linear(hidden, settings.vocabulary_size)


def count_flops(settings: EncoderSettings, lengths: Sequence[int], masked: int) -> int:
    """Floating-point operations of one forward and backward pass over a packed batch.

    Counted, not executed: a matrix product's backward is twice its forward; attention is
    4 n^2 hidden forward and 2.5 times that backward (section "FLOP Calculation" of the appendix);
    the output layer runs at the ``masked`` places alone; element-wise work and the optimiser are
    left out.  ``lengths`` are the tokens of each cell.
    """
    hidden, wide = settings.hidden, settings.feed_forward
    tokens = sum(int(length) for length in lengths)
    weights = settings.layers * (4 * hidden * hidden + 2 * hidden * wide)
    linear = 6 * weights * tokens
    pairs = sum(int(length) ** 2 for length in lengths)
    attention = 14 * settings.layers * hidden * pairs
    output = 6 * hidden * settings.vocabulary_size * masked
    return linear + attention + output
