"""Times between marks."""

import time
from types import SimpleNamespace

import pytest
import torch

from scsigmoid.benchmarks.stopwatch import Stopwatch


def test_times_lie_between_the_marks() -> None:
    watch = Stopwatch(torch.device("cpu"))
    begin = time.perf_counter()
    for seconds in (0.0, 0.02, 0.001):
        time.sleep(seconds)
        watch.mark()
    whole = time.perf_counter() - begin
    first, second = watch.seconds()
    assert first >= 0.02
    assert second >= 0.001
    assert first + second <= whole


def test_without_two_marks_there_is_no_time() -> None:
    watch = Stopwatch(torch.device("cpu"))
    assert watch.seconds() == []
    watch.mark()
    assert watch.seconds() == []


class Gpu:
    """A GPU's queue and clock: ``launch`` puts work into it at a time of the host's."""

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

    def synchronize(self) -> None:
        self.host = max(self.free, self.host)


@pytest.mark.parametrize(
    ("host", "gpu", "wanted"),
    [
        pytest.param(0.03, 0.01, [0.01, 0.01, 0.01], id="the GPU waits for the host"),
        pytest.param(0.01, 0.03, [0.03, 0.05, 0.07], id="the host runs ahead"),
    ],
)
def test_how_far_a_gpu_is_behind_its_host(
    monkeypatch: pytest.MonkeyPatch, host: float, gpu: float, wanted: list[float]
) -> None:
    device = Gpu()
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    monkeypatch.setattr(time, "perf_counter", lambda: device.host)
    device.launch(host=0.0, gpu=5.0)
    watch = Stopwatch(torch.device("cuda"))
    watch.begin()
    for _ in range(3):
        device.launch(host=host, gpu=gpu)
        watch.mark()
    assert watch.behind() == pytest.approx(wanted)
    assert watch.seconds() == pytest.approx([max(host, gpu)] * 2)


def test_a_cpu_is_not_behind() -> None:
    watch = Stopwatch(torch.device("cpu"))
    watch.begin()
    watch.mark()
    assert watch.behind() == []
