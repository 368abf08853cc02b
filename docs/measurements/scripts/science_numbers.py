"""Recompute numbers in README.md and docs from docs/measurements.

    python docs/measurements/scripts/science_numbers.py .

Prints every recomputed text with its page, and fails if a page does not contain it. Texts are
compared without regard to line breaks. The tables between ``<!-- table NAME -->`` marks are made by
benchmarks_page.py.
"""

import math
import re
import runpy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from scsigmoid.benchmarks.rows import TrainingRow, median_interval, read_rows
from scsigmoid.paper.reported import reported
from scsigmoid.report.tables.writing import fixed
from scsigmoid.study import comparisons
from scsigmoid.study.runs import Study
from scsigmoid.study.stability import has_diverged, stability_runs

README = "README.md"
REPRODUCTION, PREREGISTRATION = "docs/reproduction.md", "docs/preregistration.md"
#: The step of the paper's divergence (fig:stability), and cells per step in our runs.
PAPER_STEPS, CELLS = 55_600, 16
#: Loss of gene frequencies on the cells of stability.yaml, converged.yaml and stress.yaml, in nats.
FREQUENCIES, CONVERGED_FREQUENCIES = 9.09, 9.018
STRESS_FREQUENCIES = 9.26

#: A page, and a text that it must contain.
Statement = tuple[str, str]


def span(values: pd.Series, digits: int = 3, sign: str = "+") -> str:
    """Return the mean with Student's 95 % interval: ``+0.067 [0.018, 0.116]``."""
    row = comparisons.student_intervals(values.to_frame().T).iloc[0]
    mean, *ends = (fixed(row[name], digits) for name in ("difference", "low", "high"))
    return f"{sign if row['difference'] > 0 else ''}{mean} [{', '.join(ends)}]"


def detectable(values: pd.Series) -> float:
    """Return the true mean difference that such a study finds with a probability of 80 %."""
    return float(comparisons.detectable_difference(values.std(), len(values)))


def plain_losses(
    study: Study, step: int, summary: comparisons.Summary = comparisons.mean_of_last
) -> pd.Series:
    """Return the loss of sigmoid minus softmax at a step, by seed of the purpose ``seeds``."""
    curves = study.curves.query("purpose == 'seeds' and step <= @step")
    losses = comparisons.final_losses(curves, ["seed", "attention"], summary).unstack()
    return losses["sigmoid"] - losses["softmax"]


def losses(arms: Study, variants: Study, embeddings: Study) -> Iterator[Statement]:
    last = plain_losses(arms, 16_000)
    pooled = pd.concat([plain_losses(study, 4000) for study in (arms, variants, embeddings)])
    yield REPRODUCTION, span(pooled)
    yield REPRODUCTION, span(last)
    yield REPRODUCTION, f"{fixed(detectable(pooled), 2)} nats with {len(pooled)} seeds"
    yield REPRODUCTION, f"{fixed(detectable(last), 2)} with"
    lower, higher = -last[last < 0], last[last > 0]
    yield REPRODUCTION, f"by {fixed(lower.min(), 2)} to {fixed(lower.max(), 2)} nats"
    yield REPRODUCTION, f"higher in two, by {' and '.join(fixed(x, 2) for x in sorted(higher))}"
    yield REPRODUCTION, f"standard deviation of {fixed(last.std(), 2)} nats"
    width = stats.t.ppf(0.975, len(last) - 1) * last.sem()
    yield REPRODUCTION, f"an interval of ±{fixed(width, 2)} nats"
    rates, _, _ = comparisons.best_rates(arms)
    softmax, sigmoid = rates["softmax"], rates["sigmoid"]
    means = softmax.mean(axis=1)
    yield REPRODUCTION, f"differ by {fixed(abs(means[5e-4] - means[1e-3]), 3)} nats"
    yield REPRODUCTION, f"the two runs at 1e-3 by {fixed(np.ptp(softmax.loc[1e-3]), 2)}"
    yield REPRODUCTION, f"the two runs at 5e-4 by {fixed(np.ptp(sigmoid.loc[5e-4]), 2)}"
    rows = comparisons.rival_differences(variants)[0].set_index("variant")
    row = rows.loc["qk_norm"]
    ends = ", ".join(fixed(row[name], 3) for name in ("low", "high"))
    yield REPRODUCTION, f"+{fixed(row['difference'], 3)} nats [{ends}]"
    paper = reported()["validation_loss"]
    leads = [
        round(row[f"softmax_{context}"][0] - row[f"sigmoid_{context}"][0], 3)
        for row in paper.values()
        for context in ("2k", "4k")
    ]
    positive = [lead for lead in leads if lead > 0]
    text = f"{min(positive)} to {max(positive)} nats in {len(positive)} of {len(leads)}"
    yield README, text
    last_losses = plain_losses(embeddings, 4000, lambda values: float(values.iloc[-1]))
    medians = plain_losses(embeddings, 4000, comparisons.median_of_last_three)
    yield PREREGISTRATION, f"the loss at step 4,000 alone {span(last_losses, 3, '')}"
    yield PREREGISTRATION, f"{span(medians, 3, '').replace(' [', ' nats higher [')}"


