"""The training-throughput benchmark (section "Training Speed Performance").

The training step of this project on cells of simulated lengths: sizes x contexts x attention.  The
cells of a step are drawn from the seed, the context and the step alone, so both arms meet the same
ones.
"""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import torch

from scsigmoid.benchmarks.compiling import compile_steps_ahead
from scsigmoid.benchmarks.machine import identity, machine_facts
from scsigmoid.benchmarks.rows import HOST_BOUND, Sweep, ThroughputRow
from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.benchmarks.timing import NO_ROOM, Stopwatch, out_of_memory, release
from scsigmoid.config.schema import Architecture, Size, ThroughputBenchmark, Training
from scsigmoid.files import write_json
from scsigmoid.measurements import mean_interval
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings, count_parameters
from scsigmoid.progress import log, track
from scsigmoid.seeds import derive
from scsigmoid.training.batches import Batch
from scsigmoid.training.devices import backend_of, device_name, resolve_device
from scsigmoid.training.step import Trainer

ATTENTIONS = ("sigmoid", "softmax")
CPU_NOTE = "CPU, tiny shapes: hours of this CPU, not GPU-hours; not comparable with the paper"
#: Of a row whose steps are so short that the GPU waits for their launch.
HOST_NOTE = f"{HOST_BOUND}, for whose launches the GPU waits"
# A GPU that the host keeps busy has launches of most of a step before it, as many as its queue
# holds; one that waits has the end of the optimiser's step, a tenth to a seventh, at most.
BUSY = 0.25
# Steps before the first reading: compilation, the allocator and the clocks settle.
WARM_STEPS = {"cuda": 10, "cpu": 2}
# More than these are not made; a run of more steps meets them again.
MOST_BATCHES = 256


def run_throughput_benchmark(
    settings: ThroughputBenchmark,
    sizes: dict[str, Size],
    architecture: Architecture,
    training: Training,
    seed: int,
    device: str,
    output_csv: str | Path,
    output_json: str | Path,
) -> None:
    """Time training steps and project them to a corpus.

    What does not fit in memory gets a row whose note says so.  Each row is kept beside the output,
    where a run that was stopped resumes.

    Args:
        settings: what is timed, and how long.
        sizes: the encoders by name, at least those of ``settings.sizes``.
        architecture: what all encoders share.
        training: the optimiser's settings and the masking.
        seed: of weights, lengths, cells and masks.
        device: ``auto``, ``cpu`` or ``cuda``.
        output_csv: one row per size, context and attention.
        output_json: facts of the machine.

    Raises:
        UserError: if a GPU is asked for and there is none.
    """
    torch.set_num_threads(training.threads)
    place = resolve_device(device)
    facts = machine_facts(place, "scsigmoid benchmark-throughput")
    given = [asdict(each) for each in (settings, architecture, training)]
    dimensions = {name: asdict(sizes[name]) for name in settings.sizes}
    sweep = Sweep(ThroughputRow, output_csv, [facts, identity(place), given, dimensions, seed])
    done = {(row.size, row.context, row.attention) for row in sweep.rows}
    encoders = [
        (
            name,
            EncoderSettings.of(
                sizes[name], architecture, attention, context, settings.vocabulary, "auto"
            ),
        )
        for name in settings.sizes
        for context in settings.contexts
        for attention in ATTENTIONS
        if (name, context, attention) not in done
    ]
    if place.type == "cuda":
        # One graph for each size and attention; the contexts share it.
        torch._dynamo.config.recompile_limit = max(8, len(encoders))
        log("compiling training steps")
        compile_steps_ahead([each for _, each in encoders], settings, training, seed, place)
    batches = {
        context: prepared(settings, context, training, seed, place)
        for context in {encoder.context for _, encoder in encoders}
    }
    for name, encoder in track(encoders, label="training throughput"):
        begin = time.perf_counter()
        try:
            readings, behind = steps_per_second(
                encoder, batches[encoder.context], settings, training, seed, place
            )
            note = CPU_NOTE if place.type == "cpu" else host_note(readings, behind)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            readings, note = [], NO_ROOM
        row = row_of(name, encoder, settings, place, readings, note)
        sweep.add([row])
        log(
            f"{name}, {encoder.attention}, context {encoder.context}: "
            f"{row.cells_per_second:.4g} cells/s; {time.perf_counter() - begin:.0f} s in all"
        )
        # The next model needs the memory.
        release(place)
    write_json(output_json, facts)
    sweep.finish()


