"""The training benchmark (section "Training Speed Performance"): one encoder, several kernels.

The training step of this project is timed with each attention kernel, over packed cells and over
cells padded to the context. A group is a model size, context and number of cells. The kernels of a
group share one process and are timed in interleaved rounds on the same simulated cells.

The models of a group also share weights and optimizer state, so that many fit in memory. The
learning rate is 0, so that steps do not change the weights.
"""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path

import torch
from torch import Tensor

from scsigmoid.benchmarks.cases import TOLERANCE, dtype_of, relative_error
from scsigmoid.benchmarks.compiling import compile_steps_ahead, limit_autotuning
from scsigmoid.benchmarks.conditions import STEP_SETTINGS, Conditions
from scsigmoid.benchmarks.machine import machine_facts, machine_identity
from scsigmoid.benchmarks.rows import Sweep, TrainingGroup, TrainingRow, median_interval
from scsigmoid.benchmarks.timing import Stopwatch, WrongResult, record_failure, release, rounds
from scsigmoid.benchmarks.variants import KERNELS_SETTING, Variant, choose_variants
from scsigmoid.config.schema import Architecture, Size, Training, TrainingBenchmark
from scsigmoid.model.batches import Batch
from scsigmoid.model.devices import autocast, device_name, peak_flops, resolve_device, synchronize
from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.loss import summed_loss
from scsigmoid.model.sizes import EncoderSettings, count_flops, count_parameters
from scsigmoid.progress import log
from scsigmoid.seeds import derive
from scsigmoid.training.step import Trainer

CPU_NOTE = "CPU, tiny shapes, not compiled: hours of this CPU, not comparable with a GPU"
HOST_NOTE = "Bound by the host: the GPU waits for kernel launches"
# Untimed steps before the first round, in which kernels are compiled and chosen.
FIRST_STEPS = 4
# The 99 % interval of a median needs eight readings.
LEAST_ROUNDS = 8
# Untimed steps at the beginning of each round, because the GPU was idle before them.
LEAD_STEPS = 1
# A model is bound by the host if the GPU ends a round less than this many steps after the host's
# last launch. If the GPU waited for launches, only the optimizer's update is left after the last
# one, about a seventh of a step. If it did not, most of a step or more is left.
LEAST_BEHIND = 0.25


@dataclass
class TimedVariant:
    """A variant in one group, and its measurements.

    Attributes:
        trainer: None until the variant is prepared, and if it cannot be timed (see ``note``).
        loss: loss of the first step.
        error: result of :func:`gradient_error`.
        compiled, recompiled: graphs compiled before the first round and during the rounds.
        memory: peak memory of the first steps in bytes, without the memory of other models. NaN on
            a CPU.
        milliseconds: mean time of a step in each round.
        behind: number of steps that the GPU was behind the host at the end of each round.
        graphed: for each timed step, whether a CUDA graph computed the gradient.
    """

    variant: Variant
    trainer: Trainer | None = None
    note: str = ""
    loss: float = math.nan
    error: float = math.nan
    compiled: int = 0
    recompiled: int = 0
    memory: float = math.nan
    milliseconds: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    graphed: list[bool] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def is_ours(self) -> bool:
        return self.variant.is_ours

    def drop(self, note: str) -> None:
        self.trainer, self.note = None, note
        for readings in (self.milliseconds, self.behind, self.graphed):
            readings.clear()


