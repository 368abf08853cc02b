"""Simulated cells with the paper's distribution of lengths: batches, and token stores."""

import math
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

from scsigmoid.config.schema import Training, TrainingBenchmark
from scsigmoid.model.batches import Batch, pack_genes
from scsigmoid.model.masking import Masking
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import grouped, store_schema, write_shards
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary


def simulated_batches(
    settings: TrainingBenchmark, context: int, cells: int, training: Training, seed: int
) -> Iterator[Batch]:
    """Yield batches of random genes, endlessly. Lengths are log-normal, cut to fit the context.

    Batches depend only on the arguments, so all kernels see the same batches.
    """
    generator = np.random.default_rng(derive(seed, "throughput", context))
    for step in count(1):
        drawn = generator.lognormal(math.log(settings.median_length), settings.sigma_length, cells)
        lengths = np.clip(np.rint(drawn), 1, context - 1).astype(np.int64)  # without [CLS]
        genes = generator.integers(len(SPECIAL), settings.vocabulary, lengths.sum())
        masking = Masking(
            seed=derive(seed, "masks"),
            draw=step,
            fraction=training.mask_fraction,
            replacement=training.mask_replacement,
            vocabulary_size=settings.vocabulary,
        )
        offsets = np.append(0, np.cumsum(lengths))
        yield pack_genes(genes, offsets, np.arange(cells), masking)


SHORTEST, LONGEST = 200, 16_000  # minimum and maximum number of expressed genes of a cell
TYPES = 32
CELLS_A_BATCH = 1024  # cells of a record batch
# Each cell type has an order of genes. A cell that expresses n genes draws them from the first
# n / (1 - MISSING) genes of this order. Then noise is added to the ranks of the genes, with a
# standard deviation of BLUR times the number of genes to draw from.
MISSING = 0.3
BLUR = 0.1


def write_simulated_tokens(
    folder: Path, settings: TrainingBenchmark, cells: int, longest: int, seed: int
) -> None:
    """Write ``tokens/`` and ``vocabulary.parquet``, for cells of at most ``longest`` tokens."""
    size = settings.vocabulary
    names = (*SPECIAL, *(f"SIMULATED{gene:06d}" for gene in range(size - len(SPECIAL))))
    vocabulary = Vocabulary(names, names, cells=np.full(size, cells), medians=np.ones(size))
    vocabulary.write(folder / "vocabulary.parquet")
    write_shards(
        folder / "tokens",
        grouped(simulated_cells(settings, cells, longest, seed), cells),
        {
            "vocabulary": vocabulary.fingerprint,
            "vocabulary_size": size,
            "maximum_length": longest,
            "shard_cells": cells,
            "label": "",
        },
    )


def simulated_cells(
    settings: TrainingBenchmark, cells: int, longest: int, seed: int
) -> Iterator[pa.RecordBatch]:
    """Yield cells in the columns of a token store, with log-normal numbers of genes as in Fig. 1.

    Cells keep their first ``longest`` tokens. Orders of genes of different types are correlated.
    """
    schema = store_schema(settings.vocabulary)
    generator = np.random.default_rng(derive(seed, "simulated tokens"))
    genes = settings.vocabulary - len(SPECIAL)
    common = generator.normal(size=genes)
    orders = [np.argsort(common + 2 * generator.normal(size=genes)) for _ in range(TYPES)]
    log_median, sigma = math.log(settings.median_length), settings.sigma_length
    most_genes = min(LONGEST, int(genes * (1 - MISSING)))
    for start in range(0, cells, CELLS_A_BATCH):
        size = min(CELLS_A_BATCH, cells - start)
        drawn = np.rint(generator.lognormal(log_median, sigma, size))
        gene_counts = np.clip(drawn, min(SHORTEST, most_genes), most_genes).astype(np.int32)
        types = generator.integers(TYPES, size=size)
        tokens = [
            len(SPECIAL) + draw_genes(orders[kind], number, generator)[:longest]
            for kind, number in zip(types.tolist(), gene_counts.tolist(), strict=True)
        ]
        offsets = np.cumsum([0, *map(len, tokens)], dtype=np.int32)
        ids = pa.array(np.concatenate(tokens)).cast(schema.field("input_ids").type.value_type)
        columns = {
            "input_ids": pa.ListArray.from_arrays(offsets, ids),
            "length": np.diff(offsets),
            "genes": gene_counts,
            "cell": np.arange(start, start + size),
            "cell_type": pa.array([f"type {kind}" for kind in types]),
            "is_primary": pa.array([True] * size),
        }
        empty = pa.array([""] * size)
        yield pa.RecordBatch.from_arrays(
            [pa.array(columns.get(field.name, empty)).cast(field.type) for field in schema],
            schema=schema,
        )


def draw_genes(order: np.ndarray, number: int, generator: np.random.Generator) -> np.ndarray:
    """Draw ``number`` genes of a cell from the first genes of its type's ``order``.

    Return the genes in this order, except for noise.
    """
    drawn_from = math.ceil(number / (1 - MISSING))
    ranks = np.sort(generator.permutation(drawn_from)[:number])
    noisy_ranks = ranks + generator.normal(scale=BLUR * drawn_from, size=number)
    return order[ranks[np.argsort(noisy_ranks)]]
