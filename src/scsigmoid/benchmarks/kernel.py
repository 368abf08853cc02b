"""The kernel benchmark (section "Kernel Performance"): forward and backward of attention alone.

Every kernel is checked against float64 before it is timed.  The kernels of a shape take turns, so
that what the machine does meanwhile meets all of them alike.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from scsigmoid.benchmarks.cases import Case, Inputs, cases, relative_error
from scsigmoid.benchmarks.compiling import compile_ahead
from scsigmoid.benchmarks.intervals import median_interval
from scsigmoid.benchmarks.machine import machine_facts
from scsigmoid.benchmarks.providers import PROVIDERS, Kernel, Provider, Unavailable
from scsigmoid.benchmarks.rows import KernelRow, write_rows
from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.files import write_json
from scsigmoid.progress import log, track
from scsigmoid.training.devices import device_name, resolve_device, synchronise

CPU_NOTE = "CPU, reference attention, tiny shapes: not comparable with the paper"
# Largest relative error of output and gradients.  In bfloat16 fused kernels make about 0.003, plain
# PyTorch, which rounds the scores too, about 0.02.
TOLERANCE = {torch.bfloat16: 0.05, torch.float32: 1e-4}
# Longest time spent on the turns of one shape.
MOST_SECONDS = 15.0
DIRECTIONS = ("forward", "backward")
# A GPU is kept busy for about 0.2 ms before each run, so that the timed kernels are queued behind
# that and the time between launches is not counted.
QUEUE_CYCLES = 400_000


class Candidate(NamedTuple):
    """A kernel that is ready to be timed; ``times`` are in milliseconds, by direction."""

    provider: Provider
    kernel: Kernel
    tensors: list[Tensor]
    times: dict[str, list[float]]


def run_kernel_benchmark(
    settings: KernelBenchmark, device: str, output_csv: str | Path, output_json: str | Path
) -> None:
    """Time all kernels at all shapes.

    bfloat16 on a GPU, float32 on a CPU.  A kernel that is missing, cannot do a shape, fails its
    check or does not fit in memory gets rows whose note says so.

    Args:
        settings: shapes and repetitions.
        device: ``auto``, ``cpu`` or ``cuda``.
        output_csv: one row per kernel, shape and pass.
        output_json: facts of the machine.

    Raises:
        UserError: if a GPU is asked for and there is none.
    """
    place = resolve_device(device)
    if place.type == "cpu":
        torch.set_num_threads(1)
    rows: list[KernelRow] = []
    shapes = list(cases(settings))
    if place.type == "cuda":
        # A kernel may be compiled for every shape; by default the compiler gives up after a few.
        torch._dynamo.config.recompile_limit = max(8, 4 * len(shapes))
        log(f"compiling kernels for {len(shapes)} shapes")
        compile_ahead(shapes, place, torch.bfloat16)
    for case in track(shapes, label="kernel shapes"):
        rows += run_case(case, settings, place)
    write_rows(output_csv, KernelRow, rows)
    write_json(output_json, machine_facts(place, "scsigmoid benchmark-kernel"))


def run_case(case: Case, settings: KernelBenchmark, device: torch.device) -> list[KernelRow]:
    """The rows of one shape."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    inputs = Inputs(case, device, dtype)
    expected = {attention: inputs.expected(attention) for attention in ("sigmoid", "softmax")}
    providers = [provider for provider in PROVIDERS if device.type in provider.devices]
    notes: dict[Provider, str] = {}
    candidates: list[Candidate] = []
    for provider in providers:
        try:
            candidate = Candidate(
                provider,
                provider.prepare(inputs),
                inputs.in_layout(provider.layout),
                {direction: [] for direction in DIRECTIONS},
            )
            check(candidate, inputs, expected[provider.attention], TOLERANCE[dtype])
            warm_up(candidate, settings.warmup_ms, device)
            candidates.append(candidate)
        except Exception as error:
            # Whatever a kernel of another project raises is a result of this benchmark.
            notes[provider] = reason(error)
    measure(candidates, settings.iterations, device)
    times = {candidate.provider: candidate.times for candidate in candidates}
    common = {
        "head_dimension": case.head_dimension,
        "heads": case.heads,
        "length": case.length,
        "sequences": case.sequences,
        "padding": case.padding,
        "dtype": str(dtype).removeprefix("torch."),
        "device": device_name(device),
    }
    return [
        row_of(provider, direction, case, times.get(provider), settings, common, notes)
        for provider in providers
        for direction in DIRECTIONS
    ]


