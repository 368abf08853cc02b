"""The training benchmark (section "Training Speed Performance"): one encoder, several kernels.

The same encoder with the same weights and cells is trained with each attention kernel, over packed
cells and over cells padded to the context.  All of a context lie on one device in one process and
are timed in interleaved rounds, so that what the machine does meanwhile meets all of them alike.
"""

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from scsigmoid.benchmarks.cases import TOLERANCE, Case, dtype_of, relative_error
from scsigmoid.benchmarks.compiling import bound_choices, compile_ahead, share_compiled_kernels
from scsigmoid.benchmarks.machine import identity, machine_facts
from scsigmoid.benchmarks.providers import PROVIDERS
from scsigmoid.benchmarks.rows import Sweep, TrainingRow, median_interval
from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.benchmarks.timing import Stopwatch, Wrong, noted, release, rounds
from scsigmoid.benchmarks.variants import SETTING, Variant, chosen_variants
from scsigmoid.config.schema import Architecture, Size, Training, TrainingBenchmark
from scsigmoid.files import write_json
from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.sizes import EncoderSettings, count_flops, count_parameters
from scsigmoid.progress import log, track
from scsigmoid.seeds import derive
from scsigmoid.training.batches import Batch
from scsigmoid.training.devices import device_name, peak_flops, resolve_device, synchronise
from scsigmoid.training.step import Trainer, autocast, summed_loss

CPU_NOTE = "CPU, tiny shapes, not compiled: not comparable with a GPU"
# Steps before the first round: compilation, choices among kernels, the allocator.
FIRST_STEPS = 4
# The 99 % interval of a median needs eight readings.
LEAST_ROUNDS = 8
PUBLISHED = "triton_sigmoid"
# Steps before those of a round that are timed: after a pause, launching them must catch up first.
LEAD_STEPS = 1


@dataclass
class TimedVariant:
    """A variant at one context, and what was found of it.

    Attributes:
        trainer: None where it cannot be timed; ``note`` says why.
        loss: of the first step.
        error: of the gradient, see :func:`gradient_error`.
        graphs: compiled before the first round.
        recompiled: graphs that were compiled in the rounds.
        memory: most bytes of a step, of this model alone; NaN on a CPU.
        milliseconds: a step's mean time in each round.
    """

    variant: Variant
    trainer: Trainer | None = None
    note: str = ""
    loss: float = math.nan
    error: float = math.nan
    graphs: int = 0
    recompiled: int = 0
    memory: float = math.nan
    milliseconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Kernel and layout, in words."""
        return self.variant.name

    @property
    def is_ours(self) -> bool:
        """Whether the kernel is part of this project."""
        return self.variant.is_ours

    def drop(self, note: str) -> None:
        """Forget the model and all readings; the note says why."""
        self.trainer, self.note = None, note
        self.milliseconds.clear()


@dataclass(frozen=True)
class Conditions:
    """What all entries of a context share.

    Attributes:
        like: the encoder; each entry has its own attention.
        training: the optimiser's settings.
        seed: of weights and dropout.
        device: what computes.
    """

    like: EncoderSettings
    training: Training
    seed: int
    device: torch.device


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
    missing, fails its check or does not fit in memory gets rows whose note says so.  The rows of
    each context are kept beside the output, where a run that was stopped resumes.

    Arguments are those of :func:`~scsigmoid.benchmarks.throughput.run_throughput_benchmark`, but
    for one size.

    Raises:
        UserError: if a GPU is asked for and there is none, for an unknown kernel, or if a kernel
            leaves the GPU unusable.
    """
    torch.set_num_threads(training.threads)
    place = resolve_device(device)
    variants = chosen_variants(settings.kernels, place.type)
    facts = machine_facts(place, "scsigmoid benchmark-training")
    given = [asdict(each) for each in (settings, size, architecture, training)]
    sweep = Sweep(TrainingRow, output_csv, [facts, identity(place), given, seed])
    done = {row.context for row in sweep.rows}
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
        if context not in done
    ]
    errors: dict[Variant, float] = {}
    with published_compiled_beside(variants, each, settings.cells_per_gpu, place) as published:
        for conditions in track(each, label="contexts"):
            sweep.add(run_context(conditions, variants, settings, errors, published))
            release(place)
    write_json(output_json, facts)
    sweep.finish()


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
        Case("jagged", like.head_dimension, like.heads, like.context, (like.context - 1,) * cells)
        for like in (conditions.like for conditions in each)
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
        begin = time.perf_counter()
        with noted(entry, SETTING, device):
            prepare(entry, conditions, weights, first, errors)
            log(f"{entry.name}: ready in {time.perf_counter() - begin:.0f} s")
    work = time_rounds(entries, conditions, settings, batches)
    rows = [row_of(entry, conditions, settings, work) for entry in entries]
    report(rows, settings.confidence)
    return rows


