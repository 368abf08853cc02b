"""Rates of our kernel over others', paired by round, and what the project aims at."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scsigmoid.benchmarks.rows import Interval, KernelRow, median_interval
from scsigmoid.kernels import OURS
from scsigmoid.paper.speed import measured

EXACT = tuple(f"{path}_accurate" for path in OURS)
PORTABLE = OURS[-1:]


@dataclass(frozen=True)
class Form:
    """Which timings of a provider are compared.

    Attributes:
        providers: names, the first that was timed counts; none: our own kernel of the other side.
        layout: ``packed``, ``padded`` or empty for any.
        batch: as in :class:`scsigmoid.benchmarks.cases.Case`.
        padded: whether at the largest share of padding that was timed, or at none.
    """

    providers: tuple[str, ...] = ()
    layout: str = ""
    batch: str = "paper"
    padded: bool = False


@dataclass(frozen=True)
class Goal:
    """A rate over another that the project aims at.

    Attributes:
        name: in the CSV.
        text: in words.
        direction: ``forward`` or ``backward``.
        wanted: the smallest ratio of TFLOPS, by head dimension.
        ours: the rate.
        theirs: what it is divided by.
        lengths: those that count; all that were timed where empty.
    """

    name: str
    text: str
    direction: str
    wanted: dict[int, float]
    ours: Form
    theirs: Form
    lengths: tuple[int, ...] = ()


LONG = (4096, 16384)
MIDDLE = (1024, 2048, 4096, 8192)
FAST = Form(OURS, "packed")
CUDNN = Form(("cudnn",))
FA4 = Form(("fa4",))
PUBLISHED = Form(("triton_sigmoid",))


def both(first: float, second: float) -> dict[int, float]:
    """What is wanted at head dimension 128, then at 64."""
    return {128: first, 64: second}


def each_pass(name: str, text: str, wanted: float, ours: Form, theirs: Form) -> tuple[Goal, Goal]:
    """One goal for both passes and both head dimensions."""
    forward, backward = (
        Goal(f"{name}_{way}", f"{text}, {way}", way, both(wanted, wanted), ours, theirs)
        for way in ("forward", "backward")
    )
    return forward, backward


GOALS = (
    Goal("fa4_forward", "Over FlashAttention-4, forward, 1K to 8K", "forward",
         both(1.18, 1.18), FAST, FA4, MIDDLE),
    Goal("fa4_backward", "Over FlashAttention-4, backward, 1K to 8K", "backward",
         both(1.10, 1.10), FAST, FA4, MIDDLE),
    Goal("fa4_forward_512", "Over FlashAttention-4, forward, 512", "forward",
         both(1.15, 1.15), FAST, FA4, (512,)),
    Goal("fa4_backward_512", "Over FlashAttention-4, backward, 512", "backward",
         both(1.05, 1.05), FAST, FA4, (512,)),
    Goal("fa4_forward_16k", "Exact sigmoid over FlashAttention-4, forward, 16K", "forward",
         both(1.10, 1.10), Form(EXACT, "packed"), FA4, (16384,)),
    Goal("fa4_backward_16k", "Exact sigmoid over FlashAttention-4, backward, 16K", "backward",
         both(1.08, 1.08), Form(EXACT, "packed"), FA4, (16384,)),
    Goal("fa4_cells_forward", "Over FlashAttention-4, forward, cells' lengths", "forward",
         both(1.18, 1.18), Form(OURS, "packed", "jagged"), Form(("fa4",), "packed", "jagged")),
    Goal("fa4_cells_backward", "Over FlashAttention-4, backward, cells' lengths", "backward",
         both(1.10, 1.10), Form(OURS, "packed", "jagged"), Form(("fa4",), "packed", "jagged")),
    Goal("flash_sigmoid_forward", "Over FlashSigmoid, forward, every length", "forward",
         {}, FAST, Form(("flash_sigmoid",))),
    Goal("flash_sigmoid_backward", "Over FlashSigmoid, backward, every length", "backward",
         {}, FAST, Form(("flash_sigmoid",))),
    Goal("cudnn_forward", "Over cuDNN's softmax, forward, 4K and 16K", "forward",
         both(1.18, 1.28), FAST, CUDNN, LONG),
    Goal("cudnn_backward", "Over cuDNN's softmax, backward, 4K and 16K", "backward",
         both(1.14, 1.22), FAST, CUDNN, LONG),
    Goal("cudnn_forward_all", "Over cuDNN's softmax, forward, every length", "forward",
         both(1.08, 1.10), FAST, CUDNN),
    Goal("cudnn_backward_all", "Over cuDNN's softmax, backward, every length", "backward",
         {}, FAST, CUDNN),
    Goal("published_forward", "Over triton-sigmoid, forward, 4K and 16K", "forward",
         both(1.45, 1.40), FAST, PUBLISHED, LONG),
    Goal("published_backward", "Over triton-sigmoid, backward, 4K and 16K", "backward",
         both(1.65, 1.75), FAST, PUBLISHED, LONG),
    Goal("exact_forward", "Exact sigmoid over cuDNN's softmax, forward, 4K and 16K", "forward",
         both(1.03, 1.03), Form(EXACT, "packed"), CUDNN, LONG),
    *each_pass("padding_padded", "Padding against none, padded layout", 0.96,
               Form(OURS, "padded", padded=True), Form(layout="padded")),
    *each_pass("padding_packed", "Padding against none, packed layout", 0.96,
               Form(OURS, "packed", padded=True), Form(layout="packed")),
    *each_pass("jagged", "Cells' lengths against equal ones of the same work", 0.94,
               Form(OURS, "packed", "jagged"), Form((), "packed", "even")),
    Goal("portable_forward", "Portable path over triton-sigmoid, forward, 4K and 16K", "forward",
         both(1.15, 1.25), Form(PORTABLE, "packed"), PUBLISHED, LONG),
    Goal("portable_backward", "Portable path over triton-sigmoid, backward, 4K and 16K", "backward",
         both(1.20, 1.25), Form(PORTABLE, "packed"), PUBLISHED, LONG),
)  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """Our rate over another's at one shape.

    Attributes:
        goal: what it belongs to.
        ours, theirs: the timings.
        interval: median over the rounds that timed both, with its interval.
        turns: their number.
    """

    goal: Goal
    ours: KernelRow
    theirs: KernelRow
    interval: Interval
    turns: int

    @property
    def wanted(self) -> float:
        """What the project aims at; NaN where it aims at nothing."""
        return self.goal.wanted.get(self.ours.head_dimension, math.nan)


def ratios(rows: Sequence[KernelRow], confidence: float) -> list[Ratio]:
    """All ratios that can be made of a benchmark's rows, in the order of the goals."""
    timings = measured(rows)
    found = []
    for goal in GOALS:
        for ours, theirs in pairs(timings, goal):
            values = paired(ours, theirs)
            if values:
                interval = ratio_of(ours, theirs, confidence)
                found.append(Ratio(goal, ours, theirs, interval, len(values)))
    return found