def row_of(
    provider: Provider,
    direction: str,
    case: Case,
    times: dict[str, list[float]] | None,
    settings: KernelBenchmark,
    common: dict[str, object],
    notes: dict[Provider, str],
) -> KernelRow:
    """The row of one kernel, shape and pass."""
    note = notes.get(provider, CPU_NOTE if common["device"] == "cpu" else "")
    value = low = high = math.nan
    if times is not None:
        value, low, high = median_interval(times[direction], settings.confidence)
    teraflops = case.flops(direction) / 1e9
    return KernelRow(
        attention=provider.attention,
        provider=provider.name,
        layout=provider.layout_name,
        direction=direction,
        **common,  # type: ignore[arg-type]
        milliseconds=value,
        milliseconds_low=low,
        milliseconds_high=high,
        tflops=teraflops / value,
        tflops_low=teraflops / high,
        tflops_high=teraflops / low,
        iterations=len(times[direction]) if times is not None else 0,
        note=note,
    )


def reason(error: Exception) -> str:
    """Why a kernel has no time, in one line."""
    if isinstance(error, Unavailable):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return "does not fit in memory"
    lines = str(error).strip().splitlines()
    return f"failed: {type(error).__name__}: {lines[0][:160] if lines else ''}"


def passes(candidate: Candidate) -> tuple[Tensor, Sequence[Tensor]]:
    """Output, and gradients of q, k and v."""
    q, k, v, gradient = candidate.tensors
    output = candidate.kernel(q, k, v)
    return output, torch.autograd.grad(output, (q, k, v), gradient)


def check(
    candidate: Candidate, inputs: Inputs, expected: Sequence[Tensor], tolerance: float
) -> None:
    """Compare one head of one sequence with float64.

    Raises:
        Unavailable: if the kernel computes something else.
    """
    output, gradients = passes(candidate)
    for name, found, right in zip(
        ("output", "dQ", "dK", "dV"), (output, *gradients), expected, strict=True
    ):
        head = inputs.first_head(found.detach(), candidate.provider.layout)
        error = relative_error(head, right)
        if not error <= tolerance:
            raise Unavailable(f"wrong: {name} has a relative error of {error:.2g}; not timed")


def warm_up(candidate: Candidate, milliseconds: float, device: torch.device) -> None:
    """Run a kernel for a while, at least once."""
    end = time.perf_counter() + milliseconds / 1e3
    while True:
        passes(candidate)
        synchronise(device)
        if time.perf_counter() >= end:
            return


def measure(candidates: Sequence[Candidate], iterations: int, device: torch.device) -> None:
    """Time the kernels in turns; fills their ``times``.

    Ends after :data:`MOST_SECONDS` if the turns take longer: the long runs of long sequences vary
    little, so fewer of them do.
    """
    end = time.perf_counter() + MOST_SECONDS
    once = once_on_gpu if device.type == "cuda" else once_on_cpu
    for turn in range(iterations):
        if turn and time.perf_counter() > end:
            return
        for candidate in candidates:
            if device.type == "cuda" and turn % candidate.provider.turns:
                continue
            for direction, milliseconds in zip(DIRECTIONS, once(candidate), strict=True):
                candidate.times[direction].append(milliseconds)


def once_on_cpu(candidate: Candidate) -> tuple[float, float]:
    """Milliseconds of one forward and one backward pass, by the clock."""
    q, k, v, gradient = candidate.tensors
    begin = time.perf_counter()
    output = candidate.kernel(q, k, v)
    middle = time.perf_counter()
    torch.autograd.grad(output, (q, k, v), gradient)
    end = time.perf_counter()
    return (middle - begin) * 1e3, (end - middle) * 1e3


def once_on_gpu(candidate: Candidate) -> tuple[float, float]:
    """Milliseconds of one forward and one backward pass, by the GPU's events."""
    q, k, v, gradient = candidate.tensors
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    torch.cuda._sleep(QUEUE_CYCLES)
    events[0].record()
    output = candidate.kernel(q, k, v)
    events[1].record()
    torch.autograd.grad(output, (q, k, v), gradient)
    events[2].record()
    events[2].synchronize()
    return events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2])
