"""Analyze the pairs of workflow/studies/converged.yaml, or of deeper.yaml.

    python docs/measurements/scripts/converged_pairs.py docs/measurements/h100/converged [STEP]

The rules are in docs/preregistration.md, sections 4 and 8. With ``STEP``, the difference in loss at
this earlier step is computed, too.

The folder contains ``pairs.csv`` (every logged step: ``attention``, ``seed``, ``step``, ``loss``,
``validation_loss``), ``scores.csv`` (``attention``, ``seed``, ``dataset``, ``metric``, ``value``)
and ``held_out.csv`` (``attention``, ``seed``, ``dataset``, ``loss`` in nats).
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from scsigmoid.report.tables.writing import fixed
from scsigmoid.study import comparisons

#: Datasets whose types are not clusters of the same counts. The others are secondary.
SOURCES = ("pbmc_facs", "lung_cell_lines", "nsclc_blood_scgate", "pdac_cardspa")
#: The paper's largest difference in loss (nats), and half of its gain in MMD.
LARGEST_EFFECT, HALF_GAIN = 0.035, 1.125
#: Pairs that a verdict needs, and decrease of the loss (nats in the last 1,000 steps) above which
#: the runs have not converged.
LEAST_PAIRS, LARGEST_FALL = 12, 0.05
ARMS = ["sigmoid", "softmax"]


def paired(values: pd.Series) -> pd.Series:
    """Return sigmoid minus softmax by seed, from values indexed by ``attention`` and ``seed``."""
    arms = values.unstack("attention").reindex(columns=ARMS)
    return arms["sigmoid"] - arms["softmax"]


def interval(values: pd.Series, digits: int) -> str:
    """Return the mean with Student's 95 % interval, and the number of seeds above zero."""
    mean, low, high = mean_interval(values)
    ends = ", ".join(fixed(end, digits) for end in (low, high))
    return f"{fixed(mean, digits)} [{ends}], above 0 in {(values > 0).sum()} of {len(values)}"


def mean_interval(values: pd.Series) -> tuple[float, float, float]:
    """Return the mean and the ends of Student's 95 % interval."""
    row = comparisons.student_intervals(values.to_frame().T).iloc[0]
    return float(row["difference"]), float(row["low"]), float(row["high"])


def deviation_interval(values: pd.Series) -> tuple[float, float, float]:
    """Return the standard deviation and its 95 % chi-square interval."""
    deviation, freedom = float(values.std()), len(values) - 1
    ends = stats.chi2.ppf([0.975, 0.025], freedom)
    low, high = deviation * np.sqrt(freedom / ends)
    return deviation, float(low), float(high)


def verdict(low: float, high: float, p: float) -> str:
    """Return ``lower``, ``higher`` or ``open``. ``p`` is corrected by Holm's method."""
    if p < 0.05 and high < 0:
        return "lower"
    return "higher" if p < 0.05 and low > 0 else "open"


def complete_seeds(table: pd.DataFrame, column: str, seeds: pd.Index) -> pd.Index:
    """Return the ``seeds`` whose two runs have all rows of a run, with finite ``column``."""
    values = table[column].astype(float)
    # The MMD is compared by its logarithm.
    is_finite = np.isfinite(values) & ((values > 0) | (table.get("metric") != "mmd"))
    counts = is_finite.groupby([table["seed"], table["attention"]]).sum().unstack(fill_value=0)
    counts = counts.reindex(columns=ARMS, fill_value=0)
    both = (counts == counts.max(axis=None)).all(axis=1)
    return seeds[both.reindex(seeds, fill_value=False)]


def p_value(values: pd.Series) -> float:
    return float(stats.ttest_1samp(values, 0).pvalue)


