"""Measures of the kernel (section 4), from its benchmark.

Two kernels at one shape are compared round by round.  A mean over shapes has the mean of their
intervals' ends as its interval, which is wider than its own.
"""

from collections.abc import Sequence

import numpy as np

from scsigmoid.benchmarks.intervals import Interval
from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.paper.claims.estimate import Estimate, Measure, absent
from scsigmoid.paper.claims.kernel_timings import (
    FLASH,
    KERNEL,
    OURS,
    at_peak,
    compared,
    kernel_note,
    shape_note,
    timings,
    untimed,
)
from scsigmoid.paper.claims.rules import allowed, number
from scsigmoid.paper.labels import provider_label
from scsigmoid.paper.ratios import ratio_of
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import STANDARD, in_panel, matched, speed_ups


def rate(row: KernelRow) -> Estimate:
    """TFLOPS of a timing, with their interval."""
    return Estimate(
        value=row.tflops,
        low=row.tflops_low,
        high=row.tflops_high,
        evidence=KERNEL,
        note=shape_note(row),
    )


def ratio(results: Results, ours: KernelRow, theirs: KernelRow) -> Interval:
    """Our rate over theirs at one shape, paired by round."""
    return ratio_of(ours, theirs, results.config.benchmarks.kernel.confidence)


def mean_of(found: Sequence[Interval], row: KernelRow) -> Estimate:
    """Mean over shapes of the kernel of a row; the range is a note."""
    if not found:
        return absent("no shape was timed with both", *KERNEL)
    values = [one.value for one in found]
    value, low, high = (float(mean) for mean in np.mean(found, axis=0))
    return Estimate(
        value=value,
        low=low,
        high=high,
        evidence=KERNEL,
        note=f"{kernel_note(row)}, mean over {len(found)} shapes, which range from "
        f"{number(min(values))} to {number(max(values))}",
    )


def peak_tflops(results: Results, claim: Claim) -> Estimate:
    """TFLOPS of a provider at the peak shape."""
    provider, direction = claim.of["provider"], claim.of["pass"]
    row = at_peak(timings(results, provider), direction)
    return untimed(results, provider) if row is None else rate(row)


def peak_ratio(results: Results, claim: Claim) -> Estimate:
    """Our forward TFLOPS over a provider's at the peak shape."""
    ours = at_peak(timings(results, OURS), "forward")
    if ours is None:
        return untimed(results, OURS)
    for theirs in timings(results, claim.of["provider"]):
        if theirs.shape == ours.shape:
            found = ratio(results, ours, theirs)
            return Estimate(**found._asdict(), evidence=KERNEL, note=shape_note(ours))
    return untimed(results, claim.of["provider"])


def gains(results: Results, provider: str, padding: float, direction: str) -> list[Interval]:
    """A provider's speed-up over standard PyTorch attention at each shape that both have."""
    rows, standard = timings(results, provider), timings(results, STANDARD)
    return [ratio(results, *pair) for pair in matched(rows, standard, padding, direction)]


def mean_speed_up(results: Results, claim: Claim) -> Estimate:
    """Mean over the shapes of standard PyTorch's time over a provider's."""
    provider = claim.of["provider"]
    for name in (provider, STANDARD):
        if not timings(results, name):
            return untimed(results, name)
    found = gains(results, provider, claim.of["padding"], claim.of["pass"])
    return mean_of(found, timings(results, provider)[0])


def speed_up_end(results: Results, claim: Claim) -> Estimate:
    """The smallest or largest speed-up over standard PyTorch attention, with its own interval."""
    provider = claim.of["provider"]
    rows, standard = timings(results, provider), timings(results, STANDARD)
    if not rows or not standard:
        return untimed(results, STANDARD if rows else provider)
    found = matched(rows, standard, claim.of["padding"], claim.of["pass"])
    if not found:
        return absent("no shape was timed with both", *KERNEL)
    end = {"lowest": min, "highest": max}[claim.of["end"]]
    speed_up, note = end((ratio(results, *pair), shape_note(pair[0])) for pair in found)
    return Estimate(**speed_up._asdict(), evidence=KERNEL, note=note)


def speed_up_lead(results: Results, claim: Claim) -> Estimate:
    """In how many passes our mean speed-up without padding exceeds that of a provider."""
    means = []
    for direction in ("forward", "backward"):
        for provider in (OURS, claim.of["provider"]):
            found = gains(results, provider, 0.0, direction)
            if not found:
                return untimed(results, provider if timings(results, STANDARD) else STANDARD)
            means.append(mean_of(found, timings(results, provider)[0]))
    passes = [means[:2], means[2:]]
    words = "mean speed-ups {:.3g} and {:.3g} forward, {:.3g} and {:.3g} backward"
    return Estimate(
        value=sum(ours.value > theirs.value for ours, theirs in passes),
        low=sum(ours.low > theirs.high for ours, theirs in passes),
        high=sum(ours.high > theirs.low for ours, theirs in passes),
        evidence=KERNEL,
        note=words.format(*(mean.value for mean in means)),
    )


