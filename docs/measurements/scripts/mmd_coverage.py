"""Measure how often bootstrap intervals of the MMD contain the true value.

    python docs/measurements/scripts/mmd_coverage.py --output coverage.csv

Each simulation draws two types of cells from normal distributions with unit variance, whose means
are ``distance`` apart. For a Gaussian kernel with squared bandwidth s^2 in d dimensions, the true
MMD^2 is 2 (s^2 / (s^2 + 2))^(d/2) (1 - exp(-distance^2 / (2 s^2 + 4))). As in the workflow, s^2 is
computed from each sample.

The CSV file has one row per setting (``cells``, ``distance``) and ``estimator``. ``coverage`` is
the share of simulations whose 95 % percentile interval contains the true MMD. ``point_outside`` is
the share of simulations whose interval does not contain the point estimate.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from scsigmoid.evaluation import mmd

CELLS = ["2000+2000", "500+100", "100+60", "30+30"]
DISTANCES = [0.5, 1.0, 2.0, 4.0]


def simulate(
    sizes: tuple[int, ...], distance: float, seed: int, options: argparse.Namespace
) -> dict[str, tuple[bool, bool]]:
    """Return, by estimator, whether the interval contains the true MMD and the point estimate."""
    dimensions, device = options.dimensions, options.device
    generator = np.random.default_rng([seed, *sizes])
    x, y = (generator.standard_normal((size, dimensions)) for size in sizes)
    y[:, 0] += distance
    bandwidth = mmd.median_squared_distance(torch.as_tensor(np.concatenate([x, y])).to(device))
    # How often each resample contains each cell. The first row is the sample itself.
    counts = (
        mmd.resample_counts(size, options.resamples, 2 * seed + index)
        for index, size in enumerate(sizes)
    )
    squares = mmd.mmd_squared(x, y, *counts, bandwidth=bandwidth, block=1024, device=device)
    same_type = (bandwidth / (bandwidth + 2)) ** (dimensions / 2)  # mean kernel within a type
    true_mmd = np.sqrt(2 * same_type * -np.expm1(-(distance**2) / (2 * bandwidth + 4)))
    contains = {}
    for name, squared in zip(mmd.Estimates._fields, squares, strict=True):
        roots = np.sqrt(np.maximum(squared, 0))
        point, (low, high) = roots[0], mmd.percentile_interval(roots[1:], 0.95)
        contains[name] = (low <= true_mmd <= high, low <= point <= high)
    return contains


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cells", nargs="+", default=CELLS, help="cells of both types, as 500+100")
    parser.add_argument("--distances", nargs="+", type=float, default=DISTANCES)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, required=True, help="CSV file")
    options = parser.parse_args(arguments)
    rows = []
    for cells in options.cells:
        sizes = tuple(map(int, cells.split("+")))
        for distance in options.distances:
            seeds = range(options.simulations)
            simulations = [simulate(sizes, distance, seed, options) for seed in seeds]
            for name in mmd.Estimates._fields:
                coverage, inside = np.mean([contains[name] for contains in simulations], axis=0)
                rows.append((cells, distance, name, coverage, 1 - inside, len(simulations)))
            print(*rows[-2:], sep="\n", flush=True)  # a row for each estimator
    columns = ["cells", "distance", "estimator", "coverage", "point_outside", "simulations"]
    pd.DataFrame(rows, columns=columns).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