def prepare(
    entry: TimedVariant,
    conditions: Conditions,
    weights: Mapping[str, Tensor],
    batches: Sequence[Batch],
    errors: dict[Variant, float],
) -> None:
    """Check an entry's attention, make its model and take its first steps.

    Args:
        entry: gets a trainer.
        conditions: of the context.
        weights: initial weights of all.
        batches: packed batches of the first steps, in which everything is compiled and chosen.
        errors: of the variants that were checked at an earlier context; this one's is added.

    Raises:
        Unavailable: if this device, or what is installed, has no such kernel.
        Wrong: if it computes something else.
    """
    variant, device = entry.variant, conditions.device
    if variant not in errors:
        errors[variant] = gradient_error(variant, conditions, batches[0])
    entry.error = errors[variant]
    # Also where it is NaN.
    if not entry.error <= TOLERANCE[dtype_of(device)]:
        raise Wrong(f"a gradient has a relative error of {entry.error:.2g}")
    before = compiled_graphs(device)
    encoder = variant.encoder(conditions.like, device)
    encoder.load_state_dict(weights)
    trainer = Trainer(encoder, conditions.training, conditions.seed, device)
    losses = [
        trainer.step(step, [variant.batch(batch, conditions.like.context)]).loss
        for step, batch in enumerate(batches, start=1)
    ]
    synchronise(device)
    entry.trainer, entry.loss = trainer, float(losses[0])
    entry.graphs = compiled_graphs(device) - before


def gradient_error(variant: Variant, conditions: Conditions, batch: Batch) -> float:
    """Relative error of a gradient: that of q, k and v's projection in an encoder of one layer.

    Compared with plain PyTorch in float32 over packed cells.  Two cells, no dropout, not compiled
    but for the kernel: what is checked is that the attention is the right one, padding included.
    """
    cells = first_cells(batch, 2)
    like = replace(conditions.like, layers=1, dropout=0.0)
    torch.manual_seed(conditions.seed)
    plain = Variant("reference", variant.attention, (conditions.device.type,))
    right = plain.encoder(like, conditions.device)
    encoder = variant.encoder(like, conditions.device)
    encoder.load_state_dict(right.state_dict())
    own = variant.batch(cells, like.context).to(conditions.device)
    with autocast(conditions.device):
        found = projection_gradient(encoder, own)
    return relative_error(found, projection_gradient(right, cells.to(conditions.device)))


def first_cells(batch: Batch, count: int) -> Batch:
    """The first cells of a packed batch."""
    tokens = int(batch.cu_seqlens[count])
    masked = int(torch.searchsorted(batch.masked, tokens))
    return replace(
        batch,
        tokens=batch.tokens[:tokens],
        positions=batch.positions[:tokens],
        cu_seqlens=batch.cu_seqlens[: count + 1],
        masked=batch.masked[:masked],
        targets=batch.targets[:masked],
        cells=batch.cells[:count],
    )


def projection_gradient(encoder: Encoder, batch: Batch) -> Tensor:
    """Gradient of the loss by the weights that make q, k and v in the first layer, float64."""
    embedded = encoder.embed(batch.tokens, batch.positions)
    mask = encoder.mask(embedded, batch.cu_seqlens)
    summed_loss(encoder, embedded, mask, batch).backward()
    first = encoder.blocks[0]
    assert isinstance(first, Block)
    assert first.qkv.weight.grad is not None
    return first.qkv.weight.grad.double()


