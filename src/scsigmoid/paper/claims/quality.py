"""Measures of what models were trained on and how good they are (section 5)."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scsigmoid.measurements import Interval, mean_interval
from scsigmoid.paper.claims.rules import (
    AbsentError,
    Estimate,
    above,
    all_above,
    counted,
    measure,
    present,
)
from scsigmoid.paper.claims.stability import divergence
from scsigmoid.paper.labels import model_label
from scsigmoid.paper.reported import Claim, reported
from scsigmoid.paper.results import Journal, Results
from scsigmoid.paper.statistics import finite_or_inf, paired_difference
from scsigmoid.paper.tables.mmd import Pair, improvement, mean_ratio, pair_rows
from scsigmoid.paper.tables.quality import all_scores
from scsigmoid.paper.tables.setup import parameters as count

#: A model has converged when, over this last part of its steps, its loss changes by less than this
#: share of its whole fall.
LAST, FLAT = 0.25, 0.01
LENGTHS = ("figures/sequence_lengths.png", "tokens/lengths.parquet")
LOSS = "tables/validation_loss.csv"
CURVES = ("figures/loss.png", "training/{model}/journal.csv")


@measure(*LENGTHS)
def corpus_cells(results: Results, _: Claim) -> float:
    return results.training_cells


@measure(*LENGTHS)
def truncated_share(results: Results, claim: Claim) -> float:
    """Percent of the training cells with more genes than a context holds."""
    lengths, cells = results.lengths
    places = claim.of["context"] - results.config.tokens.cls
    share = cells[lengths > places].sum() / cells.sum()
    return float(share) * 100


@measure(*LENGTHS)
def shortest_cell(results: Results, _: Claim) -> float:
    """Fewest genes of a training cell."""
    return float(results.lengths[0][0])


@measure(*LENGTHS)
def longest_cell(results: Results, _: Claim) -> float:
    """Most genes of a training cell."""
    return float(results.lengths[0][-1])


@measure("tables/evaluation_datasets.csv")
def dataset_cells(results: Results, claim: Claim) -> float:
    return float(results.metadata(claim.of["dataset"])["cells"])


@measure("tables/model_architecture.csv")
def parameters(results: Results, _: Claim) -> float:
    return float(count(results))


def wins(
    results: Results, claim: Claim, comparisons: Sequence[tuple[str, Sequence[str]]], what: str
) -> Estimate:
    """How often, over datasets, a model has a lower validation loss than all of its rivals.

    The losses are paired by cell.  ``comparisons`` are models with their rivals.
    """
    cases = []
    for dataset in present(results, claim):
        for model, rivals in comparisons:
            leads = [paired_difference(results, dataset, rival, model) for rival in rivals]
            cases.append(all_above(leads, 0))
    return Estimate(counted(cases), f"certain and possible ones of {len(cases)} {what}")


def compared_models() -> list[list[str]]:
    """The paper's sigmoid and softmax model at each context, the shorter one first."""
    return [row["models"] for row in reported()["contexts"]]


@measure(LOSS)
def validation_loss_wins(results: Results, claim: Claim) -> Estimate:
    """In how many datasets and contexts sigmoid has the lower validation loss."""
    arms = [(sigmoid, [softmax]) for sigmoid, softmax in compared_models()]
    return wins(results, claim, arms, "comparisons")


@measure(LOSS)
def longer_context_wins(results: Results, claim: Claim) -> Estimate:
    """In how many datasets and attentions the longer context has the lower validation loss."""
    short, long = compared_models()
    contexts = [(model, [rival]) for model, rival in zip(long, short, strict=True)]
    return wins(results, claim, contexts, "comparisons")


@measure(LOSS)
def best_model_wins(results: Results, claim: Claim) -> Estimate:
    """On how many datasets a model has the lowest validation loss of all."""
    best = claim.of["model"]
    rivals = [model for model in claim.models if model != best]
    return wins(results, claim, [(best, rivals)], "datasets")


@measure()
def final_training_loss_lead(results: Results, claim: Claim) -> Estimate:
    """Training loss of a model minus the lowest of the others, over the last tenth of the steps."""
    own = claim.of["model"]
    last = final_losses(results, claim.models)
    others = [name for name in claim.models if name != own]
    other = min(others, key=lambda name: float(last[name].mean()))
    return final_difference(last, own, other, f"next best is {other}; ")


@measure()
def final_training_difference(results: Results, claim: Claim) -> Estimate:
    """Sigmoid's training loss minus softmax's, over the last tenth of the steps."""
    return final_difference(final_losses(results, claim.models), *claim.models)