def scores(study: Study, measurements: Path) -> Iterator[Statement]:
    by_step = study.scores[study.scores["step"] == study.scores["step"].max()]
    values = by_step.pivot_table("value", ["metric", "seed"], "attention")
    differences = (values["sigmoid"] - values["softmax"]).unstack("seed")
    ratios = values.loc["mmd"]["sigmoid"] / values.loc["mmd"]["softmax"]
    for page in (REPRODUCTION, PREREGISTRATION):
        yield page, span(differences.mean())
    yield REPRODUCTION, f"MMD ratio {span(ratios, 2, '')} over {len(ratios)} seeds"
    yield REPRODUCTION, f"an MMD ratio of {fixed(1 + detectable(ratios), 2)}"
    yield PREREGISTRATION, f"finds a ratio of {fixed(1 + detectable(ratios), 2)} in 80 %"
    for _, row in differences.iterrows():
        text = span(row)
        p = stats.ttest_1samp(row, 0).pvalue
        digits = 4 if p < 0.01 else 3 if p < 0.1 else 2
        yield PREREGISTRATION, f"| {text} | {fixed(p, digits)} |"
    lung = pd.read_csv(measurements / "h200/real_cells_seeds.csv").set_index(["dataset", "metric"])
    lung = lung.loc["lung_cell_lines"].drop("validation_loss")
    assert len(lung) == 5
    better, seeds = lung["sigmoid_better"].max(), lung["seeds"].min()
    yield REPRODUCTION, f"better in {better} of {seeds} seeds on each of five"
    nmi = lung.loc["leiden_nmi"]
    ends = ", ".join(fixed(nmi[f"difference{end}"], 3) for end in ("_low", "_high"))
    yield REPRODUCTION, f"Leiden NMI {fixed(nmi['difference'], 3)} [{ends}]"
    mmd = lung.loc["mmd"]
    yield REPRODUCTION, f"MMD ratio {fixed(mmd['sigmoid_2k'] / mmd['softmax_2k'], 2)}"


