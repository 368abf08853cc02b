"""Measures of what models were trained on and how good they are (section 5)."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scsigmoid.paper.claims.estimate import Estimate, Measure, absent
from scsigmoid.paper.claims.stability import divergence
from scsigmoid.paper.labels import model_label, pairs
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Journal, Results
from scsigmoid.paper.statistics import Interval, mean_interval, paired_difference
from scsigmoid.paper.tables.quality import all_scores
from scsigmoid.paper.tables.setup import parameters as count

#: A model has converged when, over this last part of its steps, its loss changes by less than this
#: share of its whole fall.
LAST, FLAT = 0.25, 0.01
LENGTHS = ("figures/sequence_lengths.png", "tokens/lengths.parquet")


def corpus_cells(results: Results, _: Claim) -> Estimate:
    """Number of training cells."""
    return Estimate(value=results.training_cells, evidence=LENGTHS)


def truncated_share(results: Results, claim: Claim) -> Estimate:
    """Percent of the training cells with more genes than a context holds."""
    lengths, cells = results.lengths
    share = cells[lengths >= claim.of["context"]].sum() / cells.sum()
    return Estimate(value=float(share) * 100, evidence=LENGTHS)


def shortest_cell(results: Results, _: Claim) -> Estimate:
    """Fewest genes of a training cell."""
    return Estimate(value=float(results.lengths[0][0]), evidence=LENGTHS)


def longest_cell(results: Results, _: Claim) -> Estimate:
    """Most genes of a training cell."""
    return Estimate(value=float(results.lengths[0][-1]), evidence=LENGTHS)


def dataset_cells(results: Results, claim: Claim) -> Estimate:
    """Number of cells of an evaluation dataset."""
    dataset = claim.of["dataset"]
    if dataset not in results.config.datasets:
        return absent("not among the datasets")
    cells = float(results.facts(dataset)["cells"])
    return Estimate(value=cells, evidence=("tables/evaluation_datasets.csv",))


def parameters(results: Results, _: Claim) -> Estimate:
    """Parameters of the configured encoder."""
    evidence = ("tables/model_architecture.csv",)
    return Estimate(value=float(count(results)), evidence=evidence)


def present(results: Results, claim: Claim) -> list[str]:
    """The claim's datasets that were evaluated."""
    return [name for name in claim.datasets if name in results.config.datasets]


def lacking(results: Results, claim: Claim) -> str:
    """Why nothing can be computed: a model or every dataset is not there."""
    for name in claim.models:
        if name not in results.config.models:
            return f"there is no model {name}"
    if claim.datasets and not present(results, claim):
        return "none of the datasets was evaluated"
    return ""


def wins(differences: list[Interval], evidence: tuple[str, ...]) -> Estimate:
    """How many differences are below 0; ``low`` counts those whose interval is, ``high`` those
    whose interval is not above 0."""
    return Estimate(
        value=sum(found.value < 0 for found in differences),
        low=sum(found.high < 0 for found in differences),
        high=sum(not found.low > 0 for found in differences),
        evidence=evidence,
        note=f"certain and possible ones of {len(differences)} comparisons",
    )


def validation_loss_wins(results: Results, claim: Claim) -> Estimate:
    """In how many datasets and contexts sigmoid has the lower validation loss, paired by cell."""
    if reason := lacking(results, claim):
        return absent(reason)
    compared = [pair for pair in pairs(results.config) if set(pair) <= set(claim.models)]
    differences = [
        paired_difference(results, dataset, sigmoid, softmax)
        for dataset in present(results, claim)
        for sigmoid, softmax in compared
    ]
    return wins(differences, ("tables/validation_loss.csv",))


def longer_context_wins(results: Results, claim: Claim) -> Estimate:
    """In how many datasets and attentions the longer context has the lower loss, paired by cell."""
    if reason := lacking(results, claim):
        return absent(reason)
    (short_sigmoid, short_softmax), (long_sigmoid, long_softmax) = pairs(results.config)[:2]
    differences = [
        paired_difference(results, dataset, long, short)
        for dataset in present(results, claim)
        for long, short in ((long_sigmoid, short_sigmoid), (long_softmax, short_softmax))
    ]
    return wins(differences, ("tables/validation_loss.csv",))


def best_model_wins(results: Results, claim: Claim) -> Estimate:
    """On how many datasets a model has the lowest validation loss of all, paired by cell."""
    if reason := lacking(results, claim):
        return absent(reason)
    best = claim.of["model"]
    rivals = [model for model in claim.models if model != best]
    found = [
        [paired_difference(results, dataset, best, model) for model in rivals]
        for dataset in present(results, claim)
    ]
    return Estimate(
        value=sum(all(rival.value < 0 for rival in rivals) for rivals in found),
        low=sum(all(rival.high < 0 for rival in rivals) for rivals in found),
        high=sum(all(not rival.low > 0 for rival in rivals) for rivals in found),
        evidence=("tables/validation_loss.csv",),
        note=f"certain and possible ones of {len(found)} datasets",
    )


