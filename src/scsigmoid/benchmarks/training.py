"""The training benchmark (section "Training Speed Performance"): one encoder, several kernels.

The same encoder with the same weights and cells is trained with each attention kernel, over packed
cells and over cells padded to the context.  All of a context lie on one device in one process and
are timed in interleaved rounds, so that what the machine does meanwhile meets all of them alike.
"""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from scsigmoid.benchmarks.cases import SEED, Case
from scsigmoid.benchmarks.compiling import bound_choices, compile_ahead, share_compiled_kernels
from scsigmoid.benchmarks.machine import attention_versions, machine_facts
from scsigmoid.benchmarks.providers import PROVIDERS
from scsigmoid.benchmarks.rows import TrainingRow, median_interval, write_rows
from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.benchmarks.timing import release
from scsigmoid.benchmarks.variants import (
    LEAD_STEPS,
    Conditions,
    TimedVariant,
    Variant,
    chosen_variants,
    prepare,
    time_round,
)
from scsigmoid.config.schema import Architecture, Size, Training, TrainingBenchmark
from scsigmoid.files import write_json
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings, count_flops, count_parameters
from scsigmoid.progress import log, track
from scsigmoid.seeds import derive
from scsigmoid.training.batches import Batch
from scsigmoid.training.devices import device_name, peak_flops, resolve_device

CPU_NOTE = "CPU, tiny shapes, not compiled: not comparable with a GPU"
# Steps before the first round: compilation, choices among kernels, the allocator.
FIRST_STEPS = 4
# The 99 % interval of a median needs eight readings.
LEAST_ROUNDS = 8
PUBLISHED = "triton_sigmoid"


@dataclass(frozen=True)
class Work:
    """What the timed steps of a round compute: valid tokens, and operations counted on them."""

    tokens: int
    flops: int


def run_training_benchmark(
    settings: TrainingBenchmark,
    size: Size,
    architecture: Architecture,
    training: Training,
    seed: int,
    device: str,
    output_csv: str | Path,
    output_json: str | Path,
) -> None:
    """Time training steps of all kernels, context by context.

    bfloat16 and ``torch.compile`` on a GPU; float32, not compiled, on a CPU.  A kernel that is
    missing, fails its check or does not fit in memory gets rows whose note says so.  The table is
    written anew after each context, so a run that is stopped leaves what it has measured.

    Args:
        settings: contexts, kernels and repetitions.
        size: the encoder's dimensions.
        architecture: what all encoders share.
        training: the optimiser's settings and the masking.
        seed: of weights, lengths, cells, masks and dropout.
        device: ``auto``, ``cpu`` or ``cuda``.
        output_csv: one row per context, kernel and layout.
        output_json: facts of the machine.

    Raises:
        UserError: if a GPU is asked for and there is none, for an unknown kernel, or if a kernel
            leaves the GPU unusable.
    """
    torch.set_num_threads(training.threads)
    place = resolve_device(device)
    variants = chosen_variants(settings.kernels, place.type)
    facts = machine_facts(place, "scsigmoid benchmark-training") | attention_versions()
    write_json(output_json, facts)
    if place.type == "cuda":
        # Each variant has a graph, those of padded cells one for each context.
        torch._dynamo.config.recompile_limit = max(8, 2 * len(variants) * len(settings.contexts))
    each = [
        Conditions(
            EncoderSettings.of(size, architecture, "sigmoid", context, settings.vocabulary),
            training,
            seed,
            place,
        )
        for context in settings.contexts
    ]
    rows: list[TrainingRow] = []
    errors: dict[Variant, float] = {}
    with published_compiled_beside(variants, each, settings.cells_per_gpu, place) as published:
        for conditions in track(each, label="contexts"):
            rows += run_context(conditions, variants, settings, errors, published)
            write_rows(output_csv, TrainingRow, rows)
            release(place)


@contextmanager
def published_compiled_beside(
    variants: Sequence[Variant], each: Sequence[Conditions], cells: int, device: torch.device
) -> Iterator[Future[None] | None]:
    """Compile the many configurations of triton-sigmoid while other models are made ready.

    Yields:
        What is done when they are compiled; None where nothing is to be.
    """
    if device.type != "cuda" or not any(variant.kernel == PUBLISHED for variant in variants):
        yield None
        return
    share_compiled_kernels()
    bound_choices()
    providers = [provider for provider in PROVIDERS if provider.name == PUBLISHED]
    cases = [
        Case(
            "jagged",
            conditions.like.head_dimension,
            conditions.like.heads,
            conditions.like.context,
            (conditions.like.context - 1,) * cells,
        )
        for conditions in each
    ]
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(compile_ahead, cases, providers, device, torch.bfloat16)


def run_context(
    conditions: Conditions,
    variants: Sequence[Variant],
    settings: TrainingBenchmark,
    errors: dict[Variant, float],
    published: Future[None] | None,
) -> list[TrainingRow]:
    """The rows of one context."""
    like, device = conditions.like, conditions.device
    batches = simulated_batches(settings, like.context, conditions.training, conditions.seed)
    torch.manual_seed(derive(conditions.seed, "weights"))
    with device:
        weights = Encoder(like).state_dict()
    first = list(islice(batches, FIRST_STEPS))
    entries = [TimedVariant(variant) for variant in variants]
    for entry in entries:
        if entry.variant.kernel == PUBLISHED and published is not None:
            # What was not compiled there is compiled here.
            failed = published.exception()
            if failed is not None:
                log(f"compiling {PUBLISHED} ahead failed: {failed}")
        prepare(entry, conditions, weights, first, errors)
    work = time_rounds(entries, conditions, settings, batches)
    rows = [row_of(entry, conditions, settings, work) for entry in entries]
    report(rows, settings.confidence)
    return rows