def final_losses(results: Results, models: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Logged training losses of the last tenth of the steps, of at least two; infinite if lost."""
    losses = {name: finite_or_inf(results.journal(name)["loss"]) for name in models}
    rows = max(2, min(len(values) for values in losses.values()) // 10)
    return {name: values[-rows:] for name, values in losses.items()}


def final_difference(
    last: Mapping[str, NDArray[np.float64]], first: str, second: str, note: str = ""
) -> Estimate:
    """Mean difference of two models' last losses, paired by step, with its interval.

    Without one where a loss is not finite.
    """
    with np.errstate(invalid="ignore"):
        found = mean_interval(last[first] - last[second], 0.95)
    evidence = (CURVES[0], *(CURVES[1].format(model=name) for name in (first, second)))
    return Estimate(found, f"{note}{len(last[first])} logged steps", evidence)


@measure(*CURVES)
def converging_models(results: Results, claim: Claim) -> Estimate:
    """How many of the models' losses are level at the end: certainly, and possibly."""
    cases, words = [], []
    for name in claim.models:
        change = last_change(results.journal(name))
        if change is not None:
            value, low, high = change
            level = abs(value) < FLAT, max(-low, high) < FLAT, low < FLAT and high > -FLAT
            cases.append(level)
        shown = "diverges" if change is None else f"{change.value * 100:+.2g} %"
        words.append(f"{model_label(results.config, name)} {shown}")
    return Estimate(
        counted(cases),
        "change over the last quarter of the steps, as a share of the whole fall of the loss, to "
        f"be within {FLAT * 100:g} %: {', '.join(words)}",
    )


def last_change(journal: Journal) -> Interval | None:
    """Change of the loss over the last quarter of the steps, as a share of its whole fall.

    By least squares, with Student's 95 % interval of the slope; None for a run that diverges.
    """
    from scipy import stats

    steps, loss = journal["step"], journal["loss"]
    late = steps >= steps[-1] * (1 - LAST)
    if divergence(journal) is not None or not np.isfinite(loss[late]).all():
        return None
    if late.sum() < 3:
        raise AbsentError("fewer than three logged steps in the last quarter of a run")
    line = stats.linregress(steps[late], loss[late])
    fall = loss[int(np.argmax(np.isfinite(loss)))] - loss[late].mean()
    scale = float(np.ptp(steps[late]) / fall)
    half = float(stats.t.ppf(0.975, int(late.sum()) - 2) * line.stderr) * abs(scale)
    change = float(line.slope) * scale
    return Interval(change, change - half, change + half)


@measure(LOSS)
def validation_loss(results: Results, claim: Claim) -> Interval:
    return results.validation_loss(claim.of["dataset"], claim.of["model"]).interval


@measure(LOSS)
def validation_difference(results: Results, claim: Claim) -> Interval:
    """Validation loss of the first model minus that of the second, paired by cell."""
    of = claim.of
    return paired_difference(results, of["dataset"], of["first"], of["second"])


@measure()
def scib_wins(results: Results, claim: Claim) -> Estimate:
    """On how many datasets sigmoid has the higher score; the scores have no interval."""
    sigmoid, softmax = results.config.evaluation.pair
    metric, datasets = claim.of["metric"], present(results, claim)
    won = 0
    for dataset in datasets:
        scores = all_scores(results, dataset)
        if metric not in scores:
            raise AbsentError(f"{metric} is not among evaluation.scib.metrics")
        won += scores[metric][sigmoid].value > scores[metric][softmax].value
    evidence = ("tables/scib.csv", "figures/scib.png")
    return Estimate(Interval(won), f"counted over {len(datasets)} datasets", evidence)


# Separation of cell types (tab:mmd_heart_oft).


def mmd_pairs_of(results: Results, claim: Claim) -> tuple[tuple[str, ...], list[Pair]]:
    """The table of the claim's dataset, and the pairs of cell types.

    Raises:
        AbsentError: if they were not measured.
    """
    dataset = claim.datasets[0]
    if not (results.folder / f"metrics/mmd/{dataset}.csv").exists():
        raise AbsentError(f"{dataset} is not among evaluation.mmd.datasets")
    return (f"tables/mmd_{dataset}.csv",), pair_rows(results, dataset)


@measure()
def mmd_improvement(results: Results, claim: Claim) -> Estimate:
    """Percent by which sigmoid's MMD is higher, averaged as the claim says."""
    evidence, _ = mmd_pairs_of(results, claim)
    row = mean_ratio(results, claim.datasets[0], claim.of["mean"])
    other = mean_ratio(results, claim.datasets[0], "mean_of_ratios")
    note = f"ratio of the means; mean of the pairs' ratios {improvement(other)}"
    return Estimate(row.interval.map(lambda end: (end - 1) * 100), note, evidence)


@measure()
def mmd_wins(results: Results, claim: Claim) -> Estimate:
    """On how many pairs of cell types sigmoid has the higher MMD."""
    evidence, found = mmd_pairs_of(results, claim)
    cases = [
        (row.sigmoid.value > row.softmax.value, *above(row.ratio.interval, 1)[1:]) for row in found
    ]
    return Estimate(counted(cases), f"certain and possible ones of {len(found)} pairs", evidence)


@measure()
def mmd_pairs(results: Results, claim: Claim) -> Estimate:
    evidence, found = mmd_pairs_of(results, claim)
    return Estimate(Interval(len(found)), evidence=evidence)


@measure()
def mmd_ratio(results: Results, claim: Claim) -> Estimate:
    """Sigmoid's MMD over softmax's for one pair of cell types, with its paired interval."""
    evidence, found = mmd_pairs_of(results, claim)
    types = {part.lower() for part in claim.of["pair"].split(" vs ")}
    for row in found:
        if {part.lower() for part in row.name.split(" vs ")} == types:
            return Estimate(row.ratio.interval, evidence=evidence)
    raise AbsentError("this pair of cell types was not measured")
