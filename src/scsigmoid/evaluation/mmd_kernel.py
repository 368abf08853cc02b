"""Maximum mean discrepancy between two samples, with bootstrap resamples as matrix products.

The kernel is k(x, y) = exp(-|x - y|^2 / (2 s^2)); s^2 is the median squared distance between two
cells of the pooled pair (median heuristic), fixed before resampling.  A resample is a vector of
counts, so one kernel matrix serves all of them: with counts w (of n cells) and v (of m cells),

    biased   = w'Kxx w / n^2 + v'Kyy v / m^2 - 2 w'Kxy v / (n m)
    unbiased = (w'Kxx w - sum w^2) / (n^2 - sum w^2) + (v'Kyy v - sum v^2) / (m^2 - sum v^2)
               - 2 w'Kxy v / (n m)

are MMD^2 as V and as U statistic.  The latter leaves out pairs of a cell with itself *and with its
copies*, whose kernel of 1 would lift every resample above the point estimate.  All counts 1 gives
the sample itself.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scsigmoid.evaluation.distances import squared_distances

Counts = NDArray[np.int64]


class Estimates(NamedTuple):
    """MMD^2 of each vector of counts, (resamples,), float64; below 0 is possible if unbiased."""

    unbiased: NDArray[np.float64]
    biased: NDArray[np.float64]


def resample_counts(cells: int, resamples: int, seed: int) -> Counts:
    """How often each cell is drawn: (1 + resamples) x cells, int64.

    The first row is all ones, the sample itself; every other draws ``cells`` cells with
    replacement.
    """
    drawn = np.random.default_rng(seed).integers(0, cells, size=(resamples, cells))
    drawn += np.arange(resamples)[:, None] * cells
    counts = np.bincount(drawn.ravel(), minlength=resamples * cells).reshape(resamples, cells)
    return np.concatenate([np.ones((1, cells), dtype=np.int64), counts])


def median_squared_distance(pooled: Tensor) -> float:
    """Median of the squared distance over all pairs of different rows."""
    count = len(pooled)
    above = torch.ones(count, count, dtype=torch.bool, device=pooled.device).triu_(1)
    distances = squared_distances(pooled, pooled)[above]
    # torch.median gives the lower of two middle values
    lower, upper = torch.median(distances), -torch.median(distances.neg_())
    return float((lower + upper) / 2)


def kernel_form(
    x: Tensor, y: Tensor | None, w: Tensor, v: Tensor, bandwidth: float, block: int
) -> Tensor:
    """w'Kv for every row of ``w`` and ``v``: (resamples,).

    Args:
        x: n x dimensions.
        y: m x dimensions; None for ``x`` itself, whose kernel is symmetric.
        w: resamples x n.
        v: resamples x m.
        bandwidth: s^2.
        block: rows and columns of the kernel that are held at once.
    """
    other = x if y is None else y
    total = torch.zeros(len(w), dtype=x.dtype, device=x.device)
    for i in range(0, len(x), block):
        rows = slice(i, i + block)
        for j in range(i if y is None else 0, len(other), block):
            columns = slice(j, j + block)
            kernel = squared_distances(x[rows], other[columns]).mul_(-0.5 / bandwidth).exp_()
            if y is None and i == j:
                kernel.fill_diagonal_(1.0)
            twice = 2 if y is None and j > i else 1
            total += twice * ((w[:, rows] @ kernel) * v[:, columns]).sum(1)
    return total


def mmd_squared(
    x: NDArray[np.floating],
    y: NDArray[np.floating],
    w: Counts,
    v: Counts,
    *,
    bandwidth: float,
    block: int,
    device: str | torch.device = "cpu",
) -> Estimates:
    """Both estimates of MMD^2 between two samples for every row of counts, in float64.

    Args:
        x: n x dimensions.
        y: m x dimensions.
        w: resamples x n, rows sum to n.
        v: resamples x m, rows sum to m.
        bandwidth: s^2, above 0.
        block: rows and columns of the kernel that are held at once.
        device: where the products run.
    """
    n, m = len(x), len(y)

    def tensor(values: NDArray[np.generic]) -> Tensor:
        return torch.as_tensor(values).to(device, torch.float64)

    # distances do not depend on the origin; near it, they lose fewer digits
    x, y = (values - x.mean(0, dtype=np.float64) for values in (x, y))
    tx, ty, tw, tv = tensor(x), tensor(y), tensor(w), tensor(v)
    xx, yy, xy = (
        form.cpu().numpy()
        for form in (
            kernel_form(tx, None, tw, tw, bandwidth, block),
            kernel_form(ty, None, tv, tv, bandwidth, block),
            kernel_form(tx, ty, tw, tv, bandwidth, block),
        )
    )
    copies_x, copies_y = (np.square(counts).sum(1) for counts in (w, v))
    cross = 2 * xy / (n * m)
    # a resample of one cell alone has no pair of different cells: 0 / 0
    with np.errstate(invalid="ignore"):
        within = (xx - copies_x) / (n**2 - copies_x) + (yy - copies_y) / (m**2 - copies_y)
    return Estimates(unbiased=within - cross, biased=xx / n**2 + yy / m**2 - cross)


def percentiles(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """Ends of a percentile interval.

    They are order statistics, rounded outwards, so that the interval of a root is the root of the
    interval.
    """
    tail = (1 - confidence) / 2
    low = np.quantile(values, tail, method="lower")
    return float(low), float(np.quantile(values, 1 - tail, method="higher"))
