"""Making the kernels of a batch, checking them as they are timed, and what becomes of failures."""

import gc
import time
import traceback
from collections.abc import Mapping, Sequence

import torch

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.providers import Provider
from scsigmoid.benchmarks.sigmoid_kernels import Kernel, Unavailable
from scsigmoid.benchmarks.timing import Clocked, Queued, Replayed, Timer
from scsigmoid.benchmarks.turns import DIRECTIONS, Candidate
from scsigmoid.errors import UserError
from scsigmoid.progress import log
from scsigmoid.training.devices import synchronise

CPU_NOTE = "CPU, reference attention, tiny shapes: not comparable with the paper"
# Largest relative error of output and gradients.  In bfloat16 fused kernels make about 0.003, plain
# PyTorch, which rounds the scores too, about 0.02.
TOLERANCE = {torch.bfloat16: 0.05, torch.float32: 1e-4}
# Single calls from Python of each kernel.
CALLS = 5
# Seconds of preparation (compiling, choosing) from which the log names the kernel.
LONG_PREPARATION = 5.0


class Wrong(Exception):
    """A kernel that computes something else; the message says by how much."""


def dtype_of(device: torch.device) -> torch.dtype:
    """The numbers' format: bfloat16 on a GPU, float32 on a CPU."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def prepare_case(
    inputs: Inputs, providers: Sequence[Provider], warmup_ms: float, device: torch.device
) -> list[Candidate]:
    """All kernels that suit a batch: made, checked and warm.

    Raises:
        UserError: if one of them has left the GPU unusable.
    """
    case = inputs.case
    found = []
    for provider in providers:
        if not provider.suits(case):
            continue
        candidate = Candidate(case, provider)
        found.append(candidate)
        begin = time.perf_counter()
        try:
            prepare(candidate, inputs, warmup_ms, device)
        except Unavailable as error:
            candidate.drop(str(error))
        except Exception as error:
            # Whatever a kernel of another project raises is a result of this benchmark.
            candidate.drop(reason(error))
            forget(error)
            check_alive(provider, case, device)
            release(device)
        seconds = time.perf_counter() - begin
        if seconds > LONG_PREPARATION:
            log(f"{provider.name}, {case.length:,} tokens: {seconds:.0f} s to prepare")
    return found


def prepare(candidate: Candidate, inputs: Inputs, warmup_ms: float, device: torch.device) -> None:
    """Make a kernel, check it as it will be timed, and warm it up.

    Raises:
        Unavailable: if it cannot run here.
        Wrong: if it computes something else.
    """
    provider = candidate.provider
    kernel = provider.prepare(inputs)
    if provider.matrices and device.type == "cuda":
        refuse_large(provider, inputs.case, dtype_of(device).itemsize, free_memory(device))
    calls = Clocked(kernel, inputs.in_layout(provider.layout), device)
    timer, candidate.note = timer_of(kernel, provider, calls)
    check(candidate, timer, inputs, device)
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


def refuse_large(provider: Provider, case: Case, itemsize: int, free: int) -> None:
    """Leave out a kernel whose n x n matrices will not fit.

    Args:
        provider: the kernel.
        case: the batch.
        itemsize: bytes of a number.
        free: bytes of the GPU's memory that are free.

    Raises:
        Unavailable: if they need more.
    """
    needed = provider.matrix_bytes(case, itemsize)
    if needed > free:
        raise Unavailable(
            f"left out: its n x n matrices need {needed / 2**30:.0f} GiB, {free / 2**30:.0f} GiB "
            "are free"
        )


def timer_of(kernel: Kernel, provider: Provider, calls: Clocked) -> tuple[Timer, str]:
    """How a kernel is timed on a device, and a note where that is not the usual way."""
    if calls.device.type == "cpu":
        return calls, CPU_NOTE
    if provider.matrices:
        return Queued(kernel, calls.tensors), ""
    # Whatever it chooses or compiles, it does now.
    calls.once()
    try:
        return Replayed(kernel, calls.tensors), ""
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        note = f"{provider.name} is timed without a CUDA graph ({first_line(error)})"
        forget(error)
    synchronise(calls.device)
    release(calls.device)
    return Queued(kernel, calls.tensors), note


def check(candidate: Candidate, timer: Timer, inputs: Inputs, device: torch.device) -> None:
    """Compare what a timer's kernel computes with float64; fills the candidate's ``error``.

    Raises:
        Wrong: if they differ.
    """
    provider = candidate.provider
    candidate.error, name = inputs.largest_error(
        provider.attention, provider.layout, *timer.results()
    )
    # Also where it is NaN.
    if not candidate.error <= TOLERANCE[dtype_of(device)]:
        raise Wrong(f"{name} has a relative error of {candidate.error:.2g}")


def check_again(
    candidates: Sequence[Candidate], batches: Mapping[Case, Inputs], device: torch.device
) -> None:
    """Check the kernels after their last turn; what is wrong by then loses its readings."""
    for candidate in candidates:
        if candidate.timer is None:
            continue
        try:
            check(candidate, candidate.timer, batches[candidate.case], device)
        except Wrong as error:
            candidate.drop(f"wrong after its last turn: {error}; readings dropped")


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


def forget(error: BaseException) -> None:
    """Let go of what the frames of an error hold, and of those that it followed on."""
    following: BaseException | None = error
    while following is not None:
        traceback.clear_frames(following.__traceback__)
        following = following.__context__


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU's memory that can be allocated, what torch has cached included."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def release(device: torch.device) -> None:
    """Give back memory that nothing holds any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def reason(error: Exception) -> str:
    """Why a kernel has no time, in one line."""
    if isinstance(error, Wrong):
        return f"wrong: {error}; not timed"
    if isinstance(error, torch.OutOfMemoryError):
        return "does not fit in memory"
    return f"failed: {type(error).__name__}: {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of an error's words, shortened."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else ""