def stability(arms: Study, measurements: Path) -> Iterator[Statement]:
    runs = stability_runs(arms)
    runs = runs[~runs["setting"].str.endswith("qk_norm")]
    counts = runs.groupby(["attention", "learning_rate"])["collapsed"].agg(["sum", "size"])
    softmax = counts.loc["softmax"]
    for rate, text in ((1e-3, "softmax runs at 10"), (2e-3, "at 20"), (4e-3, "at 40")):
        collapsed, tried = softmax.loc[rate]
        yield REPRODUCTION, f"{collapsed} of {tried} {text} times"
    high = softmax.loc[8e-3:].sum()
    yield (
        REPRODUCTION,
        f"{high['sum']} of {high['size']} at 80 to 320 times; sigmoid "
        + (f"{counts.loc['sigmoid', 'sum'].sum()} of {counts.loc['sigmoid', 'size'].sum()}"),
    )
    collapsed, tried = softmax.loc[4e-3]
    yield README, f"{collapsed} of {tried} softmax runs are near gene frequencies"
    number_of_runs = len(stability_runs(arms))
    yield REPRODUCTION, f"None of the {number_of_runs} runs diverged"
    assert not stability_runs(arms)["diverged"].any()
    paper = reported()["model_architecture"]
    rows = pd.read_csv(measurements / "h100/stability_paper_rate.csv")
    keys = ["seed", "attention", "learning_rate"]
    last_steps = rows.groupby("seed").apply(
        lambda block: block.groupby(keys[1:])["step"].max().min(), include_groups=False
    )
    rows = rows[rows["step"] <= rows["seed"].map(last_steps)]
    by_run = rows.groupby(keys)
    assert not any(has_diverged(run, FREQUENCIES) for _, run in by_run)
    pairs = len(by_run) // 2
    own = len(rows[np.isclose(rows["learning_rate"], paper["learning_rate"])].groupby(keys)) // 2
    steps = np.array([last_steps.min(), last_steps.max()])
    shares = 100 * steps / PAPER_STEPS
    cells = shares * CELLS / paper["global_batch"]
    ends = [1 - 0.025 ** (1 / number) for number in (pairs, own)]  # Clopper and Pearson, 0 events
    final = by_run[["loss", "validation_loss"]].apply(comparisons.final_loss)
    yield REPRODUCTION, f"0 of {pairs} runs of each arm"
    yield REPRODUCTION, f"up to {100 * ends[0]:.0f} % of such runs could diverge"
    yield REPRODUCTION, f"{100 * ends[1]:.0f} %"
    yield REPRODUCTION, f"{shares[0]:.0f} to {shares[1]:.0f} % of the steps"
    yield REPRODUCTION, f"end at {fixed(final.min(), 1)} to {fixed(final.max(), 1)} nats"
    yield REPRODUCTION, f"{cells[0]:.2f} to {cells[1]:.1f} % of the cells"
    yield PREREGISTRATION, f"{steps[0]:,} to {steps[1]:,} steps of {CELLS} cells"
    for rate in (1e-4, 3e-4, 1e-3):
        pair = final.xs(rate, level="learning_rate").unstack("attention")
        yield PREREGISTRATION, span(pair["sigmoid"] - pair["softmax"], 2)
    warmup = paper["warmup_steps"] / reported()["models"]["softmax_8k"]["steps"]
    for page in (REPRODUCTION, PREREGISTRATION):
        yield page, f"{100 * warmup:.1f} %"


def identity(measurements: Path) -> Iterator[Statement]:
    """Yield how much longer FlashAttention-4 takes for sigmoid attention. Round 0 warms up."""
    rows = pd.read_csv(measurements / "h100/log_sigmoid_identity.csv").query("round > 0")
    by_round = rows.pivot(
        index=["head_dimension", "length", "round"], columns="provider",
        values=["forward_ms", "backward_ms"],
    )  # fmt: skip
    spans = []
    for direction in ("forward_ms", "backward_ms"):
        times = by_round[direction]
        ratios = (times["fa4_sigmoid"] / times["hopper"]).groupby(level=[0, 1]).median()
        spans.append(f"{fixed(ratios.min(), 1)} to {fixed(ratios.max(), 1)} times")
    for page in (README, "docs/benchmarks.md"):
        yield page, f"takes {spans[0]} as long"
        yield page, f"{spans[1]} backward"


