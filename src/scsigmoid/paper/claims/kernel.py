"""Measures of the kernel (section 4), from its benchmark."""

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.paper.claims.estimate import Estimate, Measure, absent
from scsigmoid.paper.claims.kernel_timings import (
    FLASH,
    KERNEL,
    OURS,
    at_peak,
    compared,
    shape_note,
    timings,
    untimed,
)
from scsigmoid.paper.labels import provider_label
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import STANDARD, in_panel, matched, mean_tflops, speed_ups


def rate(row: KernelRow) -> Estimate:
    """TFLOPS of a timing, with their interval."""
    return Estimate(
        value=row.tflops,
        low=row.tflops_low,
        high=row.tflops_high,
        evidence=KERNEL,
        note=shape_note(row),
    )


def peak_tflops(results: Results, claim: Claim) -> Estimate:
    """TFLOPS of a provider at the peak shape."""
    provider, direction = claim.of["provider"], claim.of["pass"]
    row = at_peak(timings(results, provider), direction)
    if row is None:
        return untimed(results, provider)
    return rate(row)


def peak_ratio(results: Results, claim: Claim) -> Estimate:
    """Our forward TFLOPS over a provider's at the peak shape; the ends from both intervals."""
    provider = claim.of["provider"]
    ours = at_peak(timings(results, OURS), "forward")
    theirs = at_peak(timings(results, provider), "forward")
    if ours is None or theirs is None:
        return untimed(results, provider if ours is not None else OURS)
    return Estimate(
        value=ours.tflops / theirs.tflops,
        low=ours.tflops_low / theirs.tflops_high,
        high=ours.tflops_high / theirs.tflops_low,
        evidence=KERNEL,
        note=shape_note(ours),
    )


def mean_speed_up(results: Results, claim: Claim) -> Estimate:
    """Mean over the shapes of standard PyTorch's time over a provider's; range as low and high."""
    provider = claim.of["provider"]
    rows, standard = timings(results, provider), timings(results, STANDARD)
    if not rows or not standard:
        return untimed(results, STANDARD if rows else provider)
    return spread(speed_ups(rows, standard, claim.of["padding"], claim.of["pass"]))


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
    ours, theirs = end(found, key=lambda pair: pair[1].milliseconds / pair[0].milliseconds)
    return Estimate(
        value=theirs.milliseconds / ours.milliseconds,
        low=theirs.milliseconds_low / ours.milliseconds_high,
        high=theirs.milliseconds_high / ours.milliseconds_low,
        evidence=KERNEL,
        note=shape_note(ours),
    )


def speed_up_lead(results: Results, claim: Claim) -> Estimate:
    """In how many passes our mean speed-up without padding exceeds that of a provider."""
    standard = timings(results, STANDARD)
    means = []
    for direction in ("forward", "backward"):
        for provider in (OURS, claim.of["provider"]):
            gains = speed_ups(timings(results, provider), standard, 0.0, direction)
            if not gains:
                return untimed(results, provider if standard else STANDARD)
            means.append(float(np.mean(gains)))
    ahead = [ours > theirs for ours, theirs in (means[:2], means[2:])]
    note = "mean speed-ups {:.3g} and {:.3g} forward, {:.3g} and {:.3g} backward".format(*means)
    return Estimate(value=sum(ahead), evidence=KERNEL, note=note)


def spread(values: list[float], scale: float = 1.0) -> Estimate:
    """Mean, smallest and largest."""
    if not values:
        return absent("no shape was timed with both", *KERNEL)
    return Estimate(
        value=float(np.mean(values)) * scale,
        low=min(values) * scale,
        high=max(values) * scale,
        evidence=KERNEL,
        note=f"mean and range over {len(values)} shapes",
    )


def padded_gain(results: Results, claim: Claim) -> Estimate:
    """Percent by which we are faster than FlashAttention-2 on padded sequences."""
    rows, theirs = timings(results, OURS), timings(results, "flash_attention_2")
    if not rows or not theirs:
        return untimed(results, "flash_attention_2" if rows else OURS)
    padding = max(row.padding for row in rows)
    gains = speed_ups(rows, theirs, padding, claim.of["pass"])
    return spread([gain - 1 for gain in gains], 100)


