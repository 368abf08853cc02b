"""Bootstrap MMD between cell types (appendix, "Maximum Mean Discrepancy").

For every pair of cell types and both models: MMD by two estimators, with the mean and percentiles
of bootstrap resamples. The percentiles of ``unbiased`` are an interval of about the nominal
coverage. ``biased`` is probably the paper's estimator, because the paper prints means over
resamples with asymmetric intervals, which are typical of a V statistic. Copies of a cell increase
the MMD of resamples, so the percentiles of ``biased`` may be above the true value (coverage of
both: docs/evaluation.md). Both are reported as the square root of max(MMD^2, 0).

Resamples are drawn for each cell type, with seeds derived from dataset and cell type. Therefore

- the interval of a pair depends on its two types only,
- both models share the resamples, so their ratio and difference are paired, and
- all pairs with a type share its resamples, so a mean over pairs can be resampled, too.

The kernel is k(x, y) = exp(-|x - y|^2 / (2 s^2)). s^2 is the median squared distance between two
cells of the pooled pair (median heuristic), computed before resampling.  A resample is a vector of
counts, so all resamples use one kernel matrix: with counts w (of n cells) and v (of m cells),

    biased   = w'Kxx w / n^2 + v'Kyy v / m^2 - 2 w'Kxy v / (n m)
    unbiased = (w'Kxx w - sum w^2) / (n^2 - sum w^2) + (v'Kyy v - sum v^2) / (m^2 - sum v^2)
               - 2 w'Kxy v / (n m)

are MMD^2 as V and as U statistic. The U statistic leaves out pairs of a cell with itself *and with
its copies*, whose kernel of 1 would increase every resample. Counts of 1 give the sample itself.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scsigmoid.config.schema import Mmd
from scsigmoid.corpus.labels import check_enough
from scsigmoid.errors import UserError
from scsigmoid.evaluation.distances import squared_distances
from scsigmoid.evaluation.embedding_files import Embedding, read_embeddings
from scsigmoid.measurements import Measurement, source_of, write_measurements
from scsigmoid.progress import log, track
from scsigmoid.seeds import derive

# Largest number of cells from which a bandwidth is computed (8.4 million distances).
BANDWIDTH_CELLS = 4096

Counts = NDArray[np.int64]
#: sqrt(max(MMD^2, 0)) of a sample (element 0 of the last axis) and of its resamples.
Roots = NDArray[np.float64]


class Estimates(NamedTuple):
    """MMD^2 of each vector of counts, (resamples,), float64. Unbiased estimates can be below 0."""

    unbiased: NDArray[np.float64]
    biased: NDArray[np.float64]


def mmd_dataset(
    embeddings: Mapping[str, Path],
    dataset: str,
    settings: Mmd,
    seed: int,
    output: Path,
    device: str | torch.device = "cpu",
    order: Sequence[str] = (),
) -> None:
    """Measure the MMD of all pairs of cell types in both models.

    Args:
        embeddings: model name to embedding file, two models, the sigmoid model first.
        dataset: dataset of the embeddings.
        settings: resamples, confidence, smallest type, block size.
        seed: the configuration's seed.
        output: CSV file of measurements, with ``unbiased`` or ``biased`` for ``<e>``. For each
            pair: ``mmd_<e>`` and ``mmd_<e>_bootstrap_mean`` (the mean over resamples, which the
            paper prints) of both models, and ``mmd_<e>_ratio`` and ``mmd_<e>_difference`` of the
            first and the second model. For all pairs (empty group, ``n`` is their number):
            ``mmd_<e>_mean_ratio_of_means``, ``mmd_<e>_mean_of_ratios`` and
            ``mmd_<e>_bootstrap_mean_ratio_of_means``. ``mmd_left_out`` is the number of cells of
            each type below the minimum.
        device: device that computes kernels, in float64.
        order: cell types that come first. The others follow by name.

    Raises:
        UserError: if the embeddings do not match, or fewer than two types have enough cells.
    """
    by_model = read_embeddings(embeddings, dataset)
    first, second = by_model
    embedding = by_model[first]
    check_enough(embedding.path, embedding.labels, mmd=settings.minimum_cells)
    types, small = choose_types(embedding.labels, settings.minimum_cells, order)
    common = Measurement(
        dataset=dataset,
        model="",
        vocabulary=embedding.metadata["vocabulary"],
        metric="mmd_left_out",
        value=0,
        simulated=any(item.metadata["simulated"] for item in by_model.values()),
        source=source_of(output, *embeddings.values()),
    )

    def row(
        group: str, n: int, metric: str, model: str, values: Roots, value: float | None = None
    ) -> Measurement:
        """Return a measurement: ``values[0]`` or ``value``, with percentiles of resamples."""
        low, high = percentiles(values[1:], settings.confidence)
        metadata = by_model.get(model, embedding).metadata
        return replace(
            common,
            group=group,
            model=model,
            attention=metadata["attention"] if model in by_model else "",
            context=metadata["context"],
            metric=metric,
            value=float(values[0]) if value is None else value,
            low=low,
            high=high,
            n=n,
            seed=seed,
        )

    rows, pairs = [], []
    for a, b in track(list(combinations(types, 2)), label=f"MMD {dataset}"):
        cells, roots = measure_pair(by_model, a, b, dataset, settings, seed, device)
        pairs.append(roots)
        add = partial(row, f"{a} vs {b}", cells)
        for name, (x, y) in zip(Estimates._fields, roots, strict=True):
            for model, values in ((first, x), (second, y)):
                mean = float(values[1:].mean())
                rows.append(add(f"mmd_{name}", model, values))
                rows.append(add(f"mmd_{name}_bootstrap_mean", model, values, mean))
            rows.append(add(f"mmd_{name}_ratio", f"{first} / {second}", ratio(x, y)))
            rows.append(add(f"mmd_{name}_difference", f"{first} - {second}", x - y))
    add = partial(row, "", len(pairs))
    for name, (x, y) in zip(Estimates._fields, np.stack(pairs, axis=2), strict=True):
        of_means = ratio(x.mean(0), y.mean(0))
        of_resamples = float(ratio(x[:, 1:].mean(), y[:, 1:].mean()))
        for metric, values, value in (
            ("mean_ratio_of_means", of_means, None),
            ("mean_of_ratios", ratio(x, y).mean(0), None),
            ("bootstrap_mean_ratio_of_means", of_means, of_resamples),
        ):
            rows.append(add(f"mmd_{name}_{metric}", f"{first} / {second}", values, value))
    rows += [replace(common, group=name, value=count, n=count) for name, count in small.items()]
    write_measurements(output, rows)


def choose_types(
    labels: NDArray[np.str_], minimum: int, first: Sequence[str] = ()
) -> tuple[list[str], dict[str, int]]:
    """Return the compared cell types in order, and the number of cells of smaller types."""
    cells = Counter(sorted(labels.tolist()))
    order = sorted(cells, key=lambda name: first.index(name) if name in first else len(first))
    kept = [name for name in order if cells[name] >= minimum]
    return kept, {name: cells[name] for name in order if cells[name] < minimum}


def measure_pair(
    by_model: Mapping[str, Embedding],
    a: str,
    b: str,
    dataset: str,
    settings: Mmd,
    seed: int,
    device: str | torch.device,
) -> tuple[int, Roots]:
    """Measure the MMD between cell types ``a`` and ``b`` in each model.

    Each model has its own bandwidth: the median over the pooled pair, or over 4,096 cells of a
    larger pair, chosen by a seed and the same for both models.

    Returns:
        The number of cells, and an array: estimators x models x (1 + resamples).

    Raises:
        UserError: if more than half of the cells have the same embedding, so the bandwidth is 0.
    """
    name = f"{a} vs {b}"
    labels = next(iter(by_model.values())).labels
    members = {kind: np.flatnonzero(labels == kind) for kind in (a, b)}
    w, v = (
        resample_counts(len(rows), settings.resamples, derive(seed, "mmd", dataset, kind))
        for kind, rows in members.items()
    )
    chosen = pooled = np.concatenate([members[a], members[b]])
    if len(pooled) > BANDWIDTH_CELLS:
        generator = np.random.default_rng(derive(seed, "mmd bandwidth", dataset, name))
        chosen = generator.choice(pooled, BANDWIDTH_CELLS, replace=False)
    squared = []
    for embedding in by_model.values():
        points = torch.as_tensor(embedding.values[chosen]).to(device, torch.float64)
        bandwidth = median_squared_distance(points)
        if not bandwidth > 0:
            raise UserError(
                f"{embedding.path}: most cells of {name} have the same embedding, so the kernel's "
                "bandwidth is 0; check the model's training"
            )
        x, y = (embedding.values[members[kind]] for kind in (a, b))
        squared.append(
            mmd_squared(x, y, w, v, bandwidth=bandwidth, block=settings.block_cells, device=device)
        )
    roots = np.sqrt(np.maximum(np.swapaxes(squared, 0, 1), 0))
    if np.isnan(roots).any():
        log(
            f"{dataset}: {name}: a resample has only one cell, so the unbiased MMD and its mean "
            "over pairs have no interval; raise evaluation.mmd.minimum_cells"
        )
    return len(pooled), roots


def ratio(first: NDArray[np.float64], second: NDArray[np.float64]) -> Roots:
    """Return first / second: infinity if only ``second`` is 0, and 1 if both are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(first == second, 1.0, first / second)