def converged(folder: Path) -> Iterator[Statement]:
    """Yield the results of models that were trained until the loss was nearly flat."""
    curves = pd.read_csv(folder / "pairs.csv")
    arms = comparisons.final_losses(curves, ["seed", "attention"]).unstack()
    difference = arms["sigmoid"] - arms["softmax"]
    yield PREREGISTRATION, f"{span(difference, 4)}, higher in {(difference > 0).sum()} of"
    yield PREREGISTRATION, f"paired difference is {fixed(difference.std(), 3)} nats"
    yield PREREGISTRATION, f"find a difference of {fixed(detectable(difference), 3)} nats"
    scores = pd.read_csv(folder / "scores.csv").query("dataset != 'pbmc_3k'")
    by_arm = scores.pivot_table("value", ["metric", "seed"], "attention")
    differences = by_arm["sigmoid"] - by_arm["softmax"]
    for metric in sorted(set(scores["metric"])):
        means = [fixed(by_arm.loc[metric, arm].mean(), 3) for arm in ("sigmoid", "softmax")]
        yield PREREGISTRATION, f"| {means[0]} | {means[1]} |"
        yield PREREGISTRATION, span(differences.loc[metric], 4)
    without_lung = scores[scores["dataset"] != "lung_cell_lines"]
    for rows in (scores, without_lung):
        values = mmd_ratio(rows)
        low, high = (fixed(value, 3) for value in values[1:])
        yield PREREGISTRATION, f"{fixed(values[0], 3)} [{low}, {high}]"
    short = [fixed(value, 2) for value in mmd_ratio(scores)]
    yield REPRODUCTION, f"{short[0]} [{short[1]}, {short[2]}]"
    held_out = pd.read_csv(folder / "held_out.csv")
    by_seed = held_out.pivot_table("loss", "seed", "attention")
    others = by_seed["sigmoid"] - by_seed["softmax"]
    yield PREREGISTRATION, span(others, 4)
    yield PREREGISTRATION, span(mean_score(without_lung))
    before = curves[curves["step"] <= curves["step"].max() - 1000]
    fall = comparisons.final_losses(before, ["seed", "attention"]).mean() - arms.mean(axis=None)
    yield PREREGISTRATION, f"still falls by {fixed(fall, 3)} nats"
    for page in (README, REPRODUCTION):
        yield page, span(difference)
        yield page, span(others)
        yield page, span(differences.groupby("seed").mean())


def two_layers(folder: Path) -> Iterator[Statement]:
    """Yield what is said of the models of two layers only."""
    yield from converged(folder)
    scores = pd.read_csv(folder / "scores.csv")
    left = scores.query("dataset not in ['pbmc_3k', 'lung_cell_lines']")
    means = mean_score(left)
    yield PREREGISTRATION, f"higher, in {(means > 0).sum()} of {len(means)} seeds"
    levels = scores.query("dataset != 'pbmc_3k'").groupby("attention")["value"].mean()
    yield PREREGISTRATION, " and ".join(fixed(level, 3) for level in levels)
    short = [fixed(levels[arm], 2) for arm in ("sigmoid", "softmax")]
    yield README, f"{short[0]} (sigmoid) and {short[1]} with 2"
    ratio = [fixed(value, 2) for value in mmd_ratio(left)]
    yield REPRODUCTION, f"{ratio[0]} [{ratio[1]}, {ratio[2]}]"
    held_out = pd.read_csv(folder / "held_out.csv")
    by_seed = held_out.query("dataset != 'lung_cell_lines'").pivot_table(
        "loss", "seed", "attention"
    )
    for page in (README, REPRODUCTION, PREREGISTRATION):
        yield page, span(by_seed["sigmoid"] - by_seed["softmax"])
    for page in (README, REPRODUCTION):
        yield page, span(means)
    by_dataset = held_out.pivot_table("loss", "dataset", "attention")
    gaps = (by_dataset["sigmoid"] - by_dataset["softmax"]).sort_values()
    lung, low, high = (fixed(gap, 3) for gap in gaps.iloc[[0, 1, -1]])
    yield PREREGISTRATION, f"({lung} nats; blood and pancreas: {low} to +{high})"


