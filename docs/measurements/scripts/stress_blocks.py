"""Analyze the paper's stress test with 2 cells a step, seeds 203 to 208.

    python docs/measurements/scripts/stress_blocks.py docs/measurements

The rules are in docs/preregistration.md, section 6, third block. With fewer than four complete new
seeds nothing is analyzed, unless ``--no-more-runs`` says that no more GPU time can be had. The
program reads ``h100/stress.csv`` and ``h200/stress.csv``.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from scsigmoid.report.tables.writing import fixed
from scsigmoid.study import comparisons
from scsigmoid.study.stability import DIVERGED_RISE, has_diverged

OLD_SEEDS, NEW_SEEDS, LEAST_SEEDS = (203, 204), (205, 206, 207, 208), 2
#: Step of the paper's divergence, and steps between the norms of the old seeds.
PAPER_STEP, OLD_STEPS = 55_600, 50
#: Loss of gene frequencies on the cells of stress.yaml, in nats.
FREQUENCIES = 9.26
RUN, ARMS = ["seed", "attention"], ["sigmoid", "softmax"]


def by_run(rows: pd.DataFrame, summary: Callable[..., Any], **options: float) -> pd.Series:
    """Return a summary of the journal of each run, indexed by seed and arm."""
    columns = ["step", "loss", "validation_loss", "gradient_norm"]
    return rows.groupby(RUN)[columns].apply(summary, **options)


def levels(curve: pd.DataFrame) -> pd.Series:
    """Return the level of a run: medians of three validation losses in a row."""
    return curve["validation_loss"].dropna().rolling(3).median().dropna().reset_index(drop=True)


def largest_rise(curve: pd.DataFrame) -> float:
    """Return the largest rise of the level above its minimum so far."""
    return float((levels(curve) - levels(curve).cummin()).max())


def has_risen(curve: pd.DataFrame) -> bool:
    """Return True if a level after the lowest one is much higher: the rule's second condition.

    A loss that is not finite counts as such a level.
    """
    if not np.isfinite(curve["loss"]).all():
        return True
    level = levels(curve)
    return bool((level.loc[level.idxmin() :] >= level.min() + DIVERGED_RISE).any())


def complete(rows: pd.DataFrame) -> list[int]:
    """Return the seeds that have reached the step of the paper's divergence in both arms."""
    ends = rows.groupby(RUN)["step"].max().unstack().reindex(columns=ARMS)
    return [int(seed) for seed in ends.index[(ends >= PAPER_STEP).all(axis=1)]]


def counted(runs: pd.Series) -> str:
    """Return the number of runs of each arm that are True, with Fisher's exact test."""
    counts = [(int(arm.sum()), len(arm)) for arm in (runs.xs(name, level=1) for name in ARMS)]
    p = stats.fisher_exact([[count, total - count] for count, total in counts]).pvalue
    texts = (
        f"{name} {count} of {total}" for name, (count, total) in zip(ARMS, counts, strict=True)
    )
    return f"{', '.join(texts)}, p {p:.2g}"


def lines(rows: pd.DataFrame, no_more_runs: bool = False) -> Iterator[str]:
    """Yield the results. ``rows``: the columns of both files."""
    if rows.duplicated([*RUN, "step"]).any():
        raise SystemExit("stress.csv: a run has a step twice; leave out one of its attempts")
    seeds = [seed for seed in complete(rows) if seed in (*OLD_SEEDS, *NEW_SEEDS)]
    new = [seed for seed in seeds if seed in NEW_SEEDS]
    if len(new) < (LEAST_SEEDS if no_more_runs else len(NEW_SEEDS)):
        raise SystemExit(f"stress.csv: not judged yet; complete new seeds: {new}")
    rows = rows[rows["seed"].isin(seeds)]
    ends = rows.groupby(RUN)["step"].max()
    common = rows[rows["step"] <= rows["seed"].map(ends.groupby("seed").min())]
    every_50 = common[(common["step"] % OLD_STEPS == 0) | (common["step"] == 1)]
    until = rows[rows["step"] <= PAPER_STEP]
    losses = comparisons.final_losses(until, RUN).unstack()[ARMS]
    outcomes = {
        "diverged, norms every 50 steps": by_run(every_50, has_diverged, baseline=FREQUENCIES),
        "diverged, every logged norm": by_run(common, has_diverged, baseline=FREQUENCIES),
        f"level rises by {DIVERGED_RISE} nats": by_run(common, has_risen),
    }
    for group in (seeds, new):
        yield f"seeds {', '.join(map(str, group))}:"
        for name, runs in outcomes.items():
            yield f"  {name}: {counted(runs.loc[group])}"
        difference = losses.loc[group, "sigmoid"] - losses.loc[group, "softmax"]
        is_finite = np.isfinite(difference)
        if is_finite.all():
            row = comparisons.student_intervals(difference.to_frame().T).iloc[0]
            middle, low, high = (fixed(row[name], 3) for name in ("difference", "low", "high"))
            yield f"  loss up to step {PAPER_STEP:,}: {middle} [{low}, {high}] nats"
        else:
            infinite = list(difference.index[~is_finite])
            yield f"  loss not compared, because not finite: seeds {infinite}"
        upper = 1 - 0.025 ** (1 / len(group))
        yield f"  if none of {len(group)} diverged, up to {100 * upper:.0f} % of such runs could"
    norms = rows.groupby(RUN)["gradient_norm"]
    described = {
        "last step": ends,
        "loss at the end": comparisons.final_losses(rows, RUN),
        "loss at the last common step": comparisons.final_losses(common, RUN),
        "loss up to the paper's step": losses.stack(),
        "largest rise of the level": by_run(common, largest_rise),
        "largest norm": norms.max(),
        "divided by the median": norms.max() / norms.median(),
        "largest attention score": rows.groupby(RUN)["attention_score_max"].max(),
    }
    yield pd.DataFrame(described).round(3).to_string()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("measurements", type=Path)
    parser.add_argument("--no-more-runs", action="store_true")
    options = parser.parse_args()
    tables = [pd.read_csv(options.measurements / gpu / "stress.csv") for gpu in ("h100", "h200")]
    print(*lines(pd.concat(tables), options.no_more_runs), sep="\n")


if __name__ == "__main__":
    main()
