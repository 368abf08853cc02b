"""Measures of the kernel and of training cost (section 4), from the benchmarks."""

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.paper.claims.estimate import Estimate, Measure, absent
from scsigmoid.paper.labels import provider_label
from scsigmoid.paper.reported import Claim, reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import (
    PAPER,
    STANDARD,
    Cost,
    costs,
    mean_tflops,
    measured,
    named_context,
    our_path,
    speed_ups,
)

KERNEL = ("tables/kernel_speed.csv", "benchmarks/kernel.json")
THROUGHPUT = ("tables/training_cost.csv", "benchmarks/throughput.json")
FLASH = ("flash_attention_2", "flash_sigmoid")
# The paper's kernel; ours stands for it.
OURS = "triton_sigmoid"


def provider_of(results: Results, provider: str) -> str:
    """The provider that stands for one of the paper: for its own kernel ours does."""
    return our_path(results) if provider == OURS else provider


def timings(results: Results, provider: str) -> list[KernelRow]:
    """The timings of a provider at the paper's shapes; ``triton_sigmoid`` is our kernel.

    Where a shape was timed packed and padded, the packed layout counts: it is what the models use,
    and both count valid tokens only.
    """
    name = provider_of(results, provider)
    found: dict[tuple[object, ...], KernelRow] = {}
    for row in measured(results.kernel):
        if row.provider == name and row.batch in PAPER:
            kept = found.get(row.shape)
            if kept is None or kept.layout != "packed":
                found[row.shape] = row
    return list(found.values())


def untimed(results: Results, provider: str) -> Estimate:
    """A provider that could not run, with its own note."""
    name = provider_of(results, provider)
    notes = {row.note for row in results.kernel if row.provider == name and row.note}
    reason = f" ({'; '.join(sorted(notes))})" if notes else ""
    return absent(f"no time of {provider_label(name)}{reason}", *KERNEL)


def at_peak(rows: list[KernelRow], direction: str) -> KernelRow | None:
    """The timing at the paper's peak shape, or at the longest one where that was not run."""
    chosen = [row for row in rows if row.direction == direction and row.padding == 0]
    shape = reported()["tflops"]["shape"]
    if not chosen:
        return None
    return max(
        chosen,
        key=lambda row: (row.length, row.head_dimension == shape["head_dimension"]),
    )


def shape_note(row: KernelRow) -> str:
    """The shape in words."""
    return f"{row.length:,} tokens, head dimension {row.head_dimension}"


def peak_tflops(results: Results, claim: Claim) -> Estimate:
    """TFLOPS of a provider at the peak shape."""
    provider, direction = claim.of["provider"], claim.of["pass"]
    row = at_peak(timings(results, provider), direction)
    if row is None:
        return untimed(results, provider)
    return Estimate(
        value=row.tflops,
        low=row.tflops_low,
        high=row.tflops_high,
        evidence=KERNEL,
        note=shape_note(row),
    )


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


def fastest_share(results: Results, _: Claim) -> Estimate:
    """Share of the shapes on which no flash variant is certain to be faster than we are."""
    rows = timings(results, OURS)
    others = [row for provider in FLASH for row in timings(results, provider)]
    if not rows or not others:
        return untimed(results, FLASH[0] if rows else OURS)
    met = [
        all(row.tflops_high >= other.tflops_low for other in others if other.shape == row.shape)
        for row in rows
    ]
    names = sorted({provider_label(row.provider) for row in others})
    note = f"against {' and '.join(names)} on {len(rows)} shapes"
    return Estimate(value=float(np.mean(met)), evidence=KERNEL, note=note)


def best_tflops(results: Results, claim: Claim) -> Estimate:
    """Highest TFLOPS of a provider."""
    rows = [
        row for row in timings(results, claim.of["provider"]) if row.direction == claim.of["pass"]
    ]
    if not rows:
        return untimed(results, claim.of["provider"])
    best = max(rows, key=lambda row: row.tflops)
    return Estimate(
        value=best.tflops,
        low=best.tflops_low,
        high=best.tflops_high,
        evidence=KERNEL,
        note=shape_note(best),
    )


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


def cost_of(results: Results, claim: Claim) -> Cost | None:
    """The cost of the claim's size and context."""
    context = named_context(results, claim.of["context"])
    for cost in costs(results):
        if (cost.size, cost.context) == (claim.of["size"], context):
            return cost
    return None


def gpu_hours(results: Results, claim: Claim) -> Estimate:
    """Hours of one device for all cells."""
    cost = cost_of(results, claim)
    if cost is None:
        return absent("this size and context was not measured", *THROUGHPUT)
    row = getattr(cost, claim.of["attention"])
    return Estimate(
        value=row.gpu_hours,
        low=row.gpu_hours_low,
        high=row.gpu_hours_high,
        evidence=THROUGHPUT,
        note=f"{row.backend}, {row.layout}, {row.device}",
    )


def gpu_hours_saved(results: Results, claim: Claim) -> Estimate:
    """Percent of the hours that sigmoid saves; the ends from both intervals."""
    cost = cost_of(results, claim)
    if cost is None:
        return absent("this size and context was not measured", *THROUGHPUT)
    low, high = cost.saved_interval
    return Estimate(value=cost.saved, low=low, high=high, evidence=THROUGHPUT)


def largest_saving(results: Results, _: Claim) -> Estimate:
    """The largest percentage of hours that sigmoid saves anywhere."""
    found = costs(results)
    if not found:
        return absent("no configuration was measured with both attentions", *THROUGHPUT)
    best = max(found, key=lambda cost: cost.saved)
    low, high = best.saved_interval
    note = f"{best.size} at {best.context:,} tokens"
    return Estimate(value=best.saved, low=low, high=high, evidence=THROUGHPUT, note=note)


def faster_configurations(results: Results, _: Claim) -> Estimate:
    """In how many configurations sigmoid takes fewer hours."""
    found = costs(results)
    return Estimate(
        value=sum(cost.saved > 0 for cost in found),
        low=sum(cost.saved_interval[0] > 0 for cost in found),
        high=sum(not cost.saved_interval[1] < 0 for cost in found),
        evidence=THROUGHPUT,
        note=f"counted over {len(found)} configurations",
    )


def saving_growth(results: Results, claim: Claim) -> Estimate:
    """Points by which the saving grows from the first to the second context."""
    wanted = [named_context(results, context) for context in claim.of["contexts"]]
    saved = {cost.context: cost for cost in costs(results) if cost.size == claim.of["size"]}
    if any(context not in saved for context in wanted):
        return absent("not measured at both contexts", *THROUGHPUT)
    short, long = (saved[context] for context in wanted if context is not None)
    return Estimate(
        value=long.saved - short.saved,
        low=long.saved_interval[0] - short.saved_interval[1],
        high=long.saved_interval[1] - short.saved_interval[0],
        evidence=THROUGHPUT,
    )


MEASURES: dict[str, Measure] = {
    function.__name__: function
    for function in (
        peak_tflops,
        peak_ratio,
        mean_speed_up,
        padded_gain,
        padding_overhead,
        fastest_share,
        best_tflops,
        standard_slower,
        gpu_hours,
        gpu_hours_saved,
        largest_saving,
        faster_configurations,
        saving_growth,
    )
}
