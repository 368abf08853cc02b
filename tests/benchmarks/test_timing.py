"""The choice of a timer, and the stopwatch, on simulated GPUs."""

import math
import time
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from scsigmoid.benchmarks import kernel
from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.kernel import timer_of
from scsigmoid.benchmarks.providers import choose_providers
from scsigmoid.benchmarks.timing import Clocked, Stopwatch


@pytest.mark.parametrize(
    ("name", "error", "method"),
    [
        ("pytorch", "", "events"),  # it stores n x n matrices, which a graph would keep
        ("reference_sigmoid", "", "graph"),
        ("sdpa", "not permitted", "events"),
        ("reference_sigmoid", "not permitted", "error"),  # our own kernel
    ],
)
def test_a_kernel_is_timed_as_a_graph_if_possible(
    monkeypatch: pytest.MonkeyPatch, name: str, error: str, method: str
) -> None:
    replayed = MagicMock(side_effect=RuntimeError(error) if error else None)
    replayed.return_value.method = "graph"
    monkeypatch.setattr(kernel, "Replayed", replayed)
    monkeypatch.setattr(torch.cuda, "synchronize", MagicMock())
    (provider,) = choose_providers([name], "cpu")
    inputs = Inputs(Case("paper", 8, 2, 12, (12, 12)), torch.device("cpu"))
    clocked = Clocked(provider.prepare(inputs), inputs.in_layout(provider.layout))
    clocked.device = torch.device("cuda")
    if method == "error":
        with pytest.raises(RuntimeError, match=error):
            timer_of(clocked, provider)
        return
    timer, note = timer_of(clocked, provider)
    assert timer.method == method
    assert error in note


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