def run_training_benchmark(
    settings: TrainingBenchmark,
    sizes: dict[str, Size],
    architecture: Architecture,
    training: Training,
    seed: int,
    device: str,
    output_csv: str | Path,
    output_json: str | Path,
    seconds: float = math.inf,
) -> None:
    """Time training steps of all kernels, group by group, and project the GPU hours of a corpus.

    On a GPU steps use bfloat16 and ``torch.compile``, on a CPU float32 without compiling. If a
    kernel is missing, fails its check or does not fit in memory, its rows contain the reason in
    ``note``. Rows are saved next to the output after each group, so that a stopped run can resume.

    Args:
        settings: sizes, contexts, cells, kernels and repetitions.
        sizes: dimensions of encoders by name, including the names in ``settings.sizes``.
        architecture: settings that all encoders share.
        training: settings of the optimizer and of masking.
        seed: seed of weights, lengths, cells and masks.
        device: ``auto``, ``cpu`` or ``cuda``.
        output_csv: one row for each size, context, number of cells, kernel and layout.
        output_json: machine, versions and code, and ``not_measured`` (:meth:`Sweep.measure`).
        seconds: seconds after which no further group starts (default: no limit).

    Raises:
        UserError: if a setting or the device is wrong, or a kernel leaves the GPU unusable.
        OwnKernelError: if a kernel of this project fails.
    """
    deadline = time.monotonic() + seconds
    torch.set_num_threads(training.execution.threads)
    torch_device = resolve_device(device)
    variants = choose_variants(settings.kernels, torch_device.type)
    facts = machine_facts(torch_device, "scsigmoid benchmark-training")
    used_sizes = {name: sizes[name].model_dump() for name in settings.sizes}
    sections = [
        settings.model_dump(exclude_defaults=True),
        architecture.model_dump(exclude={"size"}, exclude_defaults=True),
        training.model_dump(include={*STEP_SETTINGS}, exclude_defaults=True),
    ]
    all_settings = [machine_identity(torch_device), sections, used_sizes, seed]
    sweep = Sweep(TrainingRow, output_csv, facts, all_settings)
    done = {row.group for row in sweep.rows}
    unchanging = training.model_copy(update={"learning_rate": 0.0})
    groups = [*product(settings.sizes, settings.cells_per_gpu, settings.contexts)]
    missing: dict[str, Conditions] = {}  # by name of the group
    for size, cells, context in groups:
        group = TrainingGroup(size, context, cells)
        if group not in done:
            encoder = EncoderSettings.of(
                sizes[size], architecture, "sigmoid", context, settings.vocabulary
            )
            missing[f"{size}, context {context}, {cells} cells"] = Conditions(
                group, encoder, settings, unchanging, seed, torch_device
            )
    if torch_device.type == "cuda":
        # By default, torch stops compiling after eight graphs. At most one graph is needed for each
        # variant and group. The 2 is a safety margin.
        torch._dynamo.config.recompile_limit = max(8, 2 * len(variants) * len(groups))
        limit_autotuning()
    # Gradient errors by variant and size.
    errors: dict[tuple[Variant, str], float] = {}

    def run(conditions: Conditions) -> list[TrainingRow]:
        size = conditions.group.size
        same_size = [other for other in missing.values() if other.group.size == size]
        # Compile once per size, before its first group.
        if torch_device.type == "cuda" and conditions is same_size[0]:
            log(f"compiling training steps of {size}")
            compile_steps_ahead(variants, same_size)
        rows = run_group(conditions, variants, errors)
        release(torch_device)
        return rows

    sweep.measure(missing, run, deadline, output_json)


def run_group(
    conditions: Conditions, variants: Sequence[Variant], errors: dict[tuple[Variant, str], float]
) -> list[TrainingRow]:
    """Time the variants of a group, and return their rows. Add gradient errors to ``errors``."""
    batches = conditions.batches()
    torch.manual_seed(derive(conditions.seed, "weights"))
    with conditions.device:
        encoder = Encoder(conditions.encoder)
    # All variants train the weights of this trainer.
    shared = Trainer(encoder, conditions.training, conditions.seed, conditions.device)
    first_batches = list(islice(batches, FIRST_STEPS))
    entries = [TimedVariant(variant) for variant in variants]
    for entry in entries:
        begin = time.perf_counter()
        with record_failure(entry, KERNELS_SETTING, conditions.device):
            prepare(entry, conditions, shared, first_batches, errors)
            log(f"{entry.name}: ready in {time.perf_counter() - begin:.0f} s")
    tokens_and_flops = time_rounds(entries, conditions, batches)
    rows = [make_row(entry, conditions, tokens_and_flops) for entry in entries]
    for row in rows:
        speed = f"{row.cells_per_second:.4g} cells/s, MFU {100 * row.mfu:.1f} %"
        log(
            f"{row.size}, context {row.context}, {row.cells_per_step} cells, {row.kernel}, "
            f"{row.layout}: {'; '.join(filter(None, (speed if row.rounds else '', row.note)))}"
        )
    return rows