def lines(folder: Path, earlier: int = 0) -> Iterator[str]:
    curves = pd.read_csv(folder / "pairs.csv")
    scores = pd.read_csv(folder / "scores.csv")
    held_out = pd.read_csv(folder / "held_out.csv")
    last = curves.groupby(["seed", "attention"])["step"].max().unstack().reindex(columns=ARMS)
    if curves.duplicated(["attention", "seed", "step"]).any():
        raise SystemExit("pairs.csv: an arm has two runs of a seed; leave out those of the pilot")
    is_complete = (last == curves["step"].max()).all(axis=1)
    finals = comparisons.final_losses(curves, ["seed", "attention"])
    is_finite = np.isfinite(finals).groupby("seed").all()
    for reason, kept in (("a run is incomplete", is_complete), ("a loss is not finite", is_finite)):
        if not kept.all():
            yield f"left out, because {reason}: seeds {list(kept.index[~kept])}"
    seeds = last.index[is_complete & is_finite]
    if len(seeds) < LEAST_PAIRS:
        raise SystemExit(f"pairs.csv: {len(seeds)} pairs; {LEAST_PAIRS} are needed")
    if earlier and earlier not in set(curves["step"][curves["validation_loss"].notna()]):
        raise SystemExit(f"pairs.csv: step {earlier:,} has no validation loss; give another STEP")
    curves = curves[curves["seed"].isin(seeds)]
    scored = complete_seeds(scores, "value", seeds)
    finite = complete_seeds(held_out, "loss", seeds)
    for reason, kept in (("scores", scored), ("finite losses on held-out studies", finite)):
        if len(kept) < len(seeds):
            yield f"a run has no {reason}: seeds {list(seeds.difference(kept))}"
    scores, held_out = scores[scores["seed"].isin(scored)], held_out[held_out["seed"].isin(finite)]
    losses = comparisons.final_losses(curves, ["attention", "seed"])
    difference = paired(losses)
    deviation, low, high = deviation_interval(difference)
    yield f"{len(difference)} pairs of {curves['step'].max():,} steps"
    yield f"standard deviation of the paired difference {fixed(deviation, 4)}"
    yield f"  95 % interval [{fixed(low, 4)}, {fixed(high, 4)}] nats"
    arms = losses.unstack("attention")
    spread = ", ".join(f"{name} {fixed(arms[name].std(), 4)}" for name in arms)
    correlation = float(arms["sigmoid"].corr(arms["softmax"]))
    yield f"standard deviation of the arms: {spread}; correlation {fixed(correlation, 2)}"
    count = pd.Series([len(difference)])
    detectable = float(comparisons.detectable_difference(pd.Series([deviation]), count).iloc[0])
    yield f"detectable with a power of 80 %: {fixed(detectable, 4)} nats"
    fall = comparisons.final_losses(curves[curves["step"] <= curves["step"].max() - 1000],
                                    ["attention", "seed"]) - losses  # fmt: skip
    yield f"mean decrease in the last 1,000 steps {fixed(float(fall.mean()), 4)} nats"
    if fall.mean() > LARGEST_FALL:
        yield "  not converged"

    log_ratio = log_ratios(scores)
    p_of_ratio = p_value(log_ratio) if len(log_ratio) >= LEAST_PAIRS else 1.0  # so it is open
    p_values = comparisons.holm([p_value(difference), p_of_ratio])
    _, low, high = mean_interval(difference)
    yield "mean loss: " + ", ".join(f"{name} {fixed(arms[name].mean(), 4)}" for name in arms)
    yield f"loss: {interval(difference, 4)}, p (Holm) {p_values[0]:.2g}"
    yield f"  {verdict(low, high, p_values[0])}"
    excludes = "excludes" if low > -LARGEST_EFFECT else "does not exclude"
    yield f"  {excludes} the paper's largest effect (interval above -{LARGEST_EFFECT})"
    if earlier:
        until = curves[curves["step"] <= earlier]
        before = paired(comparisons.final_losses(until, ["attention", "seed"]))
        # Two tests, as above: the p-value of the MMD is the same.
        p = comparisons.holm([p_value(before), p_of_ratio])[0]
        yield f"loss at step {earlier:,}: {interval(before, 4)}, p (Holm) {p:.2g}"
        yield f"  {verdict(*mean_interval(before)[1:], p)}"
    if len(scored) < 2:
        yield "MMD ratio and scores: open, because fewer than two pairs have scores"
    else:
        yield from score_lines(scores, log_ratio, p_values[1])
    by_dataset = held_out.set_index(["attention", "seed", "dataset"])["loss"]
    means = by_dataset.groupby(["attention", "seed"]).mean()
    yield f"loss on held-out studies: {interval(paired(means), 4)}"
    for name in sorted(set(held_out["dataset"])):
        yield f"  {name}: {interval(paired(by_dataset.xs(name, level='dataset')), 4)}"
    unpaired = stats.ttest_ind(arms["sigmoid"], arms["softmax"], equal_var=False)
    ends = ", ".join(fixed(end, 4) for end in unpaired.confidence_interval())
    yield f"loss, Welch's interval without pairs [{ends}]"