def six_layers(folder: Path) -> Iterator[Statement]:
    """Yield what is said of the models of six layers only."""
    yield from converged(folder)
    curves = pd.read_csv(folder / "pairs.csv")
    gaps = {}
    for step in (12_000, 14_000, 16_000, 18_000, 20_000):
        until = curves[curves["step"] <= step]
        losses = comparisons.final_losses(until, ["seed", "attention"]).unstack()
        gaps[step] = losses["sigmoid"] - losses["softmax"]
    yield PREREGISTRATION, span(gaps[16_000], 4)
    *first, last = (fixed(gap.mean(), 3) for gap in gaps.values())
    yield PREREGISTRATION, f"{', '.join(first)} and {last} nats"
    scores = pd.read_csv(folder / "scores.csv")
    for name in sorted(set(scores["dataset"])):
        rows = scores[scores["dataset"] == name]
        ratio = [fixed(value, 3) for value in mmd_ratio(rows)]
        yield PREREGISTRATION, f"{ratio[0]} [{ratio[1]}, {ratio[2]}]"
        yield PREREGISTRATION, span(mean_score(rows))
    sources = scores.query("dataset != 'pbmc_3k'")
    without_tumors = sources.query("dataset != 'nsclc_blood_scgate'")
    more, low, high = (fixed(100 * (value - 1), 1) for value in mmd_ratio(sources))
    yield README, f"{more} % higher [{low}, {high}]"
    for page, digits in ((PREREGISTRATION, 3), (REPRODUCTION, 2)):
        ratio = [fixed(value, digits) for value in mmd_ratio(without_tumors)]
        yield page, f"{ratio[0]} [{ratio[1]}, {ratio[2]}]"
    for page in (README, REPRODUCTION, PREREGISTRATION):
        yield page, span(mean_score(without_tumors))
    yield PREREGISTRATION, span(mean_score(sources.query("metric != 'mmd'")))
    for metric in ("linear_probe", "knn"):
        rows = scores.query(f"dataset == 'pbmc_facs' and metric == '{metric}'")
        yield PREREGISTRATION, span(mean_score(rows))
    levels = sources.groupby("attention")["value"].mean()
    yield PREREGISTRATION, " | ".join(fixed(level, 3) for level in levels)
    yield README, f"{' and '.join(fixed(level, 2) for level in levels)} with 6"
    held_out = pd.read_csv(folder / "held_out.csv").query("dataset == 'lung_cell_lines'")
    by_seed = held_out.pivot_table("loss", "seed", "attention")
    yield PREREGISTRATION, span(by_seed["sigmoid"] - by_seed["softmax"])


def mean_score(scores: pd.DataFrame) -> pd.Series:
    """Return sigmoid minus softmax by seed, the mean over scores and datasets."""
    by_seed = scores.pivot_table("value", "seed", "attention")
    return by_seed["sigmoid"] - by_seed["softmax"]


def deeper(pilot: pd.DataFrame) -> Iterator[Statement]:
    """Yield the losses of the pilot of the deeper models, their trend, and how much runs differ."""
    keys = ["attention", "learning_rate", "seed"]
    chosen = [("sigmoid", 5e-4), ("softmax", 1e-3)]
    deviations, means = [], []
    for step in (10_000, 11_000, 12_000):
        by_run = comparisons.final_losses(pilot[pilot["step"] <= step], keys)
        groups = by_run.groupby(keys[:2]).agg(["mean", "std"])
        deviations.append(fixed(math.sqrt((groups.loc[chosen, "std"] ** 2).mean()), 3))
        means.append(groups.loc[chosen, "mean"].mean())
    for group, mean in groups["mean"].items():
        values = ", ".join(fixed(loss, 3) for loss in by_run.loc[group])
        text = f"**{fixed(mean, 3)}**" if group in chosen else fixed(mean, 3)
        yield PREREGISTRATION, f"{text} ({values})"
    yield PREREGISTRATION, f"still falls by {fixed(means[1] - means[2], 3)} nats"
    yield PREREGISTRATION, f"{deviations[2]} nats at step 12,000"
    yield PREREGISTRATION, f"{deviations[1]} and {deviations[0]} at 11,000 and 10,000"


def mmd_ratio(scores: pd.DataFrame) -> list[float]:
    """Return the MMD of sigmoid divided by that of softmax, and the ends of Student's interval."""
    rows = scores.query("metric == 'mmd'").set_index(["seed", "dataset", "attention"])
    by_seed = np.log(rows["value"]).unstack().groupby("seed").mean()
    ratio = by_seed["sigmoid"] - by_seed["softmax"]
    half = stats.t.ppf(0.975, len(ratio) - 1) * ratio.sem()
    return [math.exp(ratio.mean() + shift) for shift in (0, -half, half)]


