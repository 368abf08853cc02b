"""AdamW and the learning-rate schedule (tab:model_arch)."""

from typing import Any

import torch
from torch import nn

from scsigmoid.config.schema import Training


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters with and without weight decay.

    Weight matrices and embeddings decay; biases and layer normalisations, which have one dimension,
    do not.  The paper does not say; this is the common choice for encoders.
    """
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def make_optimiser(model: nn.Module, training: Training) -> torch.optim.AdamW:
    """AdamW with the run's settings, as one fused kernel per group."""
    return torch.optim.AdamW(
        parameter_groups(model, training.weight_decay),
        lr=training.learning_rate,
        betas=(training.betas[0], training.betas[1]),
        eps=training.epsilon,
        fused=True,
    )


def learning_rate(step: int, training: Training) -> float:
    """Learning rate of a step: linear warm-up, then constant.

    Args:
        step: counted from 1, so the first step already learns: its rate is one warm-up step's.
        training: the run's settings.
    """
    if step >= training.warmup_steps:
        return training.learning_rate
    return training.learning_rate * step / training.warmup_steps