def steps_per_second(
    encoder: EncoderSettings,
    batches: Sequence[Batch],
    settings: ThroughputBenchmark,
    training: Training,
    seed: int,
    device: torch.device,
) -> tuple[list[float], list[float]]:
    """Readings of the rate, one per ``read_every`` steps, and :meth:`Stopwatch.behind` at each.

    The batches are made before, and taken again and again where there are more steps: the benchmark
    times training, not the preparation of data.
    """
    # Which weights they are does not change the time; drawing them in place saves it.
    torch.manual_seed(derive(seed, "weights"))
    with device:
        model = Encoder(encoder)
    trainer = Trainer(model, training, seed, device)
    trainer.prepare(batches)
    watch, warm = Stopwatch(device), WARM_STEPS[device.type]
    count = max(1, settings.steps // settings.read_every) * settings.read_every
    for step, batch in zip(range(1, warm + count + 1), cycle(batches), strict=False):
        trainer.step(step, [batch])
        if step == warm // 2:
            # All is compiled by now, and the steps to come fill the GPU's queue again.
            watch.begin()
        if step >= warm and (step - warm) % settings.read_every == 0:
            watch.mark()
    return [settings.read_every / seconds for seconds in watch.seconds()], watch.behind()


def host_note(readings: Sequence[float], behind: Sequence[float]) -> str:
    """That a GPU waits for its host, if it does, from steps per second and the time behind it."""
    left = statistics.median(behind) * statistics.median(readings)
    return HOST_NOTE if left < BUSY else ""


def prepared(
    settings: ThroughputBenchmark, context: int, training: Training, seed: int, device: torch.device
) -> list[Batch]:
    """Batches of a context; for a GPU in page-locked memory, as training's loader leaves them."""
    wanted = min(MOST_BATCHES, WARM_STEPS[device.type] + settings.steps)
    batches = islice(simulated_batches(settings, context, training, seed), wanted)
    return [batch.pinned() if device.type == "cuda" else batch for batch in batches]


def row_of(
    size: str,
    encoder: EncoderSettings,
    settings: ThroughputBenchmark,
    device: torch.device,
    readings: Sequence[float],
    note: str,
) -> ThroughputRow:
    """The row of one configuration."""
    value = low = high = math.nan
    if readings:
        value, low, high = mean_interval(np.asarray(readings), settings.confidence)
    cells = settings.cells_per_gpu
    return ThroughputRow(
        size=size,
        parameters=count_parameters(encoder),
        context=encoder.context,
        attention=encoder.attention,
        backend=backend_of(encoder, device),
        layout="packed",
        device=device_name(device),
        cells_per_step=cells,
        steps_per_second=value,
        steps_per_second_low=low,
        steps_per_second_high=high,
        readings=len(readings),
        cells_per_second=value * cells,
        gpu_hours=hours(settings.projected_cells, value * cells),
        gpu_hours_low=hours(settings.projected_cells, high * cells),
        gpu_hours_high=hours(settings.projected_cells, low * cells),
        projected_cells=settings.projected_cells,
        note=note,
        rates=" ".join(map(repr, readings)),
    )


def hours(cells: float, cells_per_second: float) -> float:
    """Hours for so many cells.  An interval that reaches a rate of zero has no upper end: inf."""
    if cells_per_second <= 0:
        return math.inf
    return cells / cells_per_second / 3600