def rising(folder: Path) -> Iterator[Statement]:
    """Yield the results of the models whose learning rate rises, by the rules of their study."""
    judge = runpy.run_path(str(Path(__file__).with_name("rising_rate.py")))
    everything = pd.read_csv(folder / "curves.csv")
    runs = everything.groupby(["variants", "attention", "seed"])
    broken, lost = (
        runs.apply(judge["breaking_rate"], CONVERGED_FREQUENCIES, counts, include_groups=False)
        for counts in (True, False)
    )
    assert np.isinf(broken).all()
    yield from rising_normalized(everything, lost["qk_norm"], judge)
    lost = lost["none"]
    lower, higher, ties, p = judge["sign_test"](lost["softmax"], lost["sigmoid"])
    pairs = lower + higher + ties
    yield (
        PREREGISTRATION,
        f"in {higher} of {pairs} pairs (sign test: p = {fixed(p, 3)}; {3 * p:.2f}",
    )
    yield README, f"higher rate in {higher} of {pairs}"
    yield REPRODUCTION, f"none of {pairs} diverged in either arm"
    yield REPRODUCTION, f"in {higher} of {pairs} pairs (p = {3 * p:.2f}, corrected)"
    curves = everything[everything["variants"] == "none"].dropna(subset="validation_loss")
    keys = ["attention", "seed", "learning_rate"]
    ends = curves[curves["step"] > 9000].groupby(keys)["validation_loss"].last().reset_index()
    high = ends[ends["validation_loss"] > 8.0].groupby(keys[:2])["learning_rate"].min()
    lower, _, ties, p = judge["sign_test"](high["sigmoid"], high["softmax"])
    assert ties == 1
    yield (
        PREREGISTRATION,
        f"first in {lower} of {pairs} pairs, and one is equal (p = {fixed(p, 3)})",
    )
    counts = lost.groupby("attention").value_counts()
    for attention, rate in (("sigmoid", 0.032), ("softmax", 0.045)):
        by_rate = counts[attention].to_dict()
        number = sum(count for value, count in by_rate.items() if abs(value - rate) < 1e-3)
        names = {8: "eight", 10: "ten"}
        yield PREREGISTRATION, f"{rate} ({names[number]})"


def rising_normalized(
    curves: pd.DataFrame, lost: pd.Series, judge: Mapping[str, Any]
) -> Iterator[Statement]:
    """Yield the results of the models with normalized queries and keys."""
    lower, higher, ties, p = judge["sign_test"](lost["softmax"], lost["sigmoid"])
    assert np.isfinite(lost).all()
    assert (lower, higher, ties) == (8, 0, 4)
    yield PREREGISTRATION, f"first in eight pairs, and four are equal (p = {fixed(p, 3)})"
    yield PREREGISTRATION, f"corrected p is {3 * p:.2f}"
    keys = ["variants", "attention", "seed"]
    last = curves[curves["step"] > 9000].dropna(subset="validation_loss").groupby(keys)
    ends = last["validation_loss"].apply(lambda losses: losses.tail(3).median())
    exploded = ("qk_norm", "sigmoid", 101)
    rest = ends["qk_norm"].drop(exploded[1:])
    low, high = fixed(rest.min(), 2), fixed(rest.max(), 2)
    yield PREREGISTRATION, f"The other {len(rest)} runs end at {low} to {high} nats"
    low, high = ends["none"].min(), ends["none"].max()
    yield PREREGISTRATION, f"where the plain runs end at {low:.1f} to {high:.1f}"
    run = curves.set_index([*keys, "step"]).loc[exploded]
    high, end = fixed(run["loss"].max(), 0), fixed(run["loss"].iloc[-1], 0)
    assert end == "11"
    yield PREREGISTRATION, f"to {high} nats in 40 steps"
    yield REPRODUCTION, f"loss {high} nats"
    norm = run["gradient_norm"].loc[9001:].max()
    factor = fixed(norm / run["gradient_norm"].loc[8001:9000].median(), 0)
    yield PREREGISTRATION, f"{round(norm, -1):,.0f}, then the loss falls"
    yield PREREGISTRATION, f"norm is {factor} times the median before the ramp"
    yield REPRODUCTION, f"norm {factor} times its median"
    learned = comparisons.final_losses(
        curves[curves["step"] <= 9000], ["variants", "seed", "attention"]
    ).unstack()
    pages = {"qk_norm": (PREREGISTRATION, REPRODUCTION), "none": (PREREGISTRATION,)}
    for variants in pages:
        difference = learned.loc[variants, "sigmoid"] - learned.loc[variants, "softmax"]
        for page in pages[variants]:
            yield page, span(difference)
    for attention in ("sigmoid", "softmax"):
        values = learned[attention].unstack("variants")
        yield PREREGISTRATION, span(values["qk_norm"] - values["none"])


