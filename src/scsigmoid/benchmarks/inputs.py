"""Inputs of a batch of the kernel benchmark, and what the right answer is."""

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from scsigmoid.benchmarks.cases import SEED, Case
from scsigmoid.seeds import derive

# Rows of scores held at once by the check: bounds its memory.
BLOCK_ROWS = 1024


class Inputs:
    """Random q, k, v and an output's gradient for one batch.

    Attributes:
        case: the batch.
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
        self._arranged: dict[str, list[Tensor]] = {}
        self._expected: dict[str, list[list[Tensor]]] = {}

    def in_layout(self, layout: str) -> list[Tensor]:
        """q, k, v (leaves that require gradients) and the gradient; one copy for all providers.

        Args:
            layout: ``packed`` (tokens, heads, dim), ``padded`` (sequences, length, heads, dim) or
                ``heads`` (sequences, heads, length, dim).
        """
        if layout not in self._arranged:
            if layout == "packed":
                arranged = [x[self.valid] for x in self.padded]
            elif layout == "padded":
                arranged = [x.clone() for x in self.padded]
            else:
                arranged = [x.transpose(1, 2).contiguous() for x in self.padded]
            self._arranged[layout] = [*(x.requires_grad_() for x in arranged[:3]), arranged[3]]
        return self._arranged[layout]

    @cached_property
    def sample(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The sequences and heads that are checked: longest and first, shortest and last."""
        lengths = np.asarray(self.case.lengths)
        shortest = len(lengths) - 1 - int(lengths[::-1].argmin())
        return (int(lengths.argmax()), 0), (shortest, self.case.heads - 1)

    def one_head(self, tensor: Tensor, layout: str, sequence: int, head: int) -> Tensor:
        """One sequence and head of a tensor in some layout, (n, dim) float64."""
        n = self.case.lengths[sequence]
        if layout == "packed":
            start = sum(self.case.lengths[:sequence])
            return tensor[start : start + n, head].double()
        found = tensor[sequence, :n, head] if layout == "padded" else tensor[sequence, head, :n]
        return found.double()

    def largest_error(
        self, attention: str, layout: str, output: Tensor, gradients: tuple[Tensor, ...]
    ) -> tuple[float, str]:
        """The largest relative error against float64 in the sample, and in what.

        Args:
            attention: ``sigmoid`` or ``softmax``.
            layout: of the tensors.
            output: of the kernel.
            gradients: of q, k and v.
        """
        errors: list[tuple[float, str]] = []
        names = ("output", "dQ", "dK", "dV")
        for (sequence, head), right in zip(self.sample, self.expected(attention), strict=True):
            for name, found, exact in zip(names, (output, *gradients), right, strict=True):
                own = self.one_head(found.detach(), layout, sequence, head)
                errors.append((relative_error(own, exact), name))
        return max(errors, key=lambda error: math.inf if math.isnan(error[0]) else error[0])

    def expected(self, attention: str) -> list[list[Tensor]]:
        """For each of :attr:`sample`: output and gradients of q, k, v, (n, dim) float64 each."""
        if attention not in self._expected:
            self._expected[attention] = [
                self._attend(attention, sequence, head) for sequence, head in self.sample
            ]
        return self._expected[attention]

    def _attend(self, attention: str, sequence: int, head: int) -> list[Tensor]:
        q, k, v, grad = (self.one_head(x, "padded", sequence, head) for x in self.padded)
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
