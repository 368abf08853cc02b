"""Functions of scores that make sigmoid attention of FlashAttention-4 (:func:`fa4_sigmoid`).

FlashAttention-4 compiles them into its kernels, from the source in this file. It passes some of the
arguments by name.
"""

import math
from collections.abc import Callable
from typing import Any

from cutlass import cute

LOG2E, LN2 = math.log2(math.e), math.log(2)


def score_functions(bias: float) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return log sigmoid(score + bias) for the forward pass, and its derivative times grad."""

    @cute.jit
    def forward(score, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):  # type: ignore[no-untyped-def]
        exponential = cute.math.exp2((score + bias) * -LOG2E, fastmath=True)
        return -LN2 * cute.math.log2(1.0 + exponential, fastmath=True)

    @cute.jit
    def backward(grad, score, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):  # type: ignore[no-untyped-def]
        return grad * (0.5 - 0.5 * cute.math.tanh((score + bias) * 0.5, fastmath=True))

    return forward, backward