def stress(measurements: Path) -> Iterator[Statement]:
    """Yield the results of the paper's stress test with 2 cells a step."""
    rows = pd.concat(pd.read_csv(measurements / gpu / "stress.csv") for gpu in ("h100", "h200"))
    keys = ["seed", "attention"]
    runs = rows.groupby(keys)
    assert not any(has_diverged(run, STRESS_FREQUENCIES) for _, run in runs)
    last = runs["step"].max()
    ends = last.unstack().min(axis=1)
    judged = ends.index[ends >= PAPER_STEPS]
    new = judged[judged > 204]
    upper = {number: f"{100 * (1 - 0.025 ** (1 / number)):.0f} %" for number in (6, 4)}
    assert (len(judged), len(new)) == tuple(upper)
    steps = f"{last[judged].min():,} to {last.max():,} steps"
    for page in (README, REPRODUCTION):
        yield page, f"0 of {len(judged)} runs of each arm diverged"
        yield page, upper[len(judged)]
        yield page, steps
    yield (
        PREREGISTRATION,
        f"0 of {len(judged)} runs of each arm (seeds 203 to 208), 0 of {len(new)}",
    )
    yield PREREGISTRATION, f"up to {upper[6]} of such runs of an arm could"
    yield PREREGISTRATION, f"by the new seeds alone {upper[4]}"

    until = rows[rows["step"] <= PAPER_STEPS]
    common = rows[rows["step"] <= rows["seed"].map(ends)]
    final, at_common_step, at_paper_step = (
        comparisons.final_losses(table, keys) for table in (rows, common, until)
    )
    difference, at_the_end = (
        table.unstack()["sigmoid"] - table.unstack()["softmax"]
        for table in (at_paper_step, at_common_step)
    )
    new_span = span(difference[new], sign="")
    yield README, f"+{new_span}"
    for page in (PREREGISTRATION, REPRODUCTION):
        yield page, new_span.replace(" [", " nats [")
        yield page, span(difference[judged], sign="")
        yield page, span(at_the_end[judged], sign="")
    yield PREREGISTRATION, span(at_the_end[new], sign="")
    yield PREREGISTRATION, f"negative in seed 207 ({fixed(at_the_end[207], 3)})"
    low, high = (fixed(value, 3) for value in (difference[judged].min(), difference[judged].max()))
    yield PREREGISTRATION, f"in all six seeds ({low} to {high} nats)"

    norms, scores = runs["gradient_norm"], runs["attention_score_max"].max()
    relative = norms.max() / norms.median()
    losses = rows.dropna(subset="validation_loss").groupby(keys)["validation_loss"]
    rises = losses.apply(largest_rise)
    for first in (201, 203, 205, 207):
        seeds = [first, first + 1]
        for name, texts in {
            "last step": (f"{step:,}" for step in last[seeds]),
            "loss, mean of the last five validations": (fixed(x, 3) for x in final[seeds]),
            "common step": (fixed(x, 3) for x in at_common_step[seeds]),
            "above its minimum, nats": (fixed(x, 2) for x in rises[seeds]),
            "divided by the median": (
                f"{norm:.0f}, {fixed(ratio, 1)}"
                for norm, ratio in zip(norms.max()[seeds], relative[seeds], strict=True)
            ),
            "largest attention score": (f"{x:.0f}" for x in scores[seeds]),
        }.items():
            yield PREREGISTRATION, f"{name} | {' | '.join(texts)} |"
    jump = losses.get_group((201, "softmax")).diff().max()
    yield PREREGISTRATION, f"jump by {fixed(jump, 2)} nats"
    excess = losses.agg(lambda run: (run - run.cummin()).max())[new].groupby("attention").max()
    largest = [fixed(excess[arm], 2) for arm in ("sigmoid", "softmax")]
    yield PREREGISTRATION, f"by at most {largest[0]} (sigmoid) and {largest[1]} nats (softmax)"
    every_50 = rows[rows["step"] % 50 == 0].groupby(keys)["gradient_norm"].max()
    by_arm = every_50.groupby("attention").max()
    text = f"{by_arm['sigmoid']:.0f} is the largest norm of all, and {by_arm['softmax']:.0f} that"
    yield REPRODUCTION, text
    yield REPRODUCTION, f"it is {norms.max().max():.0f}, of softmax"
    for page in (PREREGISTRATION, REPRODUCTION):
        yield page, f"at most {every_50[[(205, 'softmax'), (207, 'softmax')]].max():.0f}"
    low, high = (fixed(value, 1) for value in (final[judged].min(), final[judged].max()))
    yield REPRODUCTION, f"ends of the runs, at {low} to {high} nats"


