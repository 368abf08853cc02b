"""CUDA graphs of kernels: what they keep, and what is left where one fails.

A CPU stands in for the GPU: recording runs the calls, and a replay does nothing.
"""

import contextlib
import gc
import math
import time
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from scsigmoid.benchmarks import timing
from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.kernel import CALLS, Candidate, prepare, timer_of
from scsigmoid.benchmarks.providers import Kernel, chosen
from scsigmoid.benchmarks.timing import Clocked, Replayed, Stopwatch, Wrong, capturing

EMPTY = "The CUDA Graph is empty. This usually means that it was captured on a wrong stream."


@dataclass
class Capture:
    """What happens where a capture ends: an error, or a warning."""

    error: Exception | None = None
    warning: str = ""

    @contextlib.contextmanager
    def __call__(self, graph: object, pool: object) -> Iterator[None]:
        yield
        if self.warning:
            warnings.warn(self.warning, stacklevel=1)
        if self.error is not None:
            raise self.error


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Capture:
    names = ("Stream", "CUDAGraph", "_sleep", "synchronize", "current_stream", "stream")
    for name in (*names, "graph_pool_handle", "Event"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    torch.cuda.Event.return_value.elapsed_time.return_value = 1.0  # type: ignore[attr-defined]
    capture = Capture()
    monkeypatch.setattr(timing, "capture", capture)
    return capture


def kernel_with_lengths() -> tuple[Kernel, weakref.ref[Tensor]]:
    """Return a kernel that reads a tensor in its closure, as kernels read lengths."""
    lengths = torch.ones(3)
    return lambda q, k, v: q * k * v * lengths, weakref.ref(lengths)


def test_a_graph_keeps_the_tensors_that_it_reads(cuda: Capture) -> None:
    kernel, lengths = kernel_with_lengths()
    tensors = [*(torch.rand(3, requires_grad=True) for _ in range(3)), torch.rand(3)]
    read = [lengths, *(weakref.ref(one) for one in tensors)]
    timer = Replayed(kernel, tensors)
    del kernel, tensors
    gc.collect()
    assert all(one() is not None for one in read)
    assert min(timer.once()) > 0
    del timer
    gc.collect()
    assert all(one() is None for one in read)


def test_a_graph_without_a_kernel_is_refused(cuda: Capture) -> None:
    cuda.warning = EMPTY
    kernel, _ = kernel_with_lengths()
    tensors = [*(torch.rand(3, requires_grad=True) for _ in range(3)), torch.rand(3)]
    with pytest.raises(Wrong, match="the CUDA graph of its forward pass contains no kernel"):
        Replayed(kernel, tensors)


def test_other_warnings_are_ignored(cuda: Capture) -> None:
    cuda.warning = "deterministic algorithms are slow"
    with capturing(MagicMock(), (0, 7), "forward"):
        pass


CASE = Case("paper", 8, 2, 12, (12, 12))


@pytest.mark.parametrize(
    ("name", "end", "how", "note"),
    [
        ("pytorch", None, "events", ""),
        ("reference_sigmoid", None, "graph", ""),
        ("sdpa", RuntimeError("not permitted"), "events", "(not permitted)"),
    ],
)
def test_how_a_kernel_is_timed_on_a_gpu(
    cuda: Capture, name: str, end: Exception | None, how: str, note: str
) -> None:
    """As a graph, unless it stores n x n matrices or cannot be captured."""
    cuda.error = end
    (provider,) = chosen([name], "cpu")
    inputs = Inputs(CASE, torch.device("cpu"), torch.float32)
    kernel, tensors = provider.prepare(inputs), inputs.in_layout(provider.layout)
    timer, found = timer_of(kernel, provider, Clocked(kernel, tensors, torch.device("cuda")))
    assert timer.how == how
    assert found == (note and f"{name} is timed without a CUDA graph {note}")
    assert min(timer.once()) > 0


def test_our_own_kernel_must_be_capturable(cuda: Capture) -> None:
    cuda.error = RuntimeError("operation not permitted when stream is capturing")
    (provider,) = chosen(["reference_sigmoid"], "cpu")
    inputs = Inputs(CASE, torch.device("cpu"), torch.float32)
    calls = Clocked(provider.prepare(inputs), inputs.in_layout("packed"), torch.device("cuda"))
    with pytest.raises(RuntimeError, match="not permitted"):
        timer_of(calls.kernel, provider, calls)


def test_calls_from_python_are_also_timed(cuda: Capture) -> None:
    (provider,) = chosen(["pytorch"], "cpu")
    candidate = Candidate(CASE, provider)
    inputs = Inputs(CASE, torch.device("cpu"), torch.float32)
    prepare(candidate, inputs, 0, torch.device("cuda"))
    assert len(candidate.calls) == CALLS
    assert candidate.timer is not None
    assert candidate.error < 1e-5


def test_the_stopwatch_times_between_marks_on_a_cpu() -> None:
    watch = Stopwatch(torch.device("cpu"))
    time.sleep(0.02)
    watch.mark()
    time.sleep(0.001)
    watch.mark()
    assert 0.001 <= watch.seconds() <= watch.seconds(0) - 0.02
    assert math.isnan(watch.behind())


class Gpu:
    """A simulated GPU with a queue of launches, and the clocks of host and GPU."""

    def __init__(self) -> None:
        self.host = 100.0
        self.free = 0.0

    def launch(self, *, host: float, gpu: float) -> None:
        self.host += host
        self.free = max(self.free, self.host) + gpu

    def event(self, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        made = SimpleNamespace(synchronize=lambda: None)
        made.record = lambda: setattr(made, "at", max(self.free, self.host))
        made.elapsed_time = lambda end: (end.at - made.at) * 1e3
        return made

    def synchronize(self, _: torch.device) -> None:
        self.host = max(self.free, self.host)


@pytest.mark.parametrize(
    ("host", "gpu", "behind"),
    [
        pytest.param(0.03, 0.01, 0.01, id="the GPU waits for the host"),
        pytest.param(0.01, 0.03, 0.07, id="the host runs ahead"),
    ],
)
def test_how_far_a_gpu_is_behind_its_host(
    monkeypatch: pytest.MonkeyPatch, host: float, gpu: float, behind: float
) -> None:
    device = Gpu()
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    monkeypatch.setattr(time, "perf_counter", lambda: device.host)
    device.launch(host=0.0, gpu=5.0)
    watch = Stopwatch(torch.device("cuda"))
    for _ in range(3):
        device.launch(host=host, gpu=gpu)
        watch.mark()
    assert watch.behind() == pytest.approx(behind)
    assert watch.seconds() == pytest.approx(max(host, gpu))
    assert watch.seconds(0) == pytest.approx(2 * max(host, gpu) + host + gpu)