def prepare(
    entry: TimedVariant,
    conditions: Conditions,
    shared: Trainer,
    batches: Sequence[Batch],
    errors: dict[tuple[Variant, str], float],
) -> None:
    """Check an entry's attention, make its trainer and take its first steps.

    All entries use the weights and the optimizer of the trainer ``shared``. ``batches`` are packed.
    ``errors`` keeps the gradient errors of a size for its other groups.
    """
    variant, device, group = entry.variant, conditions.device, conditions.group
    if (variant, group.size) not in errors:
        errors[variant, group.size] = gradient_error(variant, conditions)
    entry.error = errors[variant, group.size]
    # `not <=` instead of `>`, so that NaN is an error.
    if not entry.error <= TOLERANCE[dtype_of(device)]:
        raise WrongResult(f"a gradient has a relative error of {entry.error:.2g}")
    compiled_before = compiled_graphs(device)
    memory_of_others = reset_peak_memory(shared)
    encoder = variant.encoder(conditions.encoder, device)
    # Share the parameters instead of copying them.
    encoder.load_state_dict(shared.encoder.state_dict(keep_vars=True), assign=True)
    trainer = Trainer(encoder, conditions.training, conditions.seed, device)
    trainer.optimizer = shared.optimizer
    losses = [
        trainer.step(step, [variant.batch(batch, group.context)]).loss
        for step, batch in enumerate(batches, start=1)
    ]
    synchronize(device)
    if device.type == "cuda":
        entry.memory = torch.cuda.max_memory_allocated(device) - memory_of_others
    entry.trainer, entry.loss = trainer, float(losses[0])
    entry.compiled = compiled_graphs(device) - compiled_before


def gradient_error(variant: Variant, conditions: Conditions) -> float:
    """Return the relative error of the gradient of the q, k and v projection.

    This checks attention, including padding. An encoder of one layer without dropout is compared
    with plain PyTorch (backend ``reference``) in float32 on two cells. Encoders are not compiled.
    """
    packed, device = next(conditions.batches(2)), conditions.device
    settings = replace(conditions.encoder, layers=1, dropout=0.0)
    torch.manual_seed(conditions.seed)
    reference = Variant("reference", variant.attention, (device.type,)).encoder(settings, device)
    encoder = variant.encoder(settings, device)
    encoder.load_state_dict(reference.state_dict())
    batch = variant.batch(packed, settings.context).to(device)
    with autocast(device):
        gradient = projection_gradient(encoder, batch)
    return relative_error(gradient, projection_gradient(reference, packed.to(device)))


def projection_gradient(encoder: Encoder, batch: Batch) -> Tensor:
    """Return the gradient of the first layer's q, k and v projection, float64."""
    embedded = encoder.embed(batch.tokens, batch.positions)
    mask = encoder.mask(embedded, batch.cu_seqlens)
    summed_loss(encoder, embedded, mask, batch).backward()
    first = encoder.blocks[0]
    assert isinstance(first, Block)
    assert first.qkv.weight.grad is not None
    return first.qkv.weight.grad.double()


def reset_peak_memory(shared: Trainer) -> int:
    """Reset the GPU's peak memory, and return the allocated bytes that belong to other models.

    These are all bytes except the shared weights and optimizer state.
    """
    if shared.device.type != "cuda":
        return 0
    shared.optimizer.zero_grad()
    states = [tensor for state in shared.optimizer.state.values() for tensor in state.values()]
    own = sum(tensor.nbytes for tensor in [*shared.encoder.parameters(), *states])
    torch.cuda.reset_peak_memory_stats(shared.device)
    return torch.cuda.memory_allocated(shared.device) - own


def compiled_graphs(device: torch.device) -> int:
    """Return the number of graphs that ``torch.compile`` has made in this process, 0 on a CPU."""
    if device.type == "cpu":
        return 0  # without importing the compiler
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def time_rounds(
    entries: Sequence[TimedVariant], conditions: Conditions, batches: Iterator[Batch]
) -> list[tuple[int, int]]:
    """Time the models in interleaved rounds. Each round has its own order and cells.

    Return for each round the valid tokens of its timed steps and the operations on these tokens.
    """
    settings, device, step = conditions.settings, conditions.device, FIRST_STEPS + 1
    tokens_and_flops: list[tuple[int, int]] = []
    for order in rounds(len(entries), LEAST_ROUNDS, settings.rounds, settings.seconds):
        packed = list(islice(batches, LEAD_STEPS + settings.steps))
        by_layout: dict[str, list[Batch]] = {}
        for entry in (entries[index] for index in order):
            variant = entry.variant
            if entry.trainer is None:
                continue
            if variant.layout not in by_layout:
                converted = [variant.batch(batch, conditions.group.context) for batch in packed]
                # In page-locked memory, as in training.
                by_layout[variant.layout] = (
                    [batch.pinned() for batch in converted] if device.type == "cuda" else converted
                )
            with record_failure(entry, KERNELS_SETTING, device):
                time_steps(entry, entry.trainer, by_layout[variant.layout], step)
        timed = packed[LEAD_STEPS:]
        flops = sum(
            count_flops(conditions.encoder, batch.cu_seqlens.diff().tolist(), len(batch.masked))
            for batch in timed
        )
        tokens_and_flops.append((sum(len(batch.tokens) for batch in timed), flops))
        step += len(packed)
    return tokens_and_flops


