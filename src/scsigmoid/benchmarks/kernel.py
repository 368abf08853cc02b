"""The kernel benchmark (section "Kernel Performance"): forward and backward of attention alone.

Every kernel is checked against float64, as it will be timed, before it is timed.  The kernels of a
group of shapes take turns, so that what the machine does meanwhile meets all of them alike.
"""

import gc
import math
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from scsigmoid.benchmarks.cases import Case, groups
from scsigmoid.benchmarks.compiling import compile_ahead
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.intervals import median_interval
from scsigmoid.benchmarks.machine import attention_versions, code_version, machine_facts
from scsigmoid.benchmarks.monitor import GpuMonitor, gpu_identity
from scsigmoid.benchmarks.partial import Partial
from scsigmoid.benchmarks.providers import Provider, chosen
from scsigmoid.benchmarks.rows import KernelRow, write_rows
from scsigmoid.benchmarks.sigmoid_kernels import Kernel, Unavailable
from scsigmoid.benchmarks.timing import Clocked, Queued, Replayed, Timer
from scsigmoid.benchmarks.turns import DIRECTIONS, Candidate, measure
from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.progress import log, track
from scsigmoid.training.devices import device_name, resolve_device, synchronise

CPU_NOTE = "CPU, reference attention, tiny shapes: not comparable with the paper"
# Largest relative error of output and gradients.  In bfloat16 fused kernels make about 0.003, plain
# PyTorch, which rounds the scores too, about 0.02.
TOLERANCE = {torch.bfloat16: 0.05, torch.float32: 1e-4}
# Single calls from Python of each kernel.
CALLS = 5
# Seconds of preparation (compiling, choosing) from which the log names the kernel.
LONG_PREPARATION = 5.0


def run_kernel_benchmark(
    settings: KernelBenchmark, device: str, output_csv: str | Path, output_json: str | Path
) -> None:
    """Time all kernels at all shapes.

    bfloat16 on a GPU, float32 on a CPU.  A kernel that is missing, cannot do a shape, fails its
    check or does not fit in memory gets rows whose note says so.  After each group of shapes all
    rows are kept beside the output; a sweep that was stopped goes on there, see :class:`Partial`.

    Args:
        settings: shapes, kernels and repetitions.
        device: ``auto``, ``cpu`` or ``cuda``.
        output_csv: one row per kernel, shape and pass.
        output_json: facts of the machine.

    Raises:
        UserError: if a GPU is asked for and there is none, or for an unknown kernel.
    """
    place = resolve_device(device)
    providers = chosen(settings.providers, place.type)
    if place.type == "cpu":
        torch.set_num_threads(1)
    facts = machine_facts(place, "scsigmoid benchmark-kernel")
    facts |= {"code": code_version(), **attention_versions()}
    machine = gpu_identity(place) if place.type == "cuda" else platform.node()
    partial = Partial(output_csv, {**facts, "machine": machine, "settings": asdict(settings)})
    done = {row.shape[:4] for row in partial.rows}
    missing = [group for group in groups(settings) if not done.issuperset(map(shape_of, group))]
    if place.type == "cuda" and missing:
        cases = [case for group in missing for case in group]
        # A kernel may be compiled for every shape; by default the compiler gives up after a few.
        torch._dynamo.config.recompile_limit = max(8, 4 * len(cases))
        log(f"compiling kernels for {len(cases)} shapes")
        compile_ahead(cases, providers, place, torch.bfloat16)
    for group in track(missing, label="groups of shapes"):
        partial.save(partial.rows + run_group(group, providers, settings, place))
    write_rows(output_csv, KernelRow, partial.rows)
    write_json(output_json, facts)
    partial.discard()


def shape_of(case: Case) -> tuple[str, float, int, int]:
    """The part of a row's shape that a case fixes."""
    return case.batch, case.padding, case.head_dimension, case.length


def run_group(
    group: Sequence[Case],
    providers: Sequence[Provider],
    settings: KernelBenchmark,
    device: torch.device,
) -> list[KernelRow]:
    """The rows of shapes that are timed in the same turns."""
    begin = time.perf_counter()
    candidates = [
        candidate
        for case in group
        for candidate in prepare_case(case, providers, settings.warmup_ms, device)
    ]
    middle = time.perf_counter()
    with GpuMonitor(device) as monitor:
        turns = measure(candidates, settings.iterations, settings.seconds, device)
    log(
        f"head dimension {group[0].head_dimension}, {group[0].batch}, {group[0].length:,} tokens: "
        f"{middle - begin:.1f} s to prepare, {time.perf_counter() - middle:.1f} s for {turns} turns"
    )
    rows = [
        row_of(candidate, direction, settings.confidence, device, monitor)
        for candidate in candidates
        for direction in DIRECTIONS
    ]
    # The graphs hold memory that the next shapes need.
    candidates.clear()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return rows