def resample_counts(cells: int, resamples: int, seed: int) -> Counts:
    """Return how often each cell is drawn: (1 + resamples) x cells, int64.

    The first row is all ones, the sample itself. Each other row draws ``cells`` cells with
    replacement.
    """
    drawn = np.random.default_rng(seed).integers(0, cells, size=(resamples, cells))
    drawn += np.arange(resamples)[:, None] * cells
    counts = np.bincount(drawn.ravel(), minlength=resamples * cells).reshape(resamples, cells)
    return np.concatenate([np.ones((1, cells), dtype=np.int64), counts])


def median_squared_distance(pooled: Tensor) -> float:
    """Return the median squared distance over all pairs of different rows."""
    count = len(pooled)
    is_pair = torch.ones(count, count, dtype=torch.bool, device=pooled.device).triu_(1)
    return float(np.median(squared_distances(pooled, pooled)[is_pair].cpu().numpy()))


def kernel_form(
    x: Tensor, y: Tensor | None, w: Tensor, v: Tensor, bandwidth: float, block: int
) -> Tensor:
    """Return w'Kv, with the kernel matrix K, for every row of ``w`` and ``v``: (resamples,).

    Args:
        x: n x dimensions.
        y: m x dimensions, or None for ``x`` itself, whose kernel is symmetric.
        w: resamples x n.
        v: resamples x m.
        bandwidth: s^2.
        block: rows and columns of the kernel in memory at a time.
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
            copies = 2 if y is None and j > i else 1  # blocks below the diagonal are skipped
            total += copies * ((w[:, rows] @ kernel) * v[:, columns]).sum(1)
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
    """Return both estimates of MMD^2 between two samples, for every row of counts, in float64.

    Args:
        x: n x dimensions.
        y: m x dimensions.
        w: resamples x n, rows sum to n.
        v: resamples x m, rows sum to m.
        bandwidth: s^2, above 0.
        block: rows and columns of the kernel in memory at a time.
        device: device that computes the products.
    """
    n, m = len(x), len(y)

    def tensor(values: NDArray[np.generic]) -> Tensor:
        return torch.as_tensor(values).to(device, torch.float64)

    # Centering keeps the distances and reduces cancellation.
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
    # 0 / 0 if a resample contains only one cell, many times.
    with np.errstate(invalid="ignore"):
        within = (xx - copies_x) / (n**2 - copies_x) + (yy - copies_y) / (m**2 - copies_y)
    return Estimates(unbiased=within - cross, biased=xx / n**2 + yy / m**2 - cross)


def percentiles(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """Return the ends of a percentile interval.

    Quantiles are not interpolated but rounded outward to values in the sample, so that the interval
    of the root is the root of the interval.
    """
    tail = (1 - confidence) / 2
    low = np.quantile(values, tail, method="lower")
    return float(low), float(np.quantile(values, 1 - tail, method="higher"))