def ratio_of(ours: KernelRow, theirs: KernelRow, confidence: float) -> Interval:
    """Our rate over theirs: the median over the rounds that timed both, with its interval.

    Too few rounds for an interval leave the ends of both rates' intervals, which are wider.
    """
    values = paired(ours, theirs)
    if values and not math.isnan((found := median_interval(values, confidence)).low):
        return found
    return Interval(
        ours.tflops / theirs.tflops,
        ours.tflops_low / theirs.tflops_high,
        ours.tflops_high / theirs.tflops_low,
    )


def paired(ours: KernelRow, theirs: KernelRow) -> list[float]:
    """Our rate over theirs in each round that timed both."""
    work = ours.tflops * ours.milliseconds / (theirs.tflops * theirs.milliseconds)
    values = (work * other / own for own, other in zip(ours.rounds, theirs.rounds, strict=False))
    return [value for value in values if not math.isnan(value)]


def pairs(timings: Sequence[KernelRow], goal: Goal) -> Iterator[tuple[KernelRow, KernelRow]]:
    """The timings that a goal compares, shape by shape."""
    candidates = [timing for timing in timings if timing.direction == goal.direction]
    shapes = dict.fromkeys(
        (timing.head_dimension, timing.length)
        for timing in candidates
        if timing.batch == goal.ours.batch and (not goal.lengths or timing.length in goal.lengths)
    )
    for dimension, length in shapes:
        at_dimension = [timing for timing in candidates if timing.head_dimension == dimension]
        ours = select(at_dimension, goal.ours, length)
        if ours is None:
            continue
        same_length = goal.theirs.batch == goal.ours.batch
        theirs = select(at_dimension, goal.theirs, length if same_length else None, ours.provider)
        if theirs is not None:
            yield ours, theirs


def select(
    timings: Sequence[KernelRow], form: Form, length: int | None, ours: str = ""
) -> KernelRow | None:
    """The timing of a form; of any length where none is given."""
    padding = max((timing.padding for timing in timings), default=0.0) if form.padded else 0.0
    if form.padded and padding == 0:
        return None
    for provider in form.providers or (ours,):
        for timing in timings:
            if (
                timing.provider == provider
                and timing.batch == form.batch
                and timing.padding == padding
                and form.layout in ("", timing.layout)
                and length in (None, timing.length)
            ):
                return timing
    return None