def largest_rise(losses: pd.Series) -> float:
    """Return the largest rise of the median of three losses in a row above its minimum so far."""
    levels = losses.rolling(3).median().dropna()
    return float((levels - levels.cummin()).max())


def gpu_time(preregistration: str) -> Iterator[Statement]:
    """Yield the sum of the times of the blocks near the paper's rate, which their notes state."""
    section = preregistration.split("\n## ")[1]
    notes = re.findall(r"^\*Run on .*?\*$", section, re.M | re.S)
    seconds = re.findall(r"\b(\d+)(?= s\b| and\s+\d+ s\b)", " ".join(notes))
    assert len(seconds) == 6, seconds
    yield REPRODUCTION, f"near the paper's rate took {sum(map(int, seconds)) / 60:.0f} minutes"


def speed(measurements: Path) -> Iterator[Statement]:
    rows = read_rows(measurements / "h100/training.csv", TrainingRow)
    by_kernel = {(row.kernel, row.context): row for row in rows if row.layout == "padded"}
    for context, label in ((2048, "2K"), (4096, "4K")):
        ours, theirs = by_kernel["triton_sigmoid", context], by_kernel["flex", context]
        # Share of time saved per step, from the ratios of the speeds.
        saved = [100 * (1 - 1 / ratio) for ratio in median_interval([*ours.over(theirs)], 0.95)]
        value, *ends = (fixed(share, 1) for share in saved)
        less = f"{value} % less time [{', '.join(ends)}]" if context == 2048 else None
        yield REPRODUCTION, less or f"{value} % [{', '.join(ends)}] at {label}"


def statements(root: Path) -> Iterator[Statement]:
    """Yield the pages and the texts that they must contain, recomputed from the measurements."""
    measurements = root / "docs/measurements"
    arms, variants, embeddings = (
        Study(measurements / name) for name in ("h200/arms", "h100/variants", "h100/embeddings")
    )
    yield from losses(arms, variants, embeddings)
    yield from scores(embeddings, measurements)
    yield from stability(arms, measurements)
    yield from speed(measurements)
    yield from identity(measurements)
    yield from two_layers(measurements / "h100/converged")
    yield from six_layers(measurements / "h200/deeper")
    yield from deeper(pd.read_csv(measurements / "h200/deeper/pilot.csv"))
    yield from rising(measurements / "h200/rising")
    yield from stress(measurements)
    yield from gpu_time((root / PREREGISTRATION).read_text("utf-8"))


def missing(root: Path) -> list[Statement]:
    """Return the statements that their pages do not contain."""
    texts: dict[str, str] = {}
    wrong = []
    for page, text in statements(root):
        content = texts.setdefault(page, " ".join((root / page).read_text("utf-8").split()))
        if text not in content:
            wrong.append((page, text))
    return wrong


def main(root: Path) -> None:
    wrong = missing(root)
    for page, text in statements(root):
        print("MISSING" if (page, text) in wrong else "ok", page, text, sep="\t")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
