"""The shapes of the kernel benchmark, their inputs, and what the right answer is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.seeds import derive

# The benchmark has a seed of its own: its inputs are part of its definition.
SEED = 0
# Rows of scores held at once by the check: bounds its memory.
BLOCK_ROWS = 1024


@dataclass(frozen=True)
class Case:
    """One shape: ``sequences`` of ``length`` tokens, padding included.

    Attributes:
        head_dimension: D.
        heads: H.
        length: L, padding included.
        sequences: Z.
        padding: mean share of padding.
    """

    head_dimension: int
    heads: int
    length: int
    sequences: int
    padding: float

    @cached_property
    def lengths(self) -> list[int]:
        """Valid tokens of each sequence.

        Spread evenly over (1 - 2 p) L to L, in shuffled order, so their mean is (1 - p) L at every
        shape: "25 % padding" is 25 % of the tokens.  (The published benchmark draws uniformly from
        (1 - p) L to L, half of that on average.)
        """
        centres = (np.arange(self.sequences) + 0.5) / self.sequences
        spread = np.rint(self.length * (1 - 2 * self.padding * (1 - centres))).astype(int)
        generator = np.random.default_rng(derive(SEED, "lengths", self.sequences))
        return [max(1, int(length)) for length in generator.permutation(spread)]

    def flops(self, direction: str) -> float:
        """Operations on valid tokens: 4 n^2 H D forward (appendix "FLOP Calculation")."""
        forward = 4.0 * self.heads * self.head_dimension * sum(n * n for n in self.lengths)
        # Two matrix products forward, five backward, one of them the scores again.
        return forward * (2.5 if direction == "backward" else 1.0)


def cases(settings: KernelBenchmark) -> Iterator[Case]:
    """All shapes of the benchmark."""
    for dimension in settings.head_dimensions:
        for padding in settings.padding:
            for length in settings.lengths:
                yield Case(
                    head_dimension=dimension,
                    heads=settings.hidden // dimension,
                    length=length,
                    sequences=settings.tokens // length,
                    padding=padding,
                )


class Inputs:
    """Random q, k, v and an output's gradient for one shape.

    Attributes:
        case: the shape.
        lengths: (sequences,) int32.
        cu_seqlens: (sequences + 1,) int32, of the packed layout.
        valid: (sequences, length) bool, False in the padding.
        padded: q, k, v and gradient, (sequences, length, heads, dim); the gradient is zero in the
            padding, as it is in a model that reads no padding.
    """

    def __init__(self, case: Case, device: torch.device, dtype: torch.dtype) -> None:
        self.case = case
        self.lengths = torch.tensor(case.lengths, dtype=torch.int32, device=device)
        bounds = np.concatenate([[0], np.cumsum(case.lengths)])
        self.cu_seqlens = torch.tensor(bounds, dtype=torch.int32, device=device)
        places = torch.arange(case.length, device=device)
        self.valid = places[None, :] < self.lengths[:, None]
        generator = torch.Generator(device).manual_seed(derive(SEED, "inputs"))
        shape = (case.sequences, case.length, case.heads, case.head_dimension)
        self.padded = [
            torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(4)
        ]
        self.padded[3] *= self.valid[:, :, None, None]

    def in_layout(self, layout: str) -> list[Tensor]:
        """q, k, v (leaves that require gradients) and the gradient, in a provider's layout.

        Args:
            layout: ``packed`` (tokens, heads, dim), ``padded`` (sequences, length, heads, dim) or
                ``heads`` (sequences, heads, length, dim).
        """
        if layout == "packed":
            arranged = [x[self.valid] for x in self.padded]
        elif layout == "padded":
            arranged = [x.clone() for x in self.padded]
        else:
            arranged = [x.transpose(1, 2).contiguous() for x in self.padded]
        return [*(x.requires_grad_() for x in arranged[:3]), arranged[3]]

    def first_head(self, tensor: Tensor, layout: str) -> Tensor:
        """Sequence 0, head 0 of a tensor in some layout, (n, dim) float64."""
        n = self.case.lengths[0]
        if layout == "packed":
            return tensor[:n, 0].double()
        return (tensor[0, :n, 0] if layout == "padded" else tensor[0, 0, :n]).double()

    def expected(self, attention: str) -> list[Tensor]:
        """Output and gradients of q, k, v of sequence 0, head 0, in float64, (n, dim) each."""
        q, k, v, grad = (self.first_head(x, "padded") for x in self.padded)
        scale = self.case.head_dimension**-0.5
        output, dq = torch.empty_like(q), torch.empty_like(q)
        dk, dv = torch.zeros_like(k), torch.zeros_like(v)
        for start in range(0, len(q), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            scores = q[rows] @ k.T * scale
            through = grad[rows] @ v.T
            if attention == "sigmoid":
                weights = torch.sigmoid(scores - math.log(len(k)))
                slope = weights * (1 - weights) * through
            else:
                weights = torch.softmax(scores, dim=-1)
                slope = weights * (through - (weights * through).sum(-1, keepdim=True))
            output[rows] = weights @ v
            dq[rows] = slope @ k * scale
            dk += slope.T @ q[rows] * scale
            dv += weights.T @ grad[rows]
        return [output, dq, dk, dv]


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float((found - expected).norm() / expected.norm().clamp_min(1e-300))
