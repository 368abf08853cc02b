"""Batches of cells with simulated lengths, for benchmarks that need no token store."""

import math
from collections.abc import Iterator

import numpy as np

from scsigmoid.config.schema import ThroughputBenchmark, Training, TrainingBenchmark
from scsigmoid.seeds import derive
from scsigmoid.tokens.vocabulary import SPECIAL
from scsigmoid.training.batches import Batch, Masking, pack_genes


def simulated_batches(
    settings: ThroughputBenchmark | TrainingBenchmark,
    context: int,
    training: Training,
    seed: int,
) -> Iterator[Batch]:
    """Endless batches of random genes with log-normal lengths, cut at the context.

    They depend on the settings, the seed and the context alone, so all that is compared meets the
    same ones.
    """
    generator = np.random.default_rng(derive(seed, "throughput", context))
    step = 0
    while True:
        step += 1
        drawn = generator.lognormal(
            math.log(settings.median_length), settings.sigma_length, settings.cells_per_gpu
        )
        lengths = np.clip(np.rint(drawn), 1, context - 1).astype(np.int64)
        genes = generator.integers(len(SPECIAL), settings.vocabulary, lengths.sum())
        masking = Masking(
            seed=derive(seed, "masks"),
            draw=step,
            fraction=training.mask_fraction,
            replacement=training.mask_replacement,
            vocabulary_size=settings.vocabulary,
        )
        yield pack_genes(genes, lengths, np.arange(settings.cells_per_gpu), masking)
