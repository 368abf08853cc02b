"""Our kernel against the others: ratios of TFLOPS beside what the project aims at."""

import math
from collections.abc import Sequence

from scsigmoid.paper.labels import context_label, provider_label
from scsigmoid.paper.ratios import GOALS, Goal, Ratio, ratios
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import device_words, notes
from scsigmoid.paper.tables.writing import DASH, Cell, Table, fixed, interval


def kernel_ratios(results: Results) -> Table:
    """Ratios of TFLOPS, paired by turn: the lowest and the highest over the shapes of each goal."""
    confidence = results.config.benchmarks.kernel.confidence
    found = ratios(results.kernel, confidence)
    dimensions = sorted(results.config.benchmarks.kernel.head_dimensions, reverse=True)
    rows = [
        goal_row(goal, dimension, [ratio for ratio in found if belongs(ratio, goal, dimension)])
        for goal in GOALS
        for dimension in dimensions
    ]
    machine = device_words(results.machine("kernel"))
    return Table(
        caption=f"Our attention kernel against others on {machine}. Ratios of TFLOPS on valid "
        "tokens, above 1 where ours is faster, beside the smallest ratio that this project aims "
        "at. A ratio is the median over the turns of one run, each of which timed both, with its "
        f"{confidence * 100:g} % interval; of several lengths the lowest and the highest are "
        "given.",
        columns=(
            "goal",
            "pass",
            "head_dimension",
            "length",
            "padding",
            "ours",
            "ours_layout",
            "ours_tflops",
            "theirs",
            "theirs_layout",
            "theirs_length",
            "theirs_tflops",
            "ratio",
            "ratio_low",
            "ratio_high",
            "turns",
            "wanted",
            "met",
        ),
        records=[record(ratio) for ratio in found],
        header=("Comparison", "Head dimension", "Wanted", "Lowest", "Highest", "Met"),
        rows=rows,
        align="lrrccc",
        notes=[
            "Met: yes where every interval lies at or above what is wanted, no where one lies "
            "below, else unclear.",
            *paths(found),
            *notes(results.kernel),
        ],
    )


def belongs(ratio: Ratio, goal: Goal, dimension: int) -> bool:
    """Whether a ratio is of this goal and head dimension."""
    return ratio.goal is goal and ratio.ours.head_dimension == dimension


def goal_row(goal: Goal, dimension: int, found: Sequence[Ratio]) -> list[Cell]:
    """One line: a goal at a head dimension."""
    wanted = fixed(goal.wanted.get(dimension, math.nan), 2)
    head = [Cell(goal.text), Cell(str(dimension)), Cell(wanted)]
    if not found:
        return [*head, Cell(DASH), Cell(DASH), Cell("not measured")]
    lowest = min(found, key=lambda ratio: ratio.interval.value)
    highest = max(found, key=lambda ratio: ratio.interval.value)
    return [
        *head,
        Cell(shown(lowest)),
        Cell(shown(highest) if highest is not lowest else DASH),
        Cell(verdict(found)),
    ]


def shown(ratio: Ratio) -> str:
    """A ratio with its interval and length."""
    return f"{interval(*ratio.interval, 3)} at {context_label(ratio.ours.length)}"


def verdict(found: Sequence[Ratio]) -> str:
    """Whether a goal is met at all shapes: ``yes``, ``no`` or ``unclear``; a dash without one."""
    each = {met(ratio) for ratio in found}
    return next(word for word in ("no", "unclear", DASH, "yes") if word in each)


def met(ratio: Ratio) -> str:
    """Whether the whole interval lies above what is wanted, below it, or neither."""
    low, high = (
        ratio.interval.value if math.isnan(end) else end
        for end in (ratio.interval.low, ratio.interval.high)
    )
    if math.isnan(ratio.wanted):
        return DASH
    if low >= ratio.wanted:
        return "yes"
    return "no" if high < ratio.wanted else "unclear"


def paths(found: Sequence[Ratio]) -> list[str]:
    """Which kernels of ours stand in the table."""
    names = dict.fromkeys(provider_label(ratio.ours.provider) for ratio in found)
    return [f"Ours: {'; '.join(names)}."] if names else []


def record(ratio: Ratio) -> Sequence[object]:
    """A CSV row."""
    ours, theirs = ratio.ours, ratio.theirs
    return (
        ratio.goal.name,
        ours.direction,
        ours.head_dimension,
        ours.length,
        ours.padding,
        ours.provider,
        ours.layout,
        ours.tflops,
        theirs.provider,
        theirs.layout,
        theirs.length,
        theirs.tflops,
        *ratio.interval,
        ratio.turns,
        ratio.wanted,
        "" if math.isnan(ratio.wanted) else met(ratio),
    )
