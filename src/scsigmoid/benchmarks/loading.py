"""How fast batches are prepared, with nobody who computes: the loader of training alone."""

import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from scsigmoid.benchmarks.machine import machine_facts
from scsigmoid.benchmarks.simulated_tokens import write_simulated_tokens
from scsigmoid.config.schema import Architecture, Size, ThroughputBenchmark, Training
from scsigmoid.files import write_json
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.progress import log
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training.loading import GlobalBatches, ahead

CELLS = 32_768
ROUNDS = 5
STEPS = 20


def run_loading_benchmark(
    settings: ThroughputBenchmark,
    size: Size,
    architecture: Architecture,
    training: Training,
    context: int,
    seed: int,
    output: Path,
    *,
    cells: int = CELLS,
    steps: int = STEPS,
) -> None:
    """Measure the rate of one process's loader on simulated cells of the paper's lengths.

    The cells lie in a token store on disk; each is read for the first time, as in training, so its
    checksum is verified too.  The file gets two rates a round, their medians and the machine: cells
    a second, and cells a second of computing time, which other work on the machine does not lower.

    Args:
        settings: vocabulary and lengths of the cells.
        size: the encoder that the work is divided for.
        architecture: what all encoders share.
        training: masking, batch size and ``workers``.
        context: longest sequence in tokens.
        seed: of lengths, cells and masks.
        output: the JSON file.
        cells: cells of the store.
        steps: global batches of a round.
    """
    encoder = EncoderSettings.of(size, architecture, "sigmoid", context, settings.vocabulary)
    with TemporaryDirectory() as folder:
        write_simulated_tokens(Path(folder), settings, cells, context - 1, seed)
        store = TokenStore.open(Path(folder) / "tokens")
        batches = GlobalBatches(store, encoder, training, seed)
        rates, core_rates = zip(*rounds(batches, steps, training.workers), strict=True)
    rate, core_rate = statistics.median(rates), statistics.median(core_rates)
    log(
        f"{rate:,.0f} cells/s with {training.workers} workers, {core_rate:,.0f} for each core kept "
        f"busy, context {context}"
    )
    write_json(
        output,
        {
            "cells_per_second": rates,
            "median_cells_per_second": rate,
            "cells_per_core_second": core_rates,
            "median_cells_per_core_second": core_rate,
            "workers": training.workers,
            "context": context,
            "global_batch": training.global_batch,
            "simulated": True,
            "machine": machine_facts(torch.device("cpu"), "scsigmoid benchmark-loading"),
        },
    )


def rounds(batches: GlobalBatches, steps: int, workers: int) -> Iterator[tuple[float, float]]:
    """Cells a second, by the clock and by the process's computing time, in each of ``ROUNDS``."""
    every = range(1, (ROUNDS + 1) * steps + 1)
    with closing(ahead(batches, every, workers, torch.device("cpu"))) as shares:
        for number in range(ROUNDS + 1):
            begin, busy = time.perf_counter(), time.process_time()
            count = sum(len(next(shares).lengths) for _ in range(steps))
            if number:  # the first round warms up
                yield count / (time.perf_counter() - begin), count / (time.process_time() - busy)
