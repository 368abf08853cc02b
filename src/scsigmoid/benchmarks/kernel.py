"""The kernel benchmark (section "Kernel Performance"): forward and backward of attention alone.

Every kernel is checked against float64, as it is timed, before its first turn and after its last.
The kernels of a group of shapes take turns, so that what the machine does meanwhile meets all of
them alike.
"""

import math
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from scsigmoid.benchmarks.cases import Case, groups
from scsigmoid.benchmarks.compiling import bound_choices, compile_ahead
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.intervals import median_interval
from scsigmoid.benchmarks.machine import attention_versions, code_version, machine_facts
from scsigmoid.benchmarks.monitor import GpuMonitor, gpu_identity
from scsigmoid.benchmarks.partial import Partial
from scsigmoid.benchmarks.preparing import check_again, dtype_of, prepare_case, release
from scsigmoid.benchmarks.providers import Provider, chosen
from scsigmoid.benchmarks.rows import KernelRow, write_rows
from scsigmoid.benchmarks.turns import DIRECTIONS, Candidate, measure
from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.files import write_json
from scsigmoid.progress import log, track
from scsigmoid.training.devices import device_name, resolve_device


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
        bound_choices()
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
    # Held until the last check: what a kernel reads must stay where it is.
    batches = {case: Inputs(case, device, dtype_of(device)) for case in group}
    candidates = [
        candidate
        for inputs in batches.values()
        for candidate in prepare_case(inputs, providers, settings.warmup_ms, device)
    ]
    middle = time.perf_counter()
    with GpuMonitor(device) as monitor:
        turns = measure(candidates, settings.iterations, settings.seconds, device)
    log(
        f"head dimension {group[0].head_dimension}, {group[0].batch}, {group[0].length:,} tokens: "
        f"{middle - begin:.1f} s to prepare, {time.perf_counter() - middle:.1f} s for {turns} turns"
    )
    check_again(candidates, batches, device)
    rows = [
        row_of(candidate, direction, settings.confidence, device, monitor)
        for candidate in candidates
        for direction in DIRECTIONS
    ]
    # Graphs and inputs hold memory that the next shapes need.
    candidates.clear()
    batches.clear()
    release(device)
    return rows


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
