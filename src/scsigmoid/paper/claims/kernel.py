"""Measures of the kernel (section 4), from its benchmark.

Two kernels at one shape are compared round by round.  A mean over shapes has the mean of their
intervals' ends as its interval, which is wider than its own.
"""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.measurements import Interval
from scsigmoid.paper.claims.rules import (
    AbsentError,
    Estimate,
    above,
    all_above,
    allowed,
    counted,
    measure,
    number,
)
from scsigmoid.paper.labels import PASSES, provider_label
from scsigmoid.paper.reported import Claim, reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import (
    PAPER,
    STANDARD,
    in_panel,
    matched,
    measured,
    our_path,
    rate,
    ratio_of,
    speed_ups,
)

KERNEL = ("tables/kernel_speed.csv", "benchmarks/kernel.json")
FLASH = ("flash_attention_2", "flash_sigmoid")
# The paper's kernel; ours stands for it.
OURS = "triton_sigmoid"
NO_SHAPE = "no shape was timed with both"


def timings(results: Results, provider: str) -> list[KernelRow]:
    """The timings of a provider at the paper's shapes; ``triton_sigmoid`` is our kernel.

    Where a shape was timed packed and padded, the packed layout counts: it is what the models use,
    and both count valid tokens only.
    """
    name = our_path(results) if provider == OURS else provider
    found: dict[tuple[object, ...], KernelRow] = {}
    for row in measured(results.kernel):
        if row.provider == name and row.batch in PAPER:
            kept = found.get(row.shape)
            if kept is None or kept.layout != "packed":
                found[row.shape] = row
    return list(found.values())


def timed(results: Results, provider: str) -> list[KernelRow]:
    """The same; at least one.

    Raises:
        AbsentError: if it could not run.
    """
    return timings(results, provider) or untimed(results, provider)


def untimed(results: Results, provider: str) -> NoReturn:
    """Raise :class:`AbsentError` for a provider that could not run, with its own note."""
    name = our_path(results) if provider == OURS else provider
    notes = {row.note for row in results.kernel if row.provider == name and row.note}
    reason = f" ({'; '.join(sorted(notes))})" if notes else ""
    raise AbsentError(f"no time of {provider_label(name)}{reason}")


def described(row: KernelRow, shape: bool = True) -> str:
    """The kernel, which may stand for the paper's, the GPU and the shape in words."""
    place = f", {row.length:,} tokens, head dimension {row.head_dimension}" if shape else ""
    return f"{provider_label(row.provider)} on {row.device}{place}"


def ratio(results: Results, ours: KernelRow, theirs: KernelRow) -> Interval:
    """Our rate over theirs at one shape, paired by round."""
    return ratio_of(ours, theirs, results.config.benchmarks.kernel.confidence)


def mean_of(found: Sequence[Interval], row: KernelRow) -> Estimate:
    """Mean over shapes of the kernel of a row; the range is a note.

    Raises:
        AbsentError: if there are none.
    """
    if not found:
        raise AbsentError(NO_SHAPE)
    values = [one.value for one in found]
    note = (
        f"{described(row, shape=False)}, mean over {len(found)} shapes, which range from "
        f"{number(min(values))} to {number(max(values))}"
    )
    return Estimate(mean(found), note)


def mean(found: Sequence[Sequence[float]]) -> Interval:
    """Mean of estimates, and of the ends of their intervals."""
    return Interval(*(float(end) for end in np.mean(found, axis=0)))


def at_peak(results: Results, provider: str, direction: str) -> KernelRow:
    """The timing at the paper's peak shape, or at the longest one where that was not run.

    Raises:
        AbsentError: if there is none.
    """
    rows = timings(results, provider)
    chosen = [row for row in rows if row.direction == direction and row.padding == 0]
    dimension = reported()["tflops"]["shape"]["head_dimension"]
    return max(
        chosen or untimed(results, provider),
        key=lambda row: (row.length, row.head_dimension == dimension),
    )


@measure(*KERNEL)
def peak_tflops(results: Results, claim: Claim) -> Estimate:
    row = at_peak(results, claim.of["provider"], claim.of["pass"])
    return Estimate(rate(row), described(row))


@measure(*KERNEL)
def peak_ratio(results: Results, claim: Claim) -> Estimate:
    """Our forward TFLOPS over a provider's at the peak shape."""
    ours, provider = at_peak(results, OURS, "forward"), claim.of["provider"]
    same = [row for row in timings(results, provider) if row.shape == ours.shape]
    (theirs, *_) = same or untimed(results, provider)
    return Estimate(ratio(results, ours, theirs), described(ours))


@measure(*KERNEL)
def best_tflops(results: Results, claim: Claim) -> Estimate:
    provider = claim.of["provider"]
    rows = [row for row in timings(results, provider) if row.direction == claim.of["pass"]]
    best = max(rows or untimed(results, provider), key=lambda row: row.tflops)
    return Estimate(rate(best), described(best))


def gains(
    results: Results, provider: str, other: str, padding: float, direction: str
) -> list[tuple[Interval, KernelRow]]:
    """A provider's speed-up over another at each shape that both have."""
    rows, others = timed(results, provider), timed(results, other)
    found = matched(rows, others, padding, direction)
    return [(ratio(results, *pair), pair[0]) for pair in found]


