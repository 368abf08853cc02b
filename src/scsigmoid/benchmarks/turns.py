"""Timing the kernels of a group of shapes in turns."""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from scsigmoid.benchmarks.cases import SEED, Case
from scsigmoid.benchmarks.providers import Provider
from scsigmoid.benchmarks.timing import Timer
from scsigmoid.seeds import derive

DIRECTIONS = ("forward", "backward")
# Turns that a group takes at least, whatever its time: the 99 % interval of a kernel that is timed
# in every fourth turn needs eight readings.
LEAST_TURNS = 32
# A kernel that takes so many times as long as the median one is timed in every fourth turn only.
SLOW, SELDOM = 2.5, 4


@dataclass
class Candidate:
    """A kernel at a shape, and what was found of it.

    Attributes:
        timer: None where it cannot be timed; ``note`` says why.
        error: the largest relative error.
        calls: milliseconds of single calls, by direction.
        turns: milliseconds by direction, NaN for turns that it sat out.
    """

    case: Case
    provider: Provider
    timer: Timer | None = None
    error: float = math.nan
    note: str = ""
    calls: dict[str, list[float]] = field(default_factory=lambda: {key: [] for key in DIRECTIONS})
    turns: dict[str, list[float]] = field(default_factory=lambda: {key: [] for key in DIRECTIONS})

    def drop(self, note: str) -> None:
        """Forget its timer and all readings; the note says why."""
        self.timer, self.note = None, note
        for readings in (*self.calls.values(), *self.turns.values()):
            readings.clear()


def measure(
    candidates: Sequence[Candidate], iterations: int, seconds: float, device: torch.device
) -> int:
    """Time the kernels in turns; fills their ``turns``.

    Each turn has an order of its own: a kernel finds the GPU as cool, and its clock as high, as the
    one before it leaves them.  Ends after ``seconds`` if the turns take longer: the long runs of
    long sequences vary little, so fewer of them do.

    Returns:
        The number of turns.
    """
    timed = [(one, one.timer) for one in candidates if one.timer is not None]
    every = strides([sum(timer.once()) for _, timer in timed] if device.type == "cuda" else [])
    generator = np.random.default_rng(derive(SEED, "turns"))
    end = time.perf_counter() + seconds
    for turn in range(iterations):
        if turn >= LEAST_TURNS and time.perf_counter() > end:
            return turn
        for place in generator.permutation(len(timed)):
            candidate, timer = timed[place]
            sits_out = device.type == "cuda" and turn % every[place]
            times = (math.nan, math.nan) if sits_out else timer.once()
            for direction, milliseconds in zip(DIRECTIONS, times, strict=True):
                candidate.turns[direction].append(milliseconds)
    return iterations


def strides(milliseconds: Sequence[float]) -> list[int]:
    """In every which turn each kernel is timed, from the time that it takes."""
    if not milliseconds:
        return []
    slow = SLOW * statistics.median(milliseconds)
    return [SELDOM if one > slow else 1 for one in milliseconds]
