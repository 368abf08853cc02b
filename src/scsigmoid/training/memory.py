"""Words for a GPU that is too small."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from scsigmoid.errors import UserError
from scsigmoid.model.parameters import count_parameters
from scsigmoid.model.sizes import EncoderSettings

# float32 weights, their gradients and AdamW's two moments.
BYTES_PER_PARAMETER = 16


@contextmanager
def worded_out_of_memory(
    encoder: EncoderSettings, micro_batch_tokens: int, device: torch.device
) -> Iterator[None]:
    """Say which setting to lower, and to what, when the GPU's memory does not suffice."""
    try:
        yield
    except torch.OutOfMemoryError:
        total = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None
        raise UserError(advice(encoder, micro_batch_tokens, total)) from None


def advice(encoder: EncoderSettings, micro_batch_tokens: int, total: int | None) -> str:
    """What to change.

    Args:
        encoder: the model that was trained.
        micro_batch_tokens: the setting in force.
        total: bytes of the GPU's memory; None if unknown.
    """
    fixed = BYTES_PER_PARAMETER * count_parameters(encoder).total
    if total is not None and fixed > 0.9 * total:
        return (
            f"architecture.size: weights, gradients and optimiser take {fixed / 1e9:.0f} GB and "
            f"the GPU has {total / 1e9:.0f} GB; take a smaller model or a larger GPU"
        )
    if micro_batch_tokens <= encoder.context:
        return (
            f"training.micro_batch_tokens: a single cell of {encoder.context} tokens does not fit "
            "in the GPU's memory; take a smaller context or model"
        )
    # Beyond the fixed part, memory grows with the tokens; halving is sure to change something.
    lower = max(encoder.context, micro_batch_tokens // 2)
    return (
        f"training.micro_batch_tokens: {micro_batch_tokens} tokens do not fit in the GPU's memory; "
        f"lower it to {lower}, and again by half if that is too much (it changes rounding alone)"
    )
