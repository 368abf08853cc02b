"""Timers, interleaved rounds and handling of failures, for both benchmarks."""

import gc
import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from scsigmoid.errors import UserError
from scsigmoid.model.devices import synchronize
from scsigmoid.progress import log
from scsigmoid.seeds import derive
from scsigmoid.training.graphs import capture

# Cycles for which the GPU is kept busy before the timed launches, about 0.2 ms. Meanwhile the
# launches are queued, so that the time between launches is not measured.
QUEUE_CYCLES = 400_000
# A graph is replayed for at least LEAST_MS in each reading, but at most MOST_REPLAYS times. The few
# microseconds between two replays then hardly count.
LEAST_MS = 1.0
MOST_REPLAYS = 10
# Number of runs before a graph is captured, which choose configurations and allocate workspaces.
WARM_RUNS = 3

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]
Results = tuple[Tensor, tuple[Tensor, ...]]  # output, gradients of q, k and v


class WrongResult(Exception):
    """A kernel computed a wrong result. The message names the tensor and its error."""


class OwnKernelError(Exception):
    """A kernel of this project raised an error or computed a wrong result."""


def out_of_memory(error: Exception) -> bool:
    """Return True if memory ran out. The CPU's allocator reports this by its message only."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, shortened."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else ""


def release_frames(error: BaseException | None) -> None:
    """Release the local variables, such as tensors, that the tracebacks of an error keep alive.

    Also release the variables of the errors during whose handling it was raised.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def release(device: torch.device) -> None:
    """Free the memory of unused tensors, also for other processes."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Entry(Protocol):
    """A kernel or model to time. ``drop`` discards its timer and readings, and keeps ``note``."""

    @property
    def name(self) -> str: ...

    @property
    def is_ours(self) -> bool: ...

    def drop(self, note: str) -> None: ...


@contextmanager
def record_failure(entry: Entry, setting: str, device: torch.device) -> Iterator[None]:
    """Drop an entry that fails in the block, and release the memory that the block used.

    A UserError explains why a kernel cannot run on this machine. Any other error of another
    project's kernel or of its compilation is a result of the benchmark. A kernel of this project
    may run out of memory, but must not fail in any other way.

    Raises:
        OwnKernelError: if a kernel of this project fails in any other way.
        UserError: if the failure left the GPU unusable. The message names ``setting``.
    """
    try:
        yield
    except UserError as error:
        entry.drop(str(error))
    except Exception as error:
        is_out_of_memory = out_of_memory(error)
        why = f"failed: {type(error).__name__}: {first_line(error)}"
        if isinstance(error, WrongResult):
            why = f"wrong: {error}"
        elif is_out_of_memory:
            why = "does not fit in memory"
        if entry.is_ours and not is_out_of_memory:
            raise OwnKernelError(f"{entry.name}: {why}") from error
        entry.drop(why)
        log(f"{entry.name}: {why}")
        release_frames(error)
        try:
            synchronize(device)
        except RuntimeError as broken:
            raise UserError(
                f"{setting}: {entry.name} broke the GPU's context: {first_line(broken)}; "
                "leave it out"
            ) from None
        release(device)


def rounds(count: int, least: int, most: int, seconds: float) -> Iterator[list[int]]:
    """Yield the order of ``count`` kernels in each of at most ``most`` rounds.

    The order is random, because the previous kernel affects the temperature of the GPU. After
    ``seconds`` no round starts, except for the first ``least`` rounds.
    """
    generator = np.random.default_rng(derive(0, "rounds"))
    end = time.perf_counter() + seconds
    for number in range(most):
        if number >= least and time.perf_counter() > end:
            return
        yield generator.permutation(count).tolist()


class Clocked:
    """Timer of single calls, by the host's clock. On a GPU times include the launch."""

    method = "clock"  # value of the column `timing`

    def __init__(self, kernel: Kernel, tensors: list[Tensor]) -> None:
        self.kernel, self.tensors, self.device = kernel, tensors, tensors[0].device

    def once(self) -> tuple[float, float]:
        """Return the milliseconds of a forward and of a backward pass."""
        q, k, v, gradient = self.tensors
        synchronize(self.device)
        begin = time.perf_counter()
        output = self.kernel(q, k, v)
        synchronize(self.device)
        middle = time.perf_counter()
        torch.autograd.grad(output, (q, k, v), gradient)
        synchronize(self.device)
        end = time.perf_counter()
        return (middle - begin) * 1e3, (end - middle) * 1e3

    def results(self) -> Results:
        """Compute the results in the same way as in timed runs."""
        return run_passes(self.kernel, self.tensors)


