"""The batches that the kernel benchmark times, and the operations that they need."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.seeds import derive

#: The benchmark has a seed of its own: its inputs are part of its definition.
SEED = 0


@dataclass(frozen=True)
class Case:
    """One batch at one head dimension.

    Attributes:
        batch: ``paper`` (a shape of the paper), ``jagged`` (lengths of cells, Fig. 1) or ``even``
            (equal lengths that need as many operations as the jagged batch).
        head_dimension: D.
        heads: H.
        length: tokens of a sequence, padding included.
        lengths: valid tokens of each sequence.
        padding: share of padding as the paper names it; 0 for ``jagged`` and ``even``.
    """

    batch: str
    head_dimension: int
    heads: int
    length: int
    lengths: tuple[int, ...]
    padding: float = 0.0

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Valid tokens."""
        return sum(self.lengths)

    @property
    def uneven(self) -> bool:
        """Whether a padded layout holds padding."""
        return any(n != self.length for n in self.lengths)

    def flops(self, direction: str) -> float:
        """Operations on valid tokens: 4 n^2 H D forward (appendix "FLOP Calculation").

        2.5 times that backward: two matrix products forward, five backward, one of them the
        scores again.
        """
        return self.matrix_products(5 if direction == "backward" else 2)

    def matrix_products(self, count: int, *, padded: bool = False) -> float:
        """Operations of ``count`` products of size n x n x D in each sequence and head.

        Args:
            count: number of products.
            padded: whether they also cover the padding.
        """
        squares = sum((self.length if padded else n) ** 2 for n in self.lengths)
        return 2.0 * count * self.heads * self.head_dimension * squares


def groups(settings: KernelBenchmark) -> list[tuple[Case, ...]]:
    """All batches; those of a group are compared with each other and timed in the same turns."""
    found: list[tuple[Case, ...]] = []
    for dimension in settings.head_dimensions:
        heads = settings.hidden // dimension
        found += [
            tuple(
                paper_case(dimension, heads, length, settings.tokens // length, padding)
                for padding in settings.padding
            )
            for length in settings.lengths
        ]
        if settings.jagged:
            found.append(jagged_cases(dimension, heads, settings))
    return found


def paper_case(dimension: int, heads: int, length: int, sequences: int, padding: float) -> Case:
    """A shape of the paper: lengths uniform between (1 - p) L and L.

    So the published benchmark draws them: "25 % padding" is 12.5 % on average.  One is drawn from
    each of as many equal parts of that range as there are sequences, in shuffled order: a single
    draw of few sequences says little of the distribution.
    """
    generator = np.random.default_rng(derive(SEED, "lengths", length, sequences))
    places = (generator.permutation(sequences) + generator.random(sequences)) / sequences
    lengths = np.rint(length * (1 - padding * (1 - places))).astype(int)
    return Case("paper", dimension, heads, length, tuple(max(1, int(n)) for n in lengths), padding)


def jagged_cases(dimension: int, heads: int, settings: KernelBenchmark) -> tuple[Case, Case]:
    """Sequences as long as cells (Fig. 1), and equal ones with the same sum of n^2."""
    lengths = cell_lengths(
        settings.tokens, settings.median_length, settings.sigma_length, max(settings.lengths)
    )
    work = sum(n * n for n in lengths)
    # As many tokens too, as far as whole sequences allow.
    count = max(1, round(sum(lengths) ** 2 / work))
    equal = max(1, round(math.sqrt(work / count)))
    return (
        Case("jagged", dimension, heads, max(lengths), lengths),
        Case("even", dimension, heads, equal, (equal,) * count),
    )


def cell_lengths(tokens: int, median: float, sigma: float, longest: int) -> tuple[int, ...]:
    """Evenly spaced quantiles of a log-normal distribution, cut at ``longest``, in shuffled order.

    As many as bring their sum nearest to ``tokens``.
    """

    def quantiles(count: int) -> list[int]:
        normal = [NormalDist().inv_cdf((rank + 0.5) / count) for rank in range(count)]
        return [max(1, min(longest, round(median * math.exp(sigma * z)))) for z in normal]

    count = 1
    while sum(quantiles(count)) < tokens:
        count += 1
    near = [quantiles(number) for number in (count - 1, count) if number]
    chosen = min(near, key=lambda lengths: abs(sum(lengths) - tokens))
    generator = np.random.default_rng(derive(SEED, "cells", len(chosen)))
    return tuple(chosen[place] for place in generator.permutation(len(chosen)))