def prepare_case(
    case: Case, providers: Sequence[Provider], warmup_ms: float, device: torch.device
) -> list[Candidate]:
    """All kernels that suit a shape: made, checked and warm."""
    dtype = dtype_of(device)
    inputs = Inputs(case, device, dtype)
    found = []
    for provider in providers:
        if not provider.suits(case):
            continue
        candidate = Candidate(case, provider)
        found.append(candidate)
        begin = time.perf_counter()
        try:
            prepare(candidate, inputs, TOLERANCE[dtype], warmup_ms, device)
        except Exception as error:
            # Whatever a kernel of another project raises is a result of this benchmark.
            candidate.timer = None
            candidate.note = reason(error)
            check_alive(provider, case, device)
        seconds = time.perf_counter() - begin
        if seconds > LONG_PREPARATION:
            log(f"{provider.name}, {case.length:,} tokens: {seconds:.0f} s to prepare")
    return found


def check_alive(provider: Provider, case: Case, device: torch.device) -> None:
    """Stop where a kernel has left the GPU unusable for all that follow.

    Raises:
        UserError: if so; what was measured before is kept.
    """
    try:
        synchronise(device)
    except RuntimeError as error:
        raise UserError(
            f"benchmarks.kernel: {provider.name} ({provider.layout_name}, head dimension "
            f"{case.head_dimension}, {case.length:,} tokens) broke the GPU's context: "
            f"{first_line(error)}; leave it out with benchmarks.kernel.providers"
        ) from None


def prepare(
    candidate: Candidate,
    inputs: Inputs,
    tolerance: float,
    warmup_ms: float,
    device: torch.device,
) -> None:
    """Make a kernel, check it as it will be timed, and warm it up.

    Raises:
        Unavailable: if it cannot run here or computes something else.
    """
    provider = candidate.provider
    kernel = provider.prepare(inputs)
    tensors = inputs.in_layout(provider.layout)
    calls = Clocked(kernel, tensors, device)
    timer, candidate.note = timer_of(kernel, provider, calls)
    candidate.error, name = inputs.largest_error(
        provider.attention, provider.layout, *timer.results()
    )
    if not candidate.error <= tolerance:
        raise Unavailable(f"wrong: {name} has a relative error of {candidate.error:.2g}; not timed")
    if device.type == "cuda":
        calls.once()
        for _ in range(CALLS):
            for direction, milliseconds in zip(DIRECTIONS, calls.once(), strict=True):
                candidate.calls[direction].append(milliseconds)
    end = time.perf_counter() + warmup_ms / 1e3
    while True:
        timer.once()
        if time.perf_counter() >= end:
            break
    candidate.timer = timer


def timer_of(kernel: Kernel, provider: Provider, calls: Clocked) -> tuple[Timer, str]:
    """How a kernel is timed on a device, and a note where that is not the usual way."""
    if calls.device.type == "cpu":
        return calls, CPU_NOTE
    if not provider.graph:
        return Queued(kernel, calls.tensors), ""
    # Whatever it chooses or compiles, it does now.
    calls.once()
    try:
        return Replayed(kernel, calls.tensors), ""
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        synchronise(calls.device)
        note = f"{provider.name} is timed without a CUDA graph ({first_line(error)})"
        return Queued(kernel, calls.tensors), note


def row_of(
    candidate: Candidate,
    direction: str,
    confidence: float,
    device: torch.device,
    monitor: GpuMonitor,
) -> KernelRow:
    """The row of one kernel, shape and pass."""
    case, provider = candidate.case, candidate.provider
    turns, calls = candidate.turns[direction], candidate.calls[direction]
    readings = [reading for reading in turns if not math.isnan(reading)]
    value = low = high = math.nan
    if readings:
        value, low, high = median_interval(readings, confidence)
    teraflops = case.flops(direction) / 1e9
    return KernelRow(
        attention=provider.attention,
        provider=provider.name,
        layout=provider.layout_name,
        direction=direction,
        batch=case.batch,
        head_dimension=case.head_dimension,
        heads=case.heads,
        length=case.length,
        sequences=case.sequences,
        padding=case.padding,
        tokens=case.tokens,
        dtype=str(dtype_of(device)).removeprefix("torch."),
        device=device_name(device),
        milliseconds=value,
        milliseconds_low=low,
        milliseconds_high=high,
        tflops=teraflops / value,
        tflops_low=teraflops / high,
        tflops_high=teraflops / low,
        executed_tflops=provider.executed(case, direction) / 1e9 / value,
        timing=candidate.timer.how if candidate.timer is not None else "",
        call_milliseconds=statistics.median(calls) if calls else math.nan,
        iterations=len(readings),
        checked=candidate.timer is not None,
        relative_error=candidate.error,
        clock_mhz=monitor.clock_mhz,
        power_w=monitor.power_w,
        note=candidate.note,
        readings=" ".join(f"{reading:.6g}" for reading in turns),
    )


def dtype_of(device: torch.device) -> torch.dtype:
    """The numbers' format: bfloat16 on a GPU, float32 on a CPU."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def reason(error: Exception) -> str:
    """Why a kernel has no time, in one line."""
    if isinstance(error, Unavailable):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return "does not fit in memory"
    return f"failed: {type(error).__name__}: {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of an error's words, shortened."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else ""
