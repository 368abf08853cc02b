"""Measure how often intervals of the validation loss contain the mean of the donors.

    python docs/measurements/scripts/donor_coverage.py --output donor_coverage.csv

Each simulation has 400 cells, 80 % from one donor and the others divided equally among the other
donors. Donor means are normally distributed, and the standard deviation between the cells of a
donor is 1. The true value is 0, the mean of the population of donors.

The CSV file has one row per setting (``donors``, ``deviation``: standard deviation between donors)
and ``interval``: ``donors``, Student's t over donor means (as in the workflow), and ``clusters``,
the mean over cells with donors as clusters (CR1, Student's t). ``coverage`` is the share of
simulations whose nominal 95 % interval contains the true value, ``standard_error`` its standard
error.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

CELLS, LARGEST = 400, 0.8


def covered(
    donors: int, deviation: float, simulations: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return, by interval, whether the interval of each simulation contains 0."""
    others = np.array_split(np.arange(CELLS * (1 - LARGEST)), donors - 1)
    sizes = np.array([round(CELLS * LARGEST), *map(len, others)])
    means = deviation * generator.standard_normal((simulations, donors))
    means += generator.standard_normal((simulations, donors)) / np.sqrt(sizes)
    critical = stats.t.ppf(0.975, donors - 1)
    by_donor = means.mean(1), means.std(1, ddof=1) / np.sqrt(donors)
    over_cells = means @ sizes / CELLS
    # Sums of residuals by cluster.
    sums = sizes * (means - over_cells[:, None])
    error = np.sqrt((sums**2).sum(1) * donors / (donors - 1)) / CELLS
    pairs = {"donors": by_donor, "clusters": (over_cells, error)}
    return {name: np.abs(value) <= critical * error for name, (value, error) in pairs.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--donors", nargs="+", type=int, default=[5, 10])
    parser.add_argument("--deviations", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--simulations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="CSV file")
    options = parser.parse_args(arguments)
    generator = np.random.default_rng(options.seed)
    rows = []
    for donors in options.donors:
        for deviation in options.deviations:
            contains = covered(donors, deviation, options.simulations, generator)
            for name, values in contains.items():
                coverage = values.mean()
                error = np.sqrt(coverage * (1 - coverage) / len(values))
                rows.append((donors, deviation, name, coverage, error, len(values)))
    columns = ["donors", "deviation", "interval", "coverage", "standard_error", "simulations"]
    pd.DataFrame(rows, columns=columns).round(5).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
