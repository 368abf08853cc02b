"""Batches of the kernel benchmark, their inputs, and reference results."""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import cast

import numpy as np
import torch
from torch import Tensor

from scsigmoid.attention import reference
from scsigmoid.attention.problem import Kind, make_packed_problem
from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.seeds import derive

#: Seed of the inputs. Not the configuration's seed, so that all runs time the same inputs.
SEED = 0


@dataclass(frozen=True)
class Case:
    """One batch at one head dimension.

    Attributes:
        batch: kind of batch. ``paper`` (a shape of the paper), ``jagged`` (lengths of cells,
            Fig. 1) or ``even`` (equal lengths, with as many operations as the jagged batch).
        length: tokens of a sequence, padding included.
        lengths: valid tokens of each sequence.
        padding: argument of :func:`paper_case`. 0 for ``even``, and for ``jagged`` despite padding.
    """

    batch: str
    head_dimension: int
    heads: int
    length: int
    lengths: tuple[int, ...]
    padding: float = 0.0

    @property
    def sequences(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Number of valid tokens."""
        return sum(self.lengths)

    @property
    def has_padding(self) -> bool:
        """Whether a padded layout of the batch contains padding."""
        return any(n != self.length for n in self.lengths)

    def flops(self, direction: str) -> float:
        """Return the operations on valid tokens (appendix "FLOP Calculation").

        A forward pass counts as two matrix products, 4 n^2 D operations per sequence and head. A
        backward pass counts as five, because it computes the scores again.
        """
        products = 5 if direction == "backward" else 2
        squares = sum(n**2 for n in self.lengths)
        return 2.0 * products * self.heads * self.head_dimension * squares


def groups(settings: KernelBenchmark) -> list[tuple[Case, ...]]:
    """Return all batches, in groups that are timed in the same rounds."""
    all_groups: list[tuple[Case, ...]] = []
    for dimension in settings.head_dimensions:
        heads = settings.hidden // dimension
        all_groups += [
            tuple(
                paper_case(dimension, heads, length, settings.tokens // length, padding)
                for padding in settings.padding
            )
            for length in settings.lengths
        ]
        if settings.jagged:
            all_groups.append(jagged_cases(dimension, heads, settings))
    return all_groups


def paper_case(dimension: int, heads: int, length: int, sequences: int, padding: float) -> Case:
    """Return a shape of the paper: lengths uniform between (1 - padding) * length and length.

    The published benchmark draws lengths in this way: "25 % padding" is 12.5 % on average. One
    length is drawn from each of ``sequences`` equal parts of the range, so that even few sequences
    represent the distribution. Lengths are in random order.
    """
    generator = np.random.default_rng(derive(SEED, "lengths", length, sequences))
    quantiles = (generator.permutation(sequences) + generator.random(sequences)) / sequences
    lengths = np.rint(length * (1 - padding * (1 - quantiles))).astype(int)
    return Case("paper", dimension, heads, length, tuple(max(1, int(n)) for n in lengths), padding)


def jagged_cases(dimension: int, heads: int, settings: KernelBenchmark) -> tuple[Case, Case]:
    """Return two batches: lengths of cells (Fig. 1), and equal lengths with the same sum of n^2."""
    lengths = cell_lengths(
        settings.tokens, settings.median_length, settings.sigma_length, max(settings.lengths)
    )
    squares = sum(n * n for n in lengths)
    # Up to rounding, count * equal = sum(lengths) and count * equal**2 = squares.
    count = max(1, round(sum(lengths) ** 2 / squares))
    equal = max(1, round(math.sqrt(squares / count)))
    return (
        Case("jagged", dimension, heads, max(lengths), lengths),
        Case("even", dimension, heads, equal, (equal,) * count),
    )


def cell_lengths(tokens: int, median: float, sigma: float, longest: int) -> tuple[int, ...]:
    """Return quantiles of a log-normal distribution, cut at ``longest``, in random order.

    Their sum is as close to ``tokens`` as possible.
    """

    def quantiles(count: int) -> list[int]:
        normal = [NormalDist().inv_cdf((rank + 0.5) / count) for rank in range(count)]
        return [max(1, min(longest, round(median * math.exp(sigma * z)))) for z in normal]

    count = 1
    while sum(quantiles(count)) < tokens:
        count += 1
    closest = min(
        (quantiles(number) for number in (count - 1, count) if number),
        key=lambda lengths: abs(sum(lengths) - tokens),
    )
    generator = np.random.default_rng(derive(SEED, "cells", len(closest)))
    return tuple(generator.permutation(closest).tolist())


def dtype_of(device: torch.device) -> torch.dtype:
    """Return the benchmark's dtype: bfloat16 on a GPU, float32 on a CPU."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


# Maximum relative error of output and gradients. In bfloat16 the error of fused kernels is about
# 0.003. Plain PyTorch, which also rounds the scores, has about 0.02.
TOLERANCE = {torch.bfloat16: 0.05, torch.float32: 1e-4}


class Inputs:
    """Random q, k, v and gradient of the output for one batch, in the dtype of :func:`dtype_of`.

    Attributes:
        lengths: (sequences,) int32, valid tokens.
        cu_seqlens: (sequences + 1,) int32, cumulative lengths of the packed layout.
        valid: (sequences, length) bool, False in the padding.
        padded: q, k, v and gradient, (sequences, length, heads, dim). The gradient is zero in the
            padding, as in a model that does not read the padding.
    """

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        self.lengths = torch.tensor(case.lengths, dtype=torch.int32, device=device)
        bounds = np.concatenate([[0], np.cumsum(case.lengths)])
        self.cu_seqlens = torch.tensor(bounds, dtype=torch.int32, device=device)
        self.valid = torch.arange(case.length, device=device) < self.lengths[:, None]
        generator = torch.Generator(device).manual_seed(derive(SEED, "inputs"))
        shape = (case.sequences, case.length, case.heads, case.head_dimension)
        self.padded = [
            torch.randn(shape, generator=generator, device=device, dtype=dtype_of(device))
            for _ in range(4)
        ]
        self.padded[3] *= self.valid[:, :, None, None]
        self._in_layout: dict[str, list[Tensor]] = {}
        self._expected: dict[str, list[list[Tensor]]] = {}

    def in_layout(self, layout: str) -> list[Tensor]:
        """Return q, k, v (leaves that require gradients) and the output's gradient.

        ``layout`` is ``packed`` (tokens, heads, dim), ``padded`` (sequences, length, heads, dim) or
        ``heads`` (sequences, heads, length, dim). All kernels of a layout share the tensors.
        """
        if layout not in self._in_layout:
            if layout == "packed":
                tensors = [x[self.valid] for x in self.padded]
            elif layout == "padded":
                tensors = [x.clone() for x in self.padded]
            else:
                tensors = [x.transpose(1, 2).contiguous() for x in self.padded]
            self._in_layout[layout] = [*(x.requires_grad_() for x in tensors[:3]), tensors[3]]
        return self._in_layout[layout]

    @cached_property
    def sample(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Two pairs (sequence, head), whose results are checked.

        The longest sequence with head 0, and the last of the shortest sequences with the last head.
        """
        lengths = np.asarray(self.case.lengths)
        last_shortest = len(lengths) - 1 - int(lengths[::-1].argmin())
        return (int(lengths.argmax()), 0), (last_shortest, self.case.heads - 1)

    def one_head(self, tensor: Tensor, layout: str, sequence: int, head: int) -> Tensor:
        """Return one sequence and head of a tensor in ``layout``, (n, dim) float64."""
        n = self.case.lengths[sequence]
        if layout == "packed":
            start = sum(self.case.lengths[:sequence])
            return tensor[start : start + n, head].double()
        rows = tensor[sequence, :n, head] if layout == "padded" else tensor[sequence, head, :n]
        return rows.double()

    def largest_error(
        self, attention: str, layout: str, output: Tensor, gradients: tuple[Tensor, ...]
    ) -> tuple[float, str]:
        """Return the largest relative error in the sample, and the name of its tensor.

        Output and gradients of q, k and v are compared with float64. NaN if an error is NaN.
        """
        tensors = {"output": output} | dict(zip(("dQ", "dK", "dV"), gradients, strict=True))
        errors = []
        for pair, all_expected in zip(self.sample, self.expected(attention), strict=True):
            for (name, tensor), expected in zip(tensors.items(), all_expected, strict=True):
                actual = self.one_head(tensor.detach(), layout, *pair)
                errors.append((relative_error(actual, expected), name))
        return max(errors, key=lambda error: math.inf if math.isnan(error[0]) else error[0])

    def expected(self, attention: str) -> list[list[Tensor]]:
        """Return the correct output, dQ, dK and dV of each pair in ``sample``, (n, dim) float64."""
        if attention not in self._expected:
            kind, scale = cast(Kind, attention), self.case.head_dimension**-0.5
            self._expected[attention] = []
            for pair in self.sample:
                q, k, v, grad = (self.one_head(x, "padded", *pair)[:, None] for x in self.padded)
                problem = make_packed_problem(torch.tensor([0, len(q)]), len(q), scale, kind)
                output = reference.forward(q, k, v, problem)
                gradients = reference.backward(grad, q, k, v, problem)[:3]
                self._expected[attention].append([x[:, 0] for x in (output, *gradients)])
        return self._expected[attention]


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference divided by the norm of ``expected``."""
    return float((actual - expected).norm() / expected.norm().clamp_min(1e-300))