def time_steps(
    entry: TimedVariant, conditions: Conditions, batches: Sequence[Batch], first_step: int
) -> None:
    """Train on batches in the entry's layout; a reading is of all but the first ``LEAD_STEPS``."""
    trainer, device = entry.trainer, conditions.device
    assert trainer is not None
    trainer.prepare(batches)
    before = compiled_graphs(device)
    memory = MemoryOf(trainer, device)
    watch = Stopwatch(device)
    for index, batch in enumerate(batches):
        if index == LEAD_STEPS:
            watch.mark()
        trainer.step(first_step + index, [batch])
    watch.mark()
    (seconds,) = watch.seconds()
    entry.milliseconds.append(seconds / (len(batches) - LEAD_STEPS) * 1e3)
    entry.recompiled += compiled_graphs(device) - before
    entry.memory = memory.most(entry.memory)


class MemoryOf:
    """The memory that one model's steps need, others lying on the same GPU."""

    def __init__(self, trainer: Trainer, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None
        if self._device is not None:
            held: list[Tensor] = [*trainer.encoder.parameters()]
            held += [p.grad for p in trainer.encoder.parameters() if p.grad is not None]
            for state in trainer.optimiser.state.values():
                held += [value for value in state.values() if isinstance(value, Tensor)]
            own = sum(tensor.nbytes for tensor in held)
            self._others = torch.cuda.memory_allocated(self._device) - own
            torch.cuda.reset_peak_memory_stats(self._device)

    def most(self, so_far: float) -> float:
        """The most bytes, of now or before; NaN on a CPU."""
        if self._device is None:
            return math.nan
        peak = float(torch.cuda.max_memory_allocated(self._device) - self._others)
        return peak if math.isnan(so_far) else max(so_far, peak)


def compiled_graphs(device: torch.device) -> int:
    """Graphs that ``torch.compile`` has made in this process; on a CPU nothing is compiled."""
    if device.type != "cuda":
        return 0
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


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
    step = FIRST_STEPS + 1
    work: list[Work] = []
    for order in rounds(len(entries), LEAST_ROUNDS, settings.rounds, settings.seconds):
        packed = list(islice(batches, LEAD_STEPS + settings.steps))
        layouts: dict[str, list[Batch]] = {}
        for place in order:
            entry = entries[place]
            if entry.trainer is None:
                continue
            variant = entry.variant
            if variant.layout not in layouts:
                layouts[variant.layout] = laid_out(variant, packed, conditions)
            with noted(entry, SETTING, conditions.device):
                time_steps(entry, conditions, layouts[variant.layout], step)
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
    value, low, high = median_interval(readings, settings.confidence)
    tokens_per_second = utilisation = math.nan
    if readings:
        seconds = [steps * reading / 1e3 for reading in readings]
        tokens_per_second = median_rate([each.tokens for each in work], seconds)
        peak = peak_flops(device)
        if peak is not None:
            utilisation = median_rate([each.flops for each in work], seconds) / peak
    tokens = statistics.fmean(each.tokens for each in work) / steps if work else math.nan
    computed = tokens if variant.layout == "packed" else float(cells * like.context)
    return TrainingRow(
        size=settings.size,
        parameters=count_parameters(like),
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
    """Log the rate of each row, and the first one's over it; or why there is none."""
    timed = [row for row in rows if row.readings]
    for row in rows:
        words = f"context {row.context}, {row.kernel}, {row.layout}: "
        if not row.readings:
            log(words + row.note)
            continue
        words += (
            f"{row.cells_per_second:.4g} cells/s, {row.milliseconds:.4g} ms a step, "
            f"{row.rounds} rounds"
        )
        if not math.isnan(row.mfu):
            words += f", MFU {row.mfu:.1%}, {row.peak_memory_gb:.1f} GB"
        if row.recompiled:
            words += f", {row.recompiled} recompiled"
        if row is not timed[0]:
            value, low, high = median_interval(timed[0].over(row), confidence)
            words += f"; {timed[0].kernel} over it {value:.3f} [{low:.3f}, {high:.3f}]"
        log(words)