def padded_gain(results: Results, claim: Claim) -> Estimate:
    """Percent by which we are faster than FlashAttention-2 on padded sequences."""
    rows, theirs = timings(results, OURS), timings(results, "flash_attention_2")
    if not rows or not theirs:
        return untimed(results, "flash_attention_2" if rows else OURS)
    padding = max(row.padding for row in rows)
    found = [ratio(results, *pair) for pair in matched(rows, theirs, padding, claim.of["pass"])]
    percent = [Interval(*((end - 1) * 100 for end in one)) for one in found]
    return mean_of(percent, rows[0])


def mean_rate(results: Results, claim: Claim) -> Estimate:
    """Our mean TFLOPS over the shapes, with padding or without."""
    rows = timings(results, OURS)
    if not rows:
        return untimed(results, OURS)
    padding = max(row.padding for row in rows) if claim.of["padded"] else 0.0
    return mean_of(rates(rows, padding, claim.of["pass"]), rows[0])


def rates(rows: Sequence[KernelRow], padding: float, direction: str) -> list[Interval]:
    """TFLOPS at each shape of a panel."""
    return [
        Interval(row.tflops, row.tflops_low, row.tflops_high)
        for row in rows
        if in_panel(row, padding, direction)
    ]


def padding_overhead(results: Results, claim: Claim) -> Estimate:
    """Percent by which padding lowers our mean TFLOPS; the ends from those of both means."""
    rows = timings(results, OURS)
    if not rows:
        return untimed(results, OURS)
    paddings = (0.0, max(row.padding for row in rows))
    full, padded = (
        mean_of(rates(rows, padding, claim.of["pass"]), rows[0]) for padding in paddings
    )
    return Estimate(
        value=(1 - padded.value / full.value) * 100,
        low=(1 - padded.high / full.low) * 100,
        high=(1 - padded.low / full.high) * 100,
        evidence=KERNEL,
        note=f"{kernel_note(rows[0])}, mean TFLOPS {full.value:.4g} and {padded.value:.4g}",
    )


def fastest_share(results: Results, claim: Claim) -> Estimate:
    """Share of the shapes on which we are as fast as each of the claim's providers.

    That is at more than ``1 - margin`` of their speed, round by round; ``low`` has the shapes where
    that is certain, ``high`` those where it is possible.  Each provider must have been timed;
    FlashSigmoid takes no padding, so that padded shapes are without it.
    """
    against = claim.of["against"]
    for name in (OURS, *against):
        if not timings(results, name):
            return untimed(results, name)
    wanted = 1 - claim.of["margin"]
    value: list[bool] = []
    low: list[bool] = []
    high: list[bool] = []
    words: dict[str, list[bool]] = {}
    for ours, others in compared(results, against, claim.of.get("padding")):
        found = [ratio(results, ours, other) for other in others]
        value.append(all(one.value > wanted for one in found))
        low.append(all(one.low > wanted for one in found))
        high.append(all(one.high > wanted for one in found))
        names = " and ".join(sorted(provider_label(other.provider) for other in others))
        words.setdefault(names, []).append(value[-1])
    return Estimate(
        value=float(np.mean(value)),
        low=float(np.mean(low)),
        high=float(np.mean(high)),
        evidence=KERNEL,
        note="; ".join(
            f"{sum(won)} of {len(won)} shapes against {names}" for names, won in words.items()
        ),
    )


def best_tflops(results: Results, claim: Claim) -> Estimate:
    """Highest TFLOPS of a provider."""
    rows = [
        row for row in timings(results, claim.of["provider"]) if row.direction == claim.of["pass"]
    ]
    if not rows:
        return untimed(results, claim.of["provider"])
    return rate(max(rows, key=lambda row: row.tflops))


def standard_slower(results: Results, claim: Claim) -> Estimate:
    """Percent of TFLOPS by which standard attention lies behind the optimised kernels: its range.

    A kernel that was not timed could only widen it.
    """
    standard = timings(results, STANDARD)
    if not standard:
        return untimed(results, STANDARD)
    fast = [row for provider in (OURS, *FLASH) for row in timings(results, provider)]
    behind = [
        (1 - 1 / gain) * 100
        for padding in sorted({row.padding for row in fast})
        for direction in ("forward", "backward")
        for gain in speed_ups(fast, standard, padding, direction)
    ]
    if not behind:
        return untimed(results, OURS)
    least, most, _ = allowed(claim)
    absent_ones = [name for name in (OURS, *FLASH) if not timings(results, name)]
    if absent_ones and least <= min(behind) and max(behind) <= most:
        return untimed(results, absent_ones[0])
    return Estimate(
        value=float(np.mean(behind)),
        low=min(behind),
        high=max(behind),
        evidence=KERNEL,
        note=f"mean and range over {len(behind)} shapes and kernels",
    )


MEASURES: dict[str, Measure] = {
    function.__name__: function
    for function in (
        peak_tflops,
        peak_ratio,
        mean_speed_up,
        speed_up_end,
        speed_up_lead,
        padded_gain,
        mean_rate,
        padding_overhead,
        fastest_share,
        best_tflops,
        standard_slower,
    )
}