def mean_gain(
    results: Results, provider: str, other: str, padding: float, direction: str
) -> Estimate:
    found = gains(results, provider, other, padding, direction)
    return mean_of([gain for gain, _ in found], timed(results, provider)[0])


@measure(*KERNEL)
def mean_speed_up(results: Results, claim: Claim) -> Estimate:
    """Mean over the shapes of standard PyTorch's time over a provider's."""
    of = claim.of
    return mean_gain(results, of["provider"], STANDARD, of["padding"], of["pass"])


@measure(*KERNEL)
def speed_up_end(results: Results, claim: Claim) -> Estimate:
    """The smallest or largest speed-up over standard PyTorch attention, with its own interval."""
    of = claim.of
    found = gains(results, of["provider"], STANDARD, of["padding"], of["pass"])
    if not found:
        raise AbsentError(NO_SHAPE)
    end = {"lowest": min, "highest": max}[of["end"]]
    speed_up, note = end((gain, described(row)) for gain, row in found)
    return Estimate(speed_up, note)


@measure(*KERNEL)
def speed_up_lead(results: Results, claim: Claim) -> Estimate:
    """In how many passes our mean speed-up without padding exceeds that of a provider."""
    timed(results, STANDARD)
    cases, words = [], []
    for direction in PASSES:
        ours, theirs = (
            mean_gain(results, name, STANDARD, 0.0, direction).value
            for name in (OURS, claim.of["provider"])
        )
        cases.append(above(ours.minus(theirs), 0))
        words.append(f"{ours.value:.3g} and {theirs.value:.3g} {direction}")
    return Estimate(counted(cases), f"mean speed-ups {', '.join(words)}")


def most_padding(rows: Sequence[KernelRow]) -> float:
    return max(row.padding for row in rows)


@measure(*KERNEL)
def padded_gain(results: Results, claim: Claim) -> Estimate:
    """Percent by which we are faster than FlashAttention-2 on padded sequences."""
    rows = timed(results, OURS)
    found = gains(results, OURS, "flash_attention_2", most_padding(rows), claim.of["pass"])
    return mean_of([gain.map(lambda end: (end - 1) * 100) for gain, _ in found], rows[0])


def mean_of_panel(rows: Sequence[KernelRow], padded: bool, direction: str) -> Estimate:
    padding = most_padding(rows) if padded else 0.0
    return mean_of([rate(row) for row in rows if in_panel(row, padding, direction)], rows[0])


@measure(*KERNEL)
def mean_rate(results: Results, claim: Claim) -> Estimate:
    """Our mean TFLOPS over the shapes, with padding or without."""
    return mean_of_panel(timed(results, OURS), claim.of["padded"], claim.of["pass"])


@measure(*KERNEL)
def padding_overhead(results: Results, claim: Claim) -> Estimate:
    """Percent by which padding lowers our mean TFLOPS; the ends from those of both means."""
    rows = timed(results, OURS)
    full, padded = (mean_of_panel(rows, which, claim.of["pass"]).value for which in (False, True))
    means = f"mean TFLOPS {full.value:.4g} and {padded.value:.4g}"
    overhead = padded.over(full).map(lambda share: (1 - share) * 100)
    return Estimate(overhead, f"{described(rows[0], shape=False)}, {means}")


@measure(*KERNEL)
def fastest_share(results: Results, claim: Claim) -> Estimate:
    """Share of the shapes on which we are as fast as each of the claim's providers.

    That is at more than ``1 - margin`` of their speed, round by round; ``low`` has the shapes where
    that is certain, ``high`` those where it is possible.  Each provider must have been timed;
    FlashSigmoid takes no padding, so that padded shapes are without it.
    """
    ours = timed(results, OURS)
    others = [row for provider in claim.of["against"] for row in timed(results, provider)]
    wanted, padding = 1 - claim.of["margin"], claim.of.get("padding")
    won: list[tuple[bool, ...]] = []
    words: dict[str, list[bool]] = {}
    for row in ours:
        same = [other for other in others if other.shape == row.shape]
        if not same or padding not in (None, row.padding):
            continue
        found = [ratio(results, row, other) for other in same]
        won.append(all_above(found, wanted))
        names = " and ".join(sorted(provider_label(other.provider) for other in same))
        words.setdefault(names, []).append(won[-1][0])
    if not won:
        raise AbsentError(NO_SHAPE)
    note = "; ".join(f"{sum(w)} of {len(w)} shapes against {names}" for names, w in words.items())
    return Estimate(mean(won), note)


@measure(*KERNEL)
def standard_slower(results: Results, claim: Claim) -> Estimate:
    """Percent of TFLOPS by which standard attention lies behind the optimised kernels: its range.

    A kernel that was not timed could only widen it.
    """
    standard = timed(results, STANDARD)
    fast = {name: timings(results, name) for name in (OURS, *FLASH)}
    rows = [row for found in fast.values() for row in found]
    behind = [
        (1 - 1 / gain) * 100
        for padding in sorted({row.padding for row in rows})
        for direction in PASSES
        for gain in speed_ups(rows, standard, padding, direction)
    ]
    if not behind:
        untimed(results, OURS)
    least, most, _ = allowed(claim)
    absent = [name for name, found in fast.items() if not found]
    if absent and least <= min(behind) and max(behind) <= most:
        untimed(results, absent[0])
    found = Interval(float(np.mean(behind)), min(behind), max(behind))
    return Estimate(found, f"mean and range over {len(behind)} shapes and kernels")
