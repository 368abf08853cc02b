"""Measures of training cost (section 4), from the throughput benchmark."""

from scsigmoid.paper.claims.estimate import Estimate, Measure, absent
from scsigmoid.paper.claims.kernel import padded_gain
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import Cost, costs, named_context, next_steps

THROUGHPUT = ("tables/training_cost.csv", "benchmarks/throughput.json")


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


def hours_saved(results: Results, claim: Claim) -> Estimate:
    """Hours that sigmoid saves; the ends from both intervals."""
    cost = cost_of(results, claim)
    if cost is None:
        return absent("this size and context was not measured", *THROUGHPUT)
    low, high = cost.hours_interval
    return Estimate(value=cost.hours, low=low, high=high, evidence=THROUGHPUT)


def growing_savings(results: Results, _: Claim) -> Estimate:
    """Steps to the next size or context at which the hours saved rise; certain ones as low."""
    steps = next_steps(costs(results), lambda cost: (cost.size, cost.context))
    if not steps:
        return absent("fewer than two configurations were measured", *THROUGHPUT)
    return Estimate(
        value=sum(more.hours > less.hours for less, more in steps),
        low=sum(more.hours_interval[0] > less.hours_interval[1] for less, more in steps),
        high=sum(not more.hours_interval[1] < less.hours_interval[0] for less, more in steps),
        evidence=THROUGHPUT,
        note=f"counted over {len(steps)} steps",
    )


def gain_beside_kernel(results: Results, claim: Claim) -> Estimate:
    """Largest gain of training throughput less the kernel's mean gain over FlashAttention-2.

    In points; the kernel's gain is that on padded sequences.
    """
    kernel, found = padded_gain(results, claim), costs(results)
    if kernel.missing or not found:
        return absent(kernel.missing or "no configuration was measured with both attentions")
    gain = max((cost.softmax.gpu_hours / cost.sigmoid.gpu_hours - 1) * 100 for cost in found)
    return Estimate(
        value=gain - kernel.value,
        evidence=(*kernel.evidence, *THROUGHPUT),
        note=f"training gains up to {gain:.1f} %, the kernel {kernel.value:.1f} %",
    )


MEASURES: dict[str, Measure] = {
    function.__name__: function
    for function in (
        gpu_hours,
        gpu_hours_saved,
        hours_saved,
        growing_savings,
        gain_beside_kernel,
        largest_saving,
        faster_configurations,
        saving_growth,
    )
}
