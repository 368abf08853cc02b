"""Raise the learning rate of trained models without clipping (docs/preregistration.md, section 5).

    python docs/measurements/scripts/rising_rate.py train --configuration config.yaml \
        --run rising_sigmoid_variants_none_seed_101 --tokens part-00000 \
        --vocabulary vocabulary.parquet --output FOLDER
    python docs/measurements/scripts/rising_rate.py collect FOLDER... --output rising.csv
    python docs/measurements/scripts/rising_rate.py judge rising.csv --frequencies LOSS

``train`` trains one run of workflow/studies/rising.yaml, then continues with rising rates.
``collect`` writes the journals of all runs to one file. ``judge`` finds the breaking rates and
compares the arms. ``LOSS`` is the loss of gene frequencies in nats.
"""

import argparse
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import yaml
from scipy import stats

#: Steps with each rate of the ramp, and the rates.
STEPS_PER_RATE = 200
RATES = tuple(1e-3 * 2 ** (index / 2) for index in range(13))
#: Steps between validations and between logged steps, during the ramp.
VALIDATE_EVERY, LOG_EVERY = 50, 10
#: The rule of divergence: nats below gene frequencies before the ramp, rise of the level in nats,
#: and factor between a gradient norm and the median norm of the last steps before the ramp.
LEARNED, RISE, EXPLODED, NORM_STEPS = 0.5, 1.0, 100, 1000
#: Columns of the journal that are kept.
CURVES = (
    "step",
    "learning_rate",
    "loss",
    "validation_loss",
    "gradient_norm",
    "attention_score_max",
)