def final_training_loss_lead(results: Results, claim: Claim) -> Estimate:
    """Training loss of a model minus the lowest of the others, over the last tenth of the steps."""
    if reason := lacking(results, claim):
        return absent(reason)
    own = claim.of["model"]
    last = final_losses(results, claim.models)
    others = [name for name in claim.models if name != own]
    other = min(others, key=lambda name: float(last[name].mean()))
    return final_difference(last, own, other, f"next best is {other}; ")


def final_training_difference(results: Results, claim: Claim) -> Estimate:
    """Sigmoid's training loss minus softmax's, over the last tenth of the steps."""
    if reason := lacking(results, claim):
        return absent(reason)
    first, second = claim.models
    return final_difference(final_losses(results, claim.models), first, second)


def final_losses(results: Results, models: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Logged training losses of the last tenth of the steps, of at least two."""
    losses = {name: results.journal(name)["loss"] for name in models}
    rows = max(2, min(len(values) for values in losses.values()) // 10)
    return {name: values[-rows:] for name, values in losses.items()}


def final_difference(
    last: Mapping[str, NDArray[np.float64]], first: str, second: str, note: str = ""
) -> Estimate:
    """Mean difference of two models' last losses, paired by step, with its interval."""
    found = mean_interval(last[first] - last[second], 0.95)
    return Estimate(
        value=found.value,
        low=found.low,
        high=found.high,
        evidence=(
            "figures/loss.png",
            *(f"training/{name}/journal.csv" for name in (first, second)),
        ),
        note=f"{note}{found.n} logged steps",
    )


def converging_models(results: Results, claim: Claim) -> Estimate:
    """How many of the models' losses are level at the end: certainly, and possibly."""
    if reason := lacking(results, claim):
        return absent(reason)
    found = {name: last_change(results.journal(name)) for name in claim.models}
    levels = [change for change in found.values() if change is not None]
    words = [
        f"{model_label(results.config, name)} "
        + ("diverges" if change is None else f"{change.value * 100:+.2g} %")
        for name, change in found.items()
    ]
    return Estimate(
        value=sum(abs(change.value) < FLAT for change in levels),
        low=sum(max(-change.low, change.high) < FLAT for change in levels),
        high=sum(not (change.low >= FLAT or change.high <= -FLAT) for change in levels),
        evidence=("figures/loss.png", *(f"training/{name}/journal.csv" for name in claim.models)),
        note=f"change over the last quarter of the steps, as a share of the whole fall of the "
        f"loss, to be within {FLAT * 100:g} %: {', '.join(words)}",
    )


def last_change(journal: Journal) -> Interval | None:
    """Change of the loss over the last quarter of the steps, as a share of its whole fall.

    By least squares, with Student's 95 % interval of the slope; None for a run that diverges.
    """
    from scipy import stats

    steps, loss = journal["step"], journal["loss"]
    late = steps >= steps[-1] * (1 - LAST)
    if divergence(journal) is not None or not np.isfinite(loss[late]).all() or late.sum() < 3:
        return None
    line = stats.linregress(steps[late], loss[late])
    fall = loss[int(np.argmax(np.isfinite(loss)))] - loss[late].mean()
    scale = float(np.ptp(steps[late]) / fall)
    n = int(late.sum())
    half = float(stats.t.ppf(0.975, n - 2) * line.stderr) * abs(scale)
    change = float(line.slope) * scale
    return Interval(change, change - half, change + half, n)


def validation_loss(results: Results, claim: Claim) -> Estimate:
    """Validation loss of one model on one dataset."""
    if reason := lacking(results, claim):
        return absent(reason)
    dataset, model = claim.of["dataset"], claim.of["model"]
    row = results.validation_loss(dataset, model)
    evidence = ("tables/validation_loss.csv",)
    return Estimate(value=row.value, low=row.low, high=row.high, evidence=evidence)


def validation_difference(results: Results, claim: Claim) -> Estimate:
    """Validation loss of the first model minus that of the second, paired by cell."""
    if reason := lacking(results, claim):
        return absent(reason)
    found = paired_difference(results, claim.of["dataset"], claim.of["first"], claim.of["second"])
    evidence = ("tables/validation_loss.csv",)
    return Estimate(value=found.value, low=found.low, high=found.high, evidence=evidence)


def scib_wins(results: Results, claim: Claim) -> Estimate:
    """On how many datasets sigmoid has the higher score; the scores have no interval."""
    if reason := lacking(results, claim):
        return absent(reason)
    sigmoid, softmax = results.config.evaluation.pair
    metric = claim.of["metric"]
    won = 0
    for dataset in present(results, claim):
        scores = all_scores(results, dataset)
        if metric not in scores:
            return absent(f"{metric} is not among evaluation.scib.metrics")
        won += scores[metric][sigmoid].value > scores[metric][softmax].value
    note = f"counted over {len(present(results, claim))} datasets"
    return Estimate(value=won, evidence=("tables/scib.csv", "figures/scib.png"), note=note)


MEASURES: dict[str, Measure] = {
    function.__name__: function
    for function in (
        corpus_cells,
        truncated_share,
        shortest_cell,
        longest_cell,
        dataset_cells,
        parameters,
        validation_loss_wins,
        longer_context_wins,
        best_model_wins,
        converging_models,
        final_training_loss_lead,
        final_training_difference,
        validation_loss,
        validation_difference,
        scib_wins,
    )
}
