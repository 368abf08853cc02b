"""Judge the pilot of workflow/studies/converged.yaml by the rules of docs/preregistration.md.

    python docs/measurements/scripts/converged.py PILOT.csv --frequencies LOSS [--output RATES.json]

``PILOT.csv`` has one row per logged step, with ``attention``, ``learning_rate``, ``seed``,
``step`` and ``validation_loss``. ``LOSS`` is the loss of gene frequencies in nats. The program
prints the standard deviation between seeds first, then the number of steps and the learning rates
of the pairs. It ends with code 1 if the rules ask for more pilot runs. It needs only numpy, because
it also runs on the GPU machine, between the pilot and the pairs.
"""

import argparse
import csv
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

#: A run's loss is the mean of its last five validation losses, 200 steps apart.
AVERAGED, VALIDATE_EVERY = 5, 200
#: Steps of the pairs, before and after doubling (rule 3).
STEPS, DOUBLED = 9000, 18_000
#: A run whose loss is above the loss of gene frequencies minus this has collapsed (rule 1), nats.
COLLAPSED = 0.5
#: Limits of rule 3: standard deviation of a paired difference, decrease in 1,000 steps, both nats.
LARGEST_DEVIATION, LARGEST_DECREASE = 0.04, 0.05
#: If the best rate is this one, the pilot needs runs at twice the rate (rule 2).
HIGHEST_RATE = 2e-3

#: Validation losses of the runs by step; keys: attention, learning rate and seed.
Curves = dict[tuple[str, float, int], dict[int, float]]
#: An arm and a rate.
Group = tuple[str, float]


def read_curves(path: Path) -> Curves:
    curves: Curves = defaultdict(dict)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["validation_loss"]:
                run = (row["attention"], float(row["learning_rate"]), int(row["seed"]))
                curves[run][int(row["step"])] = float(row["validation_loss"])
    return dict(curves)


def losses_at(curves: Curves, step: int) -> dict[Group, list[float]]:
    """Return the losses of the runs (mean of five validations up to ``step``) by group."""
    groups: dict[Group, list[float]] = defaultdict(list)
    steps = range(step - (AVERAGED - 1) * VALIDATE_EVERY, step + 1, VALIDATE_EVERY)
    for (attention, rate, _), curve in sorted(curves.items()):
        groups[attention, rate].append(float(np.mean([curve[item] for item in steps])))
    return dict(groups)


def has_collapsed(losses: list[float], frequencies: float) -> bool:
    return any(not loss <= frequencies - COLLAPSED for loss in losses)  # also if it is NaN


def pooled_deviation(groups: Mapping[Group, list[float]]) -> tuple[float, int]:
    """Return the root mean square of the groups' standard deviations, and degrees of freedom."""
    variances = [float(np.var(losses, ddof=1)) for losses in groups.values()]
    return math.sqrt(np.mean(variances)), sum(len(losses) - 1 for losses in groups.values())


def judge(curves: Curves, frequencies: float) -> tuple[int, dict[str, float]]:
    """Print how the rules decide. Return the steps and the learning rates of the pairs.

    Raises:
        SystemExit: if the rules ask for more pilot runs.
    """
    last = min(max(curve) for curve in curves.values())
    steps = STEPS
    for step in (STEPS, DOUBLED):
        if step > last:
            raise SystemExit(f"not judged: the shortest run ends at step {last}")
        groups = losses_at(curves, step)
        kept = {key: item for key, item in groups.items() if not has_collapsed(item, frequencies)}
        deviation, freedom = pooled_deviation(kept)
        before = losses_at(curves, step - 1000)
        decrease = float(np.mean([np.mean(before[key]) - np.mean(kept[key]) for key in kept]))
        print(f"step {step}: s = {deviation:.4f} nats ({freedom} degrees of freedom)")
        print(f"  sqrt(2) s = {math.sqrt(2) * deviation:.4f}, decrease {decrease:.4f}")
        steps = step
        if math.sqrt(2) * deviation <= LARGEST_DEVIATION and decrease <= LARGEST_DECREASE:
            break  # rule 3
    print(f"steps of the pairs: {steps}")
    rates = {}
    for attention in sorted({attention for attention, _ in kept}):
        means = {rate: np.mean(item) for (arm, rate), item in kept.items() if arm == attention}
        for rate, mean in sorted(means.items()):
            print(f"{attention} at {rate:g}: {mean:.4f} nats")
        rates[attention] = min(means, key=lambda rate: means[rate])
        if rates[attention] == HIGHEST_RATE:
            raise SystemExit(f"{attention}: the best rate is the highest; run twice the rate")
        print(f"{attention}: {rates[attention]:g}")
    return steps, rates


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pilot", type=Path)
    parser.add_argument("--frequencies", type=float, required=True)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    steps, rates = judge(read_curves(options.pilot), options.frequencies)
    if options.output:
        options.output.write_text(json.dumps({"steps": steps, "rates": rates}) + "\n")


if __name__ == "__main__":
    main()
