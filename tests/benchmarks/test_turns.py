"""Kernels are timed in turns."""

import math

import torch

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.providers import PROVIDERS
from scsigmoid.benchmarks.timing import Results
from scsigmoid.benchmarks.turns import Candidate, measure, strides

CASE = Case("paper", 8, 2, 32, (32,))


class Scripted:
    """A timer that takes a fixed time and notes when it was asked."""

    how = "script"

    def __init__(self, name: str, milliseconds: float, asked: list[str]) -> None:
        self.name, self.milliseconds, self.asked = name, milliseconds, asked

    def once(self) -> tuple[float, float]:
        self.asked.append(self.name)
        return self.milliseconds, 2 * self.milliseconds

    def results(self) -> Results:
        raise AssertionError("nothing here asks for results")


def test_every_turn_times_every_kernel_in_an_order_of_its_own() -> None:
    asked: list[str] = []
    candidates = [
        Candidate(CASE, PROVIDERS[0], Scripted(name, time, asked))
        for name, time in zip("abcd", (1.0, 1.1, 1.2, 9.0), strict=True)
    ]
    missing = Candidate(CASE, PROVIDERS[1])
    assert measure([*candidates, missing], 12, 60.0, torch.device("cuda")) == 12
    # Asked once to learn how long it takes; the slow one then in every fourth turn.
    assert [asked.count(name) for name in "abcd"] == [13, 13, 13, 4]
    slow = candidates[3].turns["forward"]
    assert [turn for turn, reading in enumerate(slow) if not math.isnan(reading)] == [0, 4, 8]
    assert candidates[1].turns["backward"] == [2.2] * 12
    assert missing.turns == {"forward": [], "backward": []}
    fast = [name for name in asked[4:] if name != "d"]
    orders = {tuple(fast[start : start + 3]) for start in range(0, len(fast), 3)}
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(orders) > 2


def test_slow_kernels_take_fewer_turns() -> None:
    assert strides([1.0, 1.2, 0.9, 2.4, 2.6]) == [1, 1, 1, 1, 1]
    assert strides([1.0, 1.2, 0.9, 2.4, 9.0]) == [1, 1, 1, 1, 4]
    assert strides([]) == []