def mean_rate(results: Results, claim: Claim) -> Estimate:
    """Our mean TFLOPS over the shapes, with padding or without; range as low and high."""
    rows = timings(results, OURS)
    if not rows:
        return untimed(results, OURS)
    padding = max(row.padding for row in rows) if claim.of["padded"] else 0.0
    return spread([row.tflops for row in rows if in_panel(row, padding, claim.of["pass"])])


def padding_overhead(results: Results, claim: Claim) -> Estimate:
    """Percent by which padding lowers our mean TFLOPS."""
    rows = timings(results, OURS)
    if not rows:
        return untimed(results, OURS)
    padding = max(row.padding for row in rows)
    full = mean_tflops(rows, 0.0, claim.of["pass"])
    padded = mean_tflops(rows, padding, claim.of["pass"])
    note = f"mean TFLOPS {full:.4g} and {padded:.4g}"
    return Estimate(value=(1 - padded / full) * 100, evidence=KERNEL, note=note)


def fastest_share(results: Results, claim: Claim) -> Estimate:
    """Share of the shapes on which we match, or beat, each of the claim's providers.

    ``beats``: our interval must lie above theirs; otherwise it must not lie below.
    """
    beats = claim.of.get("beats", False)
    found = compared(results, claim.of["against"], claim.of.get("padding"))
    if not found:
        return untimed(results, claim.of["against"][0] if timings(results, OURS) else OURS)
    met = [
        all(
            ours.tflops_low > other.tflops_high if beats else ours.tflops_high >= other.tflops_low
            for other in others
        )
        for ours, others in found
    ]
    names = sorted({provider_label(row.provider) for _, others in found for row in others})
    note = f"against {' and '.join(names)} on {len(found)} shapes"
    return Estimate(value=float(np.mean(met)), evidence=KERNEL, note=note)


def lowest_latency_share(results: Results, _: Claim) -> Estimate:
    """Share of the shapes on which we take less time than the flash variants; certain as low."""
    found = compared(results, FLASH)
    if not found:
        return untimed(results, FLASH[0] if timings(results, OURS) else OURS)
    lead = [
        (
            ours.padding > 0,
            all(ours.milliseconds < other.milliseconds for other in others),
            all(ours.milliseconds_high < other.milliseconds_low for other in others),
        )
        for ours, others in found
    ]
    words = [
        f"{sum(won for of, won, _ in lead if of == padded)} of "
        f"{sum(of == padded for of, _, _ in lead)} shapes with{'' if padded else 'out'} padding"
        for padded in (False, True)
    ]
    value = float(np.mean([won for _, won, _ in lead]))
    return Estimate(
        value=value,
        low=float(np.mean([certain for _, _, certain in lead])),
        high=value,
        evidence=KERNEL,
        note="; ".join(words),
    )


def best_tflops(results: Results, claim: Claim) -> Estimate:
    """Highest TFLOPS of a provider."""
    rows = [
        row for row in timings(results, claim.of["provider"]) if row.direction == claim.of["pass"]
    ]
    if not rows:
        return untimed(results, claim.of["provider"])
    return rate(max(rows, key=lambda row: row.tflops))


def standard_slower(results: Results, _: Claim) -> Estimate:
    """Percent of TFLOPS by which standard attention lies behind the optimised kernels."""
    standard = timings(results, STANDARD)
    fast = [row for provider in (OURS, *FLASH) for row in timings(results, provider)]
    if not standard or not fast:
        return untimed(results, STANDARD if fast else OURS)
    ratios = [
        1 / gain
        for padding in sorted({row.padding for row in fast})
        for direction in ("forward", "backward")
        for gain in speed_ups(fast, standard, padding, direction)
    ]
    return spread([1 - ratio for ratio in ratios], 100)


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
        lowest_latency_share,
        best_tflops,
        standard_slower,
    )
}