class Queued(Clocked):
    """Timer of calls that are queued behind other work, by GPU events."""

    method = "events"

    def once(self) -> tuple[float, float]:
        q, k, v, gradient = self.tensors
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        torch.cuda._sleep(QUEUE_CYCLES)
        events[0].record()
        output = self.kernel(q, k, v)
        events[1].record()
        torch.autograd.grad(output, (q, k, v), gradient)
        events[2].record()
        events[2].synchronize()
        return events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2])


class Replayed:
    """Timer of both passes as CUDA graphs, which excludes the work of Python and PyTorch.

    The tensors saved by the forward pass are kept, so that each graph can be replayed alone, any
    number of times, with the same results. A graph contains addresses, not tensors. Therefore the
    kernel, with the lengths and masks in its closure, and its inputs are kept, too.
    """

    method = "graph"

    def __init__(self, kernel: Kernel, tensors: list[Tensor]) -> None:
        self.kernel, self.tensors = kernel, tensors
        q, k, v, gradient = tensors
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_RUNS):
                run_passes(kernel, tensors)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        pool = torch.cuda.graph_pool_handle()
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with capturing(self.forward, pool, "forward"):
            self.output = kernel(q, k, v)
        with capturing(self.backward, pool, "backward"):
            self.gradients = torch.autograd.grad(
                self.output, (q, k, v), gradient, retain_graph=True
            )
        self.replays = tuple(
            max(1, min(MOST_REPLAYS, math.ceil(LEAST_MS / milliseconds(graph.replay))))
            for graph in (self.forward, self.backward)
        )

    def once(self) -> tuple[float, float]:
        forward, backward = (
            milliseconds(graph.replay, count)
            for graph, count in zip((self.forward, self.backward), self.replays, strict=True)
        )
        return forward, backward

    def results(self) -> Results:
        # A value that the graphs do not write stays NaN.
        for tensor in (self.output, *self.gradients):
            tensor.detach().fill_(math.nan)
        self.forward.replay()
        self.backward.replay()
        return self.output, self.gradients


Timer = Clocked | Replayed


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any, direction: str) -> Iterator[None]:
    """Capture the block as a CUDA graph. Raise :class:`WrongResult` if it launches no kernel."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        with capture(graph, pool):
            yield
    if any("Graph is empty" in str(each.message) for each in messages):
        raise WrongResult(f"the CUDA graph of its {direction} pass contains no kernel")


def milliseconds(launch: Callable[[], None], count: int = 1) -> float:
    """Return the mean time of ``count`` launches in a row, by GPU events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(QUEUE_CYCLES)
    begin.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def run_passes(kernel: Kernel, tensors: list[Tensor]) -> Results:
    q, k, v, gradient = tensors
    output = kernel(q, k, v)
    return output, torch.autograd.grad(output, (q, k, v), gradient)


class Stopwatch:
    """Stopwatch with marks. The first mark is set when the stopwatch is created.

    On a GPU marks are events, so that setting a mark does not wait and steps follow each other as
    in training. On a CPU marks are readings of the clock.
    """

    def __init__(self, device: torch.device) -> None:
        synchronize(device)
        self._device = device
        self._marks: list[tuple[torch.cuda.Event | None, float]] = []
        self.mark()

    def mark(self) -> None:
        """Mark the moment at which all work launched so far is done."""
        event = None
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._marks.append((event, time.perf_counter()))

    def seconds(self, start: int = -2) -> float:
        """Wait for the last mark, and return the time since the mark with index ``start``."""
        (first_event, first_time), (last_event, last_time) = self._marks[start], self._marks[-1]
        if first_event is None or last_event is None:
            return last_time - first_time
        last_event.synchronize()
        return first_event.elapsed_time(last_event) / 1e3

    def behind(self) -> float:
        """Return how many seconds after the host the GPU reached the last mark. NaN on a CPU.

        The result is close to zero if the GPU waits for the host's launches. If the host is faster,
        the result is a large part of a step or more, limited by the length of the launch queue.
        """
        if self._device.type == "cpu":
            return math.nan
        return self.seconds(0) - (self._marks[-1][1] - self._marks[0][1])
