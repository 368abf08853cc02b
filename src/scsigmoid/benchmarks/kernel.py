"""The kernel benchmark (section "Kernel Performance"): forward and backward pass of attention.

The kernels of a group of shapes are timed in interleaved rounds, so that clock and load changes
affect all of them equally. Before the first and after the last round, output and gradients are
computed as in the timed runs, for example by a CUDA graph, and compared with float64.
"""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from scsigmoid.benchmarks.cases import TOLERANCE, Case, Inputs, dtype_of, groups
from scsigmoid.benchmarks.compiling import kernel_jobs, limit_autotuning, run_in_processes
from scsigmoid.benchmarks.machine import machine_facts, machine_identity
from scsigmoid.benchmarks.providers import PROVIDERS_SETTING, Provider, choose_providers
from scsigmoid.benchmarks.rows import KernelRow, Sweep, median_interval
from scsigmoid.benchmarks.timing import (
    Clocked,
    Queued,
    Replayed,
    Timer,
    WrongResult,
    first_line,
    out_of_memory,
    record_failure,
    release,
    release_frames,
    rounds,
)
from scsigmoid.config.combinations import find_kernel_benchmark_problems
from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.errors import UserError
from scsigmoid.model.devices import device_name, resolve_device, synchronize
from scsigmoid.progress import log

CPU_NOTE = "CPU, reference attention, tiny shapes: not comparable with the paper"
DIRECTIONS = ("forward", "backward")
# Minimum number of rounds of a group. The 99 % interval of a median needs eight readings, and slow
# kernels are timed in every fourth round only.
LEAST_ROUNDS = 32
# Kernels that take over SLOW times the group's median are timed in every SELDOM-th round only.
SLOW, SELDOM = 2.5, 4
SKIPPED = (math.nan, math.nan)  # reading of a round that a kernel skips
# Number of timed single calls from Python of each kernel.
CALLS = 5


@dataclass
class Candidate:
    """A kernel at a shape, and its measurements.

    Attributes:
        inputs: the batch, kept until the last check, because a CUDA graph reads fixed addresses.
        timer: None until the kernel is prepared, and if it cannot be timed (see ``note``).
        error: largest relative error of output and gradients.
        note: reason why the kernel was not timed, or a remark on its timing (:func:`timer_of`).
        calls: milliseconds of the forward and backward pass of single calls from Python.
        rounds: milliseconds of both passes in each round, NaN if the kernel skipped the round.
    """

    inputs: Inputs
    provider: Provider
    timer: Timer | None = None
    error: float = math.nan
    note: str = ""
    calls: list[tuple[float, float]] = field(default_factory=list)
    rounds: list[tuple[float, float]] = field(default_factory=list)

    @property
    def name(self) -> str:
        case = self.inputs.case
        return (
            f"{self.provider.name} ({self.provider.layout_name}, head dimension "
            f"{case.head_dimension}, {case.length:,} tokens)"
        )

    @property
    def is_ours(self) -> bool:
        return self.provider.is_ours

    def drop(self, note: str) -> None:
        self.timer, self.note = None, note
        self.calls.clear()
        self.rounds.clear()


