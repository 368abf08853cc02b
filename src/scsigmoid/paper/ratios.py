"""Rates of our kernel over others', paired by round."""

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
class Comparison:
    """A rate over another.

    Attributes:
        name: in the CSV.
        text: in words.
        direction: ``forward`` or ``backward``.
        ours: the rate.
        theirs: what it is divided by.
        lengths: those that count; all that were timed where empty.
    """

    name: str
    text: str
    direction: str
    ours: Form
    theirs: Form
    lengths: tuple[int, ...] = ()


LONG = (4096, 16384)
MIDDLE = (1024, 2048, 4096, 8192)
FAST = Form(OURS, "packed")
CUDNN = Form(("cudnn",))
FA4 = Form(("fa4",))
PUBLISHED = Form(("triton_sigmoid",))


FLASH_SIGMOID = Form(("flash_sigmoid",))
CELLS = Form(OURS, "packed", "jagged")


def each_pass(
    name: str, text: str, ours: Form, theirs: Form, lengths: tuple[int, ...] = ()
) -> Iterator[Comparison]:
    """One comparison for both passes; ``{}`` stands for the pass."""
    for way in ("forward", "backward"):
        yield Comparison(name.format(way), text.format(way), way, ours, theirs, lengths)


COMPARISONS = (
    *each_pass("fa4_{}", "Over FlashAttention-4, {}, 1K to 8K", FAST, FA4, MIDDLE),
    *each_pass("fa4_{}_512", "Over FlashAttention-4, {}, 512", FAST, FA4, (512,)),
    *each_pass("fa4_{}_16k", "Exact sigmoid over FlashAttention-4, {}, 16K",
               Form(EXACT, "packed"), FA4, (16384,)),
    *each_pass("fa4_cells_{}", "Over FlashAttention-4, {}, cells' lengths",
               CELLS, Form(("fa4",), "packed", "jagged")),
    *each_pass("flash_sigmoid_{}", "Over FlashSigmoid, {}, every length", FAST, FLASH_SIGMOID),
    *each_pass("cudnn_{}", "Over cuDNN's softmax, {}, 4K and 16K", FAST, CUDNN, LONG),
    *each_pass("cudnn_{}_all", "Over cuDNN's softmax, {}, every length", FAST, CUDNN),
    *each_pass("published_{}", "Over triton-sigmoid, {}, 4K and 16K", FAST, PUBLISHED, LONG),
    Comparison("exact_forward", "Exact sigmoid over cuDNN's softmax, forward, 4K and 16K",
               "forward", Form(EXACT, "packed"), CUDNN, LONG),
    *each_pass("padding_padded_{}", "Padding against none, padded layout, {}",
               Form(OURS, "padded", padded=True), Form(layout="padded")),
    *each_pass("padding_packed_{}", "Padding against none, packed layout, {}",
               Form(OURS, "packed", padded=True), Form(layout="packed")),
    *each_pass("jagged_{}", "Cells' lengths against equal ones of the same work, {}",
               CELLS, Form((), "packed", "even")),
    *each_pass("portable_{}", "Portable path over triton-sigmoid, {}, 4K and 16K",
               Form(PORTABLE, "packed"), PUBLISHED, LONG),
)  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """Our rate over another's at one shape.

    Attributes:
        comparison: what it belongs to.
        ours, theirs: the timings.
        interval: median over the rounds that timed both, with its interval.
        rounds: their number.
    """

    comparison: Comparison
    ours: KernelRow
    theirs: KernelRow
    interval: Interval
    rounds: int


def ratios(rows: Sequence[KernelRow], confidence: float) -> list[Ratio]:
    """All ratios that can be made of a benchmark's rows, in the order of the comparisons."""
    timings = measured(rows)
    found = []
    for comparison in COMPARISONS:
        for ours, theirs in pairs(timings, comparison):
            values = paired(ours, theirs)
            if values:
                interval = ratio_of(ours, theirs, confidence)
                found.append(Ratio(comparison, ours, theirs, interval, len(values)))
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


def pairs(
    timings: Sequence[KernelRow], comparison: Comparison
) -> Iterator[tuple[KernelRow, KernelRow]]:
    """The timings that are compared, shape by shape."""
    candidates = [timing for timing in timings if timing.direction == comparison.direction]
    shapes = dict.fromkeys(
        (timing.head_dimension, timing.length)
        for timing in candidates
        if timing.batch == comparison.ours.batch
        and (not comparison.lengths or timing.length in comparison.lengths)
    )
    for dimension, length in shapes:
        at_dimension = [timing for timing in candidates if timing.head_dimension == dimension]
        ours = select(at_dimension, comparison.ours, length)
        if ours is None:
            continue
        same_length = comparison.theirs.batch == comparison.ours.batch
        theirs = select(
            at_dimension, comparison.theirs, length if same_length else None, ours.provider
        )
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
