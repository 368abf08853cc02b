"""Sigmoid attention by its formula, in stand-ins for packages that are not installed."""

import torch
from torch import Tensor


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, valid: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the output and the weights of all pairs. ``valid`` is False in the padding."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * scale + bias[:, None, None, None]
    weights = torch.sigmoid(scores)
    if valid is not None:
        weights = weights * (valid[:, None, :, None] & valid[:, None, None, :])
    return torch.einsum("bhij,bjhd->bihd", weights, v).contiguous(), weights


def gradients(
    q: Tensor, k: Tensor, v: Tensor, gradient: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v from the gradient of the output."""
    slopes = torch.einsum("bihd,bjhd->bhij", gradient, v) * weights * (1 - weights) * scale
    return (
        torch.einsum("bhij,bjhd->bihd", slopes, k).contiguous(),
        torch.einsum("bhij,bihd->bjhd", slopes, q).contiguous(),
        torch.einsum("bhij,bihd->bjhd", weights, gradient).contiguous(),
    )