def run_kernel_benchmark(
    settings: KernelBenchmark,
    device: str,
    output_csv: str | Path,
    output_json: str | Path,
    seconds: float = math.inf,
) -> None:
    """Time all kernels at all shapes, in bfloat16 on a GPU and float32 on a CPU.

    If a kernel is missing, does not support a shape, fails its check or does not fit in memory, its
    rows contain the reason in ``note``. Rows are saved next to the output after each group of
    shapes, so that a stopped benchmark can resume.

    Args:
        settings: shapes, kernels and repetitions.
        device: ``auto``, ``cpu`` or ``cuda``.
        output_csv: one row per kernel, shape and pass.
        output_json: machine, versions and code, and ``not_measured`` (:meth:`Sweep.measure`).
        seconds: seconds after which no further group of shapes starts (default: no limit).

    Raises:
        UserError: if a setting or the device is wrong.
        OwnKernelError: if a kernel of this project fails.
    """
    deadline = time.monotonic() + seconds
    for problem in find_kernel_benchmark_problems(settings):
        raise UserError(problem)
    torch_device = resolve_device(device)
    providers = choose_providers(settings.providers, torch_device.type)
    if torch_device.type == "cpu":
        torch.set_num_threads(1)
    facts = machine_facts(torch_device, "scsigmoid benchmark-kernel")
    sweep = Sweep(
        KernelRow,
        output_csv,
        facts,
        [machine_identity(torch_device), settings.model_dump(exclude_defaults=True)],
    )
    done = {row.shape[:4] for row in sweep.rows}
    missing = [group for group in groups(settings) if not done.issuperset(map(shape_of, group))]
    if torch_device.type == "cuda" and missing:
        cases = [case for group in missing for case in group]
        # By default torch stops compiling FlexAttention after eight shapes. 4 is a safety margin.
        torch._dynamo.config.recompile_limit = max(8, 4 * len(cases))
        log(f"compiling kernels for {len(cases)} shapes")
        run_in_processes(kernel_jobs(cases, providers, torch_device))
        limit_autotuning()
    sweep.measure(
        {group_name(group): group for group in missing},
        lambda group: run_group(group, providers, settings, torch_device),
        deadline,
        output_json,
    )


def shape_of(case: Case) -> tuple[str, float, int, int]:
    """Return the shape of a case, the first four fields of :class:`rows.Shape`."""
    return case.batch, case.padding, case.head_dimension, case.length


def group_name(group: Sequence[Case]) -> str:
    first = group[0]
    return f"head dimension {first.head_dimension}, {first.batch}, {first.length:,} tokens"


def run_group(
    group: Sequence[Case],
    providers: Sequence[Provider],
    settings: KernelBenchmark,
    device: torch.device,
) -> list[KernelRow]:
    """Time the kernels at a group of shapes in the same rounds, and return the rows."""
    candidates: list[Candidate] = []
    for case in group:
        candidates += prepare_case(Inputs(case, device), providers, settings.warmup_ms)
    round_count = measure(candidates, settings.iterations, settings.seconds, device)
    log(f"{group_name(group)}: {round_count} rounds")
    check_again(candidates)
    rows = [
        make_row(candidate, direction, settings.confidence)
        for candidate in candidates
        for direction in DIRECTIONS
    ]
    # Free the memory of graphs and inputs for the next shapes.
    candidates.clear()
    release(device)
    return rows


def prepare_case(
    inputs: Inputs, providers: Sequence[Provider], warmup_ms: float
) -> list[Candidate]:
    """Prepare, check and warm up all kernels that are timed for a batch."""
    suitable = [provider for provider in providers if provider.is_timed_for(inputs.case)]
    candidates = [Candidate(inputs, provider) for provider in suitable]
    for candidate in candidates:
        with record_failure(candidate, PROVIDERS_SETTING, inputs.device):
            prepare(candidate, warmup_ms)
    return candidates


def prepare(candidate: Candidate, warmup_ms: float) -> None:
    """Prepare a kernel, check the results of its timer, and warm it up."""
    inputs, provider = candidate.inputs, candidate.provider
    clocked = Clocked(provider.prepare(inputs), inputs.in_layout(provider.layout))
    timer, candidate.note = timer_of(clocked, provider)
    check(candidate, timer)
    if inputs.device.type == "cuda":
        clocked.once()
        candidate.calls = [clocked.once() for _ in range(CALLS)]
    end = time.perf_counter() + warmup_ms / 1e3
    timer.once()  # at least once
    while time.perf_counter() < end:
        timer.once()
    candidate.timer = timer