def log_ratios(scores: pd.DataFrame) -> pd.Series:
    """Return the logarithm of the MMD ratio by seed, the mean of ``SOURCES``."""
    mmd = scores[(scores["metric"] == "mmd") & scores["dataset"].isin(SOURCES)]
    log_mmd = np.log(mmd.set_index(["attention", "seed", "dataset"])["value"].astype(float))
    return paired(log_mmd.groupby(["attention", "seed"]).mean())


def score_lines(scores: pd.DataFrame, log_ratio: pd.Series, p: float) -> Iterator[str]:
    """Yield the lines about MMD and scores. ``p`` is the corrected p-value of the MMD ratio."""
    mean, low, high = mean_interval(log_ratio)
    ends = ", ".join(fixed(math.exp(end), 3) for end in (low, high))
    above = f"above 1 in {(log_ratio > 0).sum()} of {len(log_ratio)}"
    yield f"MMD ratio {fixed(math.exp(mean), 3)} [{ends}], {above}, p (Holm) {p:.2g}"
    yield f"  {verdict(low, high, p)}"
    state = "reproduced" if math.exp(low) > HALF_GAIN else "open"
    state = "excluded" if math.exp(high) < HALF_GAIN else state
    yield f"  the paper's ratio ({HALF_GAIN} or more): {state}"
    for name in (*SOURCES, *sorted(set(scores["dataset"]) - set(SOURCES))):
        one = scores[(scores["metric"] == "mmd") & (scores["dataset"] == name)]
        values = paired(np.log(one.set_index(["attention", "seed"])["value"]))
        mean, low, high = mean_interval(values)
        ends = ", ".join(fixed(math.exp(end), 3) for end in (low, high))
        yield f"  MMD ratio of {name}: {fixed(math.exp(mean), 3)} [{ends}]"

    of_sources = scores[scores["dataset"].isin(SOURCES)]
    means = of_sources.groupby(["metric", "attention", "seed"])["value"].mean()
    by_metric = {name: paired(means.loc[name]) for name in sorted(set(of_sources["metric"]))}
    corrected = comparisons.holm([p_value(values) for values in by_metric.values()])
    for (metric, values), corrected_p in zip(by_metric.items(), corrected, strict=True):
        level = means.loc[metric].groupby("attention").mean()
        arms_text = f"sigmoid {fixed(level['sigmoid'], 3)}, softmax {fixed(level['softmax'], 3)}"
        yield f"{metric}: {arms_text}; {interval(values, 4)}, p (Holm) {corrected_p:.2g}"
    everything = pd.DataFrame(by_metric).mean(axis=1)
    yield f"mean of the six: {interval(everything, 4)}, p {p_value(everything):.2g}"


if __name__ == "__main__":
    print(*lines(Path(sys.argv[1]), *map(int, sys.argv[2:])), sep="\n")