def time_steps(
    entry: TimedVariant, trainer: Trainer, batches: Sequence[Batch], first_step: int
) -> None:
    """Train on batches in the entry's layout, and time all steps after ``LEAD_STEPS``."""
    trainer.prepare(batches)  # untimed steps, if a graph has to be compiled or recorded
    compiled_before = compiled_graphs(trainer.device)
    watch = Stopwatch(trainer.device)
    results = []
    for index, batch in enumerate(batches):
        if index == LEAD_STEPS:
            watch.mark()
        results.append(trainer.step(first_step + index, [batch]))
    watch.mark()
    seconds_per_step = watch.seconds() / (len(batches) - LEAD_STEPS)
    entry.milliseconds.append(seconds_per_step * 1e3)
    entry.behind.append(watch.behind() / seconds_per_step)
    entry.graphed += [result.graphed for result in results[LEAD_STEPS:]]
    entry.recompiled += compiled_graphs(trainer.device) - compiled_before


def make_row(
    entry: TimedVariant, conditions: Conditions, tokens_and_flops: Sequence[tuple[int, int]]
) -> TrainingRow:
    """Return the row of one variant. ``tokens_and_flops``: see :func:`time_rounds`."""
    variant, settings, group = entry.variant, conditions.settings, conditions.group
    device, readings = device_name(conditions.device), entry.milliseconds
    milliseconds = median_interval(readings, settings.confidence)
    seconds = [settings.steps * reading / 1e3 for reading in readings]  # of each round
    tokens, flops = zip(*tokens_and_flops, strict=True)
    mean_tokens = statistics.fmean(tokens) / settings.steps
    # tokens of a step, including padding
    computed = mean_tokens if variant.layout == "packed" else group.cells * group.context
    is_host_bound = bool(entry.behind) and statistics.median(entry.behind) < LEAST_BEHIND
    host_note = HOST_NOTE if is_host_bound else ""
    rate = milliseconds.map(lambda ms: group.cells * 1e3 / ms)
    steps = settings.projected_cells / group.cells
    hours = milliseconds.map(lambda ms: steps * ms / 3.6e6)
    return TrainingRow(
        size=group.size,
        parameters=count_parameters(conditions.encoder),
        context=group.context,
        cells_per_step=group.cells,
        attention=variant.attention,
        kernel=variant.kernel,
        layout=variant.layout,
        device=device,
        tokens_per_step=mean_tokens,
        padding=1 - mean_tokens / computed,
        **milliseconds.columns("milliseconds"),
        **rate.columns("cells_per_second"),
        tokens_per_second=median_rate(tokens, seconds),
        mfu=median_rate(flops, seconds) / (peak_flops(device) or math.nan),
        **hours.columns("gpu_hours"),
        projected_cells=settings.projected_cells,
        peak_memory_gb=entry.memory / 1e9,
        cuda_graphs=statistics.fmean(entry.graphed) if entry.graphed else math.nan,
        host_bound=is_host_bound,
        compiled=entry.compiled,
        recompiled=entry.recompiled,
        loss=entry.loss,
        relative_error=entry.error,
        rounds=len(readings),
        note=entry.note or (CPU_NOTE if conditions.device.type == "cpu" else host_note),
        readings=" ".join(f"{reading:.6g}" for reading in readings),
    )


def median_rate(amounts: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the median of the amounts per second of the rounds, NaN if no round was timed."""
    if not seconds:
        return math.nan
    return statistics.median(n / time for n, time in zip(amounts, seconds, strict=True))