def timer_of(clocked: Clocked, provider: Provider) -> tuple[Timer, str]:
    """Return the timer for the kernel of ``clocked``, and a remark on it, usually ""."""
    if clocked.device.type == "cpu":
        return clocked, CPU_NOTE
    if provider.stores_scores:
        return Queued(clocked.kernel, clocked.tensors), ""
    clocked.once()  # compile the kernel and choose its configuration before a capture
    try:
        return Replayed(clocked.kernel, clocked.tensors), ""
    except RuntimeError as error:
        if provider.is_ours or out_of_memory(error):
            raise
        note = f"{provider.name} is timed without a CUDA graph ({first_line(error)})"
        release_frames(error)
    synchronize(clocked.device)
    release(clocked.device)
    return Queued(clocked.kernel, clocked.tensors), note


def check(candidate: Candidate, timer: Timer) -> None:
    """Set the candidate's ``error``. Raise WrongResult if it exceeds the tolerance."""
    inputs, provider = candidate.inputs, candidate.provider
    candidate.error, name = inputs.largest_error(
        provider.attention, provider.layout, *timer.results()
    )
    # `not <=` instead of `>`, so that NaN is an error.
    if not candidate.error <= TOLERANCE[dtype_of(inputs.device)]:
        raise WrongResult(f"{name} has a relative error of {candidate.error:.2g}")


def check_again(candidates: Sequence[Candidate]) -> None:
    """Check the kernels after their last round, and drop the readings of wrong kernels."""
    for candidate in candidates:
        if candidate.timer is None:
            continue
        with record_failure(candidate, PROVIDERS_SETTING, candidate.inputs.device):
            try:
                check(candidate, candidate.timer)
            except WrongResult as error:
                if candidate.is_ours:
                    raise  # `record_failure` raises OwnKernelError instead
                candidate.drop(f"wrong after its last round: {error}; readings dropped")


def measure(
    candidates: Sequence[Candidate], iterations: int, seconds: float, device: torch.device
) -> int:
    """Time the kernels in interleaved rounds, and append the readings to their ``rounds``.

    Return the number of rounds, at most ``iterations``. After ``LEAST_ROUNDS`` rounds, no round
    starts later than ``seconds``. Long sequences then have fewer rounds, which are sufficient
    because their times vary little.
    """
    timed = [candidate for candidate in candidates if candidate.timer is not None]
    durations: dict[int, float] = {}  # milliseconds of both passes, by index in `timed`
    if device.type == "cuda":
        for index, candidate in enumerate(timed):
            assert candidate.timer is not None
            with record_failure(candidate, PROVIDERS_SETTING, device):
                durations[index] = sum(candidate.timer.once())
    # On a CPU, `durations` is empty and no kernel is slow.
    limit = SLOW * statistics.median(durations.values() or [math.inf])
    slow = {index for index, duration in durations.items() if duration > limit}
    finished_rounds = 0
    for order in rounds(len(timed), LEAST_ROUNDS, iterations, seconds):
        for index in order:
            candidate = timed[index]
            if candidate.timer is None:  # it failed in an earlier round
                continue
            is_skipped = index in slow and finished_rounds % SELDOM > 0
            with record_failure(candidate, PROVIDERS_SETTING, device):
                candidate.rounds.append(SKIPPED if is_skipped else candidate.timer.once())
        finished_rounds += 1
    return finished_rounds


def make_row(candidate: Candidate, direction: str, confidence: float) -> KernelRow:
    case, device, provider = candidate.inputs.case, candidate.inputs.device, candidate.provider
    column = DIRECTIONS.index(direction)
    readings = [both_passes[column] for both_passes in candidate.rounds]
    calls = [both_passes[column] for both_passes in candidate.calls]
    timed = [reading for reading in readings if not math.isnan(reading)]
    duration = median_interval(timed, confidence)
    work = case.flops(direction) / 1e9  # 1e9 operations per millisecond are 1 TFLOPS
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
        **duration.columns("milliseconds"),
        **duration.map(lambda milliseconds: work / milliseconds).columns("tflops"),
        timing=candidate.timer.method if candidate.timer is not None else "",
        call_milliseconds=statistics.median(calls) if calls else math.nan,
        iterations=len(timed),
        checked=candidate.timer is not None,
        relative_error=candidate.error,
        note=candidate.note,
        readings=" ".join(f"{reading:.6g}" for reading in readings),
    )
