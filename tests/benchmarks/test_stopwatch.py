"""Times between marks."""

import time

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
