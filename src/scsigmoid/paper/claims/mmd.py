"""Measures of the separation of cell types (section 5, tab:mmd_heart_oft)."""

from scsigmoid.measurements import Measurement
from scsigmoid.paper.claims.estimate import Estimate, Measure, absent
from scsigmoid.paper.claims.quality import lacking
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.mmd import Pair, improvement, mean_ratio, pair_rows


def mmd_of(results: Results, claim: Claim) -> tuple[str, list[Pair], str]:
    """The claim's dataset, its pairs, and why they cannot be had."""
    dataset = claim.datasets[0]
    reason = lacking(results, claim)
    if not reason and not (results.folder / f"metrics/mmd/{dataset}.csv").exists():
        reason = f"{dataset} is not among evaluation.mmd.datasets"
    if reason:
        return dataset, [], reason
    found = pair_rows(results, dataset)
    return dataset, found, "" if found else "no pair of cell types was measured"


def mmd_improvement(results: Results, claim: Claim) -> Estimate:
    """Percent by which sigmoid's MMD is higher, averaged as the claim says."""
    dataset, _, reason = mmd_of(results, claim)
    row = None if reason else mean_ratio(results, dataset, claim.of["mean"])
    if row is None:
        return absent(reason or "the mean ratio was not measured")
    other = mean_ratio(results, dataset, "mean_of_ratios")
    value, low, high = ((end - 1) * 100 for end in (row.value, row.low, row.high))
    return Estimate(
        value=value,
        low=low,
        high=high,
        evidence=(f"tables/mmd_{dataset}.csv",),
        note=f"ratio of the means; mean of the pairs' ratios {percent(other)}",
    )


def percent(row: Measurement | None) -> str:
    """A ratio as percent above 1."""
    return "unknown" if row is None else improvement(row)


def mmd_wins(results: Results, claim: Claim) -> Estimate:
    """On how many pairs of cell types sigmoid has the higher MMD."""
    dataset, found, reason = mmd_of(results, claim)
    if reason:
        return absent(reason)
    ratios = [row.ratio for row in found if row.ratio is not None]
    return Estimate(
        value=sum(row.sigmoid.value > row.softmax.value for row in found),
        low=sum(ratio.low > 1 for ratio in ratios),
        high=sum(not ratio.high < 1 for ratio in ratios),
        evidence=(f"tables/mmd_{dataset}.csv",),
        note=f"certain and possible ones of {len(found)} pairs",
    )


def mmd_pairs(results: Results, claim: Claim) -> Estimate:
    """Number of pairs of cell types."""
    dataset, found, reason = mmd_of(results, claim)
    if reason:
        return absent(reason)
    return Estimate(value=len(found), evidence=(f"tables/mmd_{dataset}.csv",))


def mmd_ratio(results: Results, claim: Claim) -> Estimate:
    """Sigmoid's MMD over softmax's for one pair of cell types, with its paired interval."""
    dataset, found, reason = mmd_of(results, claim)
    if reason:
        return absent(reason)
    types = {part.lower() for part in claim.of["pair"].split(" vs ")}
    for row in found:
        if {part.lower() for part in row.name.split(" vs ")} == types:
            if row.ratio is None:
                return absent("this pair has no paired ratio")
            return Estimate(
                value=row.ratio.value,
                low=row.ratio.low,
                high=row.ratio.high,
                evidence=(f"tables/mmd_{dataset}.csv",),
            )
    return absent("this pair of cell types was not measured")


MEASURES: dict[str, Measure] = {
    function.__name__: function for function in (mmd_improvement, mmd_wins, mmd_pairs, mmd_ratio)
}
