"""How large an encoder is, and how much arithmetic a training step counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from scsigmoid.model.sizes import EncoderSettings


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """Parameters of an encoder, part by part."""

    token_embedding: int
    position_embedding: int
    blocks: int
    final_norm: int
    output: int

    @property
    def total(self) -> int:
        """All parameters."""
        return (
            self.token_embedding
            + self.position_embedding
            + self.blocks
            + self.final_norm
            + self.output
        )


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def count_parameters(settings: EncoderSettings) -> ParameterCount:
    """Count an encoder's parameters from its settings, without building it."""
    hidden, wide = settings.hidden, settings.feed_forward
    block = (
        2 * 2 * hidden
        + _linear(hidden, 3 * hidden)
        + _linear(hidden, hidden)
        + _linear(hidden, wide)
        + _linear(wide, hidden)
    )
    return ParameterCount(
        token_embedding=settings.vocabulary_size * hidden,
        position_embedding=settings.context * hidden,
        blocks=settings.layers * block,
        final_norm=2 * hidden,
        output=_linear(hidden, settings.vocabulary_size),
    )


def count_flops(settings: EncoderSettings, lengths: Sequence[int], masked: int) -> int:
    """Floating-point operations of one forward and backward pass over a packed batch.

    Counted, not executed: a matrix product's backward is twice its forward; attention is
    4 n^2 hidden forward and 2.5 times that backward (section "FLOP Calculation" of the appendix);
    the output layer runs at the masked places alone; element-wise work and the optimiser are left
    out.

    Args:
        settings: of the encoder.
        lengths: tokens of each cell.
        masked: number of masked places.
    """
    hidden, wide = settings.hidden, settings.feed_forward
    tokens = sum(int(length) for length in lengths)
    weights = settings.layers * (4 * hidden * hidden + 2 * hidden * wide)
    linear = 6 * weights * tokens
    pairs = sum(int(length) ** 2 for length in lengths)
    attention = 14 * settings.layers * hidden * pairs
    output = 6 * hidden * settings.vocabulary_size * masked
    return linear + attention + output