def time_rounds(
    entries: Sequence[TimedVariant],
    conditions: Conditions,
    settings: TrainingBenchmark,
    batches: Iterator[Batch],
) -> list[Work]:
    """Time the models in interleaved rounds, each with an order and cells of its own.

    Ends after ``seconds`` if the rounds take longer.

    Returns:
        What each round computed.
    """
    generator = np.random.default_rng(derive(SEED, "turns"))
    step, end = FIRST_STEPS + 1, time.perf_counter() + settings.seconds
    work: list[Work] = []
    for number in range(settings.rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        packed = list(islice(batches, LEAD_STEPS + settings.steps))
        layouts: dict[str, list[Batch]] = {}
        for place in generator.permutation(len(entries)):
            entry = entries[place]
            if entry.trainer is None:
                continue
            variant = entry.variant
            if variant.layout not in layouts:
                layouts[variant.layout] = laid_out(variant, packed, conditions)
            time_round(entry, conditions, layouts[variant.layout], step)
        work.append(counted(packed[LEAD_STEPS:], conditions.like))
        step += len(packed)
    return work


def laid_out(variant: Variant, packed: Sequence[Batch], conditions: Conditions) -> list[Batch]:
    """Batches in a variant's layout; for a GPU in page-locked memory, as training's loader does."""
    batches = [variant.batch(batch, conditions.like.context) for batch in packed]
    return [batch.pinned() for batch in batches] if conditions.device.type == "cuda" else batches


def counted(batches: Sequence[Batch], encoder: EncoderSettings) -> Work:
    """The work of packed batches."""
    return Work(
        tokens=sum(len(batch.tokens) for batch in batches),
        flops=sum(
            count_flops(encoder, torch.diff(batch.cu_seqlens).tolist(), len(batch.masked))
            for batch in batches
        ),
    )


def row_of(
    entry: TimedVariant, conditions: Conditions, settings: TrainingBenchmark, work: Sequence[Work]
) -> TrainingRow:
    """The row of one entry."""
    variant, like = entry.variant, conditions.like
    device, steps, cells = device_name(conditions.device), settings.steps, settings.cells_per_gpu
    readings = entry.milliseconds
    value = low = high = tokens_per_second = utilisation = math.nan
    if readings:
        value, low, high = median_interval(readings, settings.confidence)
        seconds = [steps * reading / 1e3 for reading in readings]
        tokens_per_second = median_rate([each.tokens for each in work], seconds)
        peak = peak_flops(device)
        if peak is not None:
            utilisation = median_rate([each.flops for each in work], seconds) / peak
    tokens = statistics.fmean(each.tokens for each in work) / steps if work else math.nan
    computed = tokens if variant.layout == "packed" else float(cells * like.context)
    return TrainingRow(
        size=settings.size,
        parameters=count_parameters(like).total,
        context=like.context,
        attention=variant.attention,
        kernel=variant.kernel,
        layout=variant.layout,
        device=device,
        cells_per_step=cells,
        tokens_per_step=tokens,
        padding=1 - tokens / computed,
        milliseconds=value,
        milliseconds_low=low,
        milliseconds_high=high,
        cells_per_second=cells * 1e3 / value,
        cells_per_second_low=cells * 1e3 / high,
        cells_per_second_high=cells * 1e3 / low,
        tokens_per_second=tokens_per_second,
        mfu=utilisation,
        peak_memory_gb=entry.memory / 1e9,
        graphs=entry.graphs,
        recompiled=entry.recompiled,
        loss=entry.loss,
        relative_error=entry.error,
        rounds=len(readings),
        note=entry.note or (CPU_NOTE if conditions.device.type == "cpu" else ""),
        readings=" ".join(f"{reading:.6g}" for reading in readings),
    )


def median_rate(amounts: Sequence[int], seconds: Sequence[float]) -> float:
    """Median over the rounds of an amount over its time."""
    return statistics.median(amount / time for amount, time in zip(amounts, seconds, strict=False))


def report(rows: Sequence[TrainingRow], confidence: float) -> None:
    """Log the rate of each row that has one, and the first one's over it."""
    timed = [row for row in rows if row.readings]
    for row in timed:
        words = (
            f"context {row.context}, {row.kernel}, {row.layout}: {row.cells_per_second:.4g} "
            f"cells/s, {row.milliseconds:.4g} ms a step, {row.rounds} rounds"
        )
        if not math.isnan(row.mfu):
            words += f", MFU {row.mfu:.1%}, {row.peak_memory_gb:.1f} GB"
        if row.recompiled:
            words += f", {row.recompiled} recompiled"
        if row is not timed[0]:
            value, low, high = median_interval(timed[0].over(row), confidence)
            words += f"; {timed[0].kernel} over it {value:.3f} [{low:.3f}, {high:.3f}]"
        log(words)