def ramp_rate(step: int, learned: int) -> float:
    """Return the learning rate of a step of the ramp, which begins after step ``learned``."""
    return RATES[(step - learned - 1) // STEPS_PER_RATE]


def train(configuration: Path, name: str, tokens: Path, vocabulary: Path, output: Path) -> None:
    from scsigmoid.config.check import check
    from scsigmoid.config.plan import Plan
    from scsigmoid.training import loop
    from scsigmoid.training.run import TrainingRun
    from scsigmoid.training.step import StepResult, Trainer

    config = check(yaml.safe_load(configuration.read_text()))
    run = TrainingRun.of(Plan(config).run_config(name), name)
    loop.train(run, [tokens], vocabulary, output)
    learned = run.training.steps

    class RampTrainer(Trainer):
        def step(self, step, batches, masked=None) -> StepResult:  # type: ignore[no-untyped-def]
            rate = ramp_rate(step, learned)
            self.training = run.training.model_copy(
                update={"learning_rate": rate, "clipping": None}
            )
            return super().step(step, batches, masked)

    # A run continues with other values of these settings.
    execution = run.training.execution.model_copy(update={"log_every": LOG_EVERY})
    update = {
        "steps": learned + STEPS_PER_RATE * len(RATES),
        "validate_every": VALIDATE_EVERY,
        "execution": execution,
    }
    training = run.training.model_copy(update=update)
    with patch.object(loop, "Trainer", RampTrainer):
        loop.train(replace(run, training=training), [tokens], vocabulary, output)


def collect(folders: Sequence[Path], output: Path) -> None:
    """Write the journals of runs to ``output``, and attention by layer to ``…_layers.csv``."""
    from scsigmoid.training.journal import JOURNAL, LAYERS, read_journal

    curves, layers = [], []
    for folder in sorted(folders):
        match = re.fullmatch(
            "rising_(?P<attention>.*)_variants_(?P<variants>.*)_seed_(?P<seed>.*)", folder.name
        )
        if not match:
            raise SystemExit(f"{folder}: not the name of a run of workflow/studies/rising.yaml")
        run = match.groupdict()
        journal, _ = read_journal(folder / JOURNAL)
        curves.append(pd.DataFrame({key: journal[key] for key in CURVES}).assign(**run))
        columns = ["step", "layer", "score_max", "keys"]
        layers.append(pd.read_csv(folder / LAYERS)[columns].assign(**run))
    pd.concat(curves).to_csv(output, index=False)
    pd.concat(layers).to_csv(output.with_stem(f"{output.stem}_layers"), index=False)


def first_break(curve: pd.DataFrame, frequencies: float, norm_counts: bool = True) -> float | None:
    """Return the step at which a run first breaks, infinity if it never does.

    Return None if the run had not learned before the ramp. Without ``norm_counts``, a loss that
    rises is enough ("lost without explosion").
    """
    curve = curve.set_index("step").sort_index()
    last = int(curve.index[-1])
    learned = last - STEPS_PER_RATE * len(RATES)
    losses = curve["validation_loss"].dropna()
    levels = losses.rolling(3).median().dropna()
    if not levels.loc[:learned].iloc[-1] <= frequencies - LEARNED:
        return None
    norms = curve["gradient_norm"].fillna(math.inf)
    limit = EXPLODED * norms.loc[learned - NORM_STEPS + 1 : learned].median()
    is_finite = np.isfinite(curve[["loss", "gradient_norm"]]).all(axis=1)
    is_finite[losses.index] &= np.isfinite(losses)
    infinite = is_finite.index[~is_finite & (is_finite.index > learned)]
    steps = [float(infinite[0])] if len(infinite) else []
    for step in levels.index[levels.index > learned]:
        before = levels.loc[:step]
        has_risen = levels.loc[step] >= before.min() + RISE
        has_exploded = (norms.loc[before.idxmin() : step] >= limit).any()
        if has_risen and (has_exploded or not norm_counts):
            return min([float(step), *steps])
    return min(steps, default=math.inf)


def breaking_rate(curve: pd.DataFrame, frequencies: float, norm_counts: bool = True) -> float:
    """Return the rate at :func:`first_break`. NaN if the run had not learned."""
    step = first_break(curve, frequencies, norm_counts)
    if step is None or math.isinf(step):
        return math.nan if step is None else math.inf
    return float(curve.set_index("step").loc[int(step), "learning_rate"])


def sign_test(first: pd.Series, second: pd.Series) -> tuple[int, int, int, float]:
    """Return the numbers of pairs in which ``first`` is lower, higher and equal, and the p-value.

    Pairs with a NaN are left out.
    """
    pairs = pd.concat([first, second], axis=1, keys=["first", "second"]).dropna()
    lower = int((pairs["first"] < pairs["second"]).sum())
    higher = int((pairs["first"] > pairs["second"]).sum())
    p = stats.binomtest(lower, lower + higher).pvalue if lower + higher else 1.0
    return lower, higher, len(pairs) - lower - higher, float(p)


def lines(curves: pd.DataFrame, frequencies: float) -> Iterator[str]:
    """Yield the results, one line for each."""
    runs = curves.groupby(["variants", "attention", "seed"])
    tables = {}
    for name, norm_counts in (("breaking rate", True), ("rate of the loss alone", False)):
        tables[name] = table = runs.apply(
            breaking_rate, frequencies, norm_counts, include_groups=False
        )
        for (variants, attention), rates in table.groupby(level=["variants", "attention"]):
            sorted_rates = " ".join(f"{rate:.4g}" for rate in sorted(rates))
            yield f"{name}, {attention}, {variants}: {sorted_rates}"
    comparisons = [
        (
            f"{name}, {variants}",
            *(tables[name].loc[variants, arm] for arm in ("softmax", "sigmoid")),
        )
        for variants in sorted(curves["variants"].unique(), reverse=True)
        for name in tables
    ]
    if curves["variants"].nunique() == 2:
        softmax = tables["breaking rate"].xs("softmax", level="attention")
        comparisons.append(("softmax, plain and qk_norm", softmax["none"], softmax["qk_norm"]))
    for name, first, second in comparisons:
        lower, higher, ties, p = sign_test(first, second)
        yield f"{name}: first lower in {lower}, higher in {higher}, equal in {ties}, p = {p:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    for option in ("configuration", "tokens", "vocabulary", "output"):
        training.add_argument(f"--{option}", type=Path, required=True)
    training.add_argument("--run", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("folders", type=Path, nargs="+")
    collecting.add_argument("--output", type=Path, required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("curves", type=Path)
    judging.add_argument("--frequencies", type=float, required=True)
    options = parser.parse_args()
    if options.command == "train":
        train(
            options.configuration, options.run, options.tokens, options.vocabulary, options.output
        )
    elif options.command == "collect":
        collect(options.folders, options.output)
    else:
        print(*lines(pd.read_csv(options.curves), options.frequencies), sep="\n")


if __name__ == "__main__":
    main()
