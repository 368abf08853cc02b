"""Bootstrap MMD between cell types (appendix, "Maximum Mean Discrepancy").

The MMD is measured between the embeddings of each pair of cell types, in the sigmoid and in the
softmax model. It is sqrt(max(MMD^2, 0)), with two estimators of MMD^2 and percentile intervals of
bootstrap resamples. docs/evaluation.md explains why there are two estimators, and reports the
coverage of their intervals.

Resamples are drawn for each cell type, with seeds derived from dataset and cell type. The interval
of a pair therefore depends on its two types only. Ratios and differences of the models are computed
resample by resample. All pairs with a type share its resamples, so a mean over pairs has an
interval, too.

The kernel is k(x, y) = exp(-|x - y|^2 / (2 s^2)). s^2 is the median squared distance between two
cells of the pooled pair (median heuristic), computed before resampling. A resample is a vector of
counts, so all resamples use one kernel matrix: with counts w (of n cells) and v (of m cells),

    biased   = w'Kxx w / n^2 + v'Kyy v / m^2 - 2 w'Kxy v / (n m)
    unbiased = (w'Kxx w - sum w^2) / (n^2 - sum w^2) + (v'Kyy v - sum v^2) / (m^2 - sum v^2)
               - 2 w'Kxy v / (n m)

are MMD^2 as V and as U statistic. The U statistic leaves out pairs of a cell with itself *and with
its copies*: the kernel of such a pair is 1, which would increase the MMD of every resample.
"""

import math
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
from scsigmoid.corpus.cell_types import check_enough
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import Embedding, read_embeddings
from scsigmoid.progress import log, track
from scsigmoid.records.measurements import Measurement, source_of, write_measurements
from scsigmoid.records.mmd_metrics import LEFT_OUT, MmdMetric
from scsigmoid.seeds import derive

BANDWIDTH_CELLS = 4096  # a bandwidth uses at most this number of cells (8.4 million distances)

#: How often each cell is drawn: (1 + resamples) x cells. Row 0 is the sample (all counts are 1).
Counts = NDArray[np.int64]
#: A statistic of the sample (element 0 of the last axis) and of its resamples.
Resampled = NDArray[np.float64]


class Estimates(NamedTuple):
    """MMD^2 of the sample and of each resample, (1 + resamples,). ``unbiased`` can be below 0."""

    unbiased: NDArray[np.float64]
    biased: NDArray[np.float64]


def mmd_dataset(
    embeddings: Mapping[str, Path], dataset: str, settings: Mmd, seed: int, output: Path,
    device: str | torch.device = "cpu", order: Sequence[str] = (),
) -> None:  # fmt: skip
    """Measure the MMD of all pairs of cell types in both models.

    Args:
        embeddings: embedding files of the sigmoid and of the softmax model, in this order, by
            model name.
        output: CSV file of measurements, see below.
        device: device that computes the kernels, in float64.
        order: cell types whose pairs come first, in this order. Other types are sorted by name.

    The file has the metrics of :class:`MmdMetric` for both estimators, and ``mmd_left_out`` for
    each type with too few cells. Of a metric of both models, ``model`` is the sigmoid model and
    ``compared_with`` the softmax model. Of a metric of all pairs, ``group`` is empty and ``n`` is
    the number of pairs.

    Raises:
        UserError: if the embeddings do not match, or fewer than two types have enough cells.
    """
    by_model = read_embeddings(embeddings, dataset)
    attentions = [embedding.metadata["attention"] for embedding in by_model.values()]
    if attentions != ["sigmoid", "softmax"]:
        raise UserError(
            f"--embeddings: of models with {', '.join(attentions)}; name the embeddings of a "
            "sigmoid and of a softmax model, in this order"
        )
    sigmoid, softmax = by_model  # names of the models
    first = by_model[sigmoid]  # all models have the same cells and types
    check_enough(first.path, first.labels, mmd=settings.minimum_cells)
    types, left_out = choose_types(first.labels, settings.minimum_cells, order)
    # Fields that rows share. The metric is for left-out types, `measurement` replaces it.
    common = Measurement(
        dataset=dataset, model="", metric=LEFT_OUT, value=0,
        vocabulary=first.metadata["vocabulary"],
        source=source_of(output, *embeddings.values()),
    )  # fmt: skip
    row = partial(measurement, replace(common, seed=seed), by_model, settings.confidence)
    rows, pairs = [], []
    type_pairs = list(combinations(types, 2))
    for a, b in track(type_pairs, label=f"MMD {dataset}", unit="pairs"):
        n_cells, mmds = measure_pair(by_model, a, b, dataset, settings, seed, device)
        pairs.append(mmds)
        pair_row = partial(row, pair_name(a, b), n_cells)
        # x is the MMD in the sigmoid model, y in the softmax model.
        for name, (x, y) in zip(Estimates._fields, mmds, strict=True):
            for model, values in ((sigmoid, x), (softmax, y)):
                mean = float(values[1:].mean())
                rows.append(pair_row(MmdMetric.VALUE.of(name), model, "", values))
                mean_name = MmdMetric.BOOTSTRAP_MEAN.of(name)
                rows.append(pair_row(mean_name, model, "", values, mean))
            rows.append(pair_row(MmdMetric.RATIO.of(name), sigmoid, softmax, ratio(x, y)))
            rows.append(pair_row(MmdMetric.DIFFERENCE.of(name), sigmoid, softmax, x - y))
    all_mmds = np.stack(pairs, axis=2)  # estimators x models x pairs x (1 + resamples)
    for name, (x, y) in zip(Estimates._fields, all_mmds, strict=True):
        ratio_of_means = ratio(x.mean(0), y.mean(0))
        bootstrap_ratio = float(ratio(x[:, 1:].mean(), y[:, 1:].mean()))
        for metric, values, estimate in (
            (MmdMetric.MEAN_RATIO_OF_MEANS, ratio_of_means, None),
            (MmdMetric.MEAN_OF_RATIOS, ratio(x, y).mean(0), None),
            (MmdMetric.BOOTSTRAP_MEAN_RATIO_OF_MEANS, ratio_of_means, bootstrap_ratio),
        ):
            mean_row = partial(row, "", len(pairs), metric.of(name))
            rows.append(mean_row(sigmoid, softmax, values, estimate))
    rows += [replace(common, group=name, value=count, n=count) for name, count in left_out.items()]
    write_measurements(output, rows)


def measurement(
    common: Measurement, by_model: Mapping[str, Embedding], confidence: float,
    group: str, n: int, metric: str, model: str, compared_with: str, resampled: Resampled,
    estimate: float | None = None,
) -> Measurement:  # fmt: skip
    """Return a measurement of a model, or of both models for a ratio or a difference.

    ``common`` has the other fields. ``estimate`` is the value (default: the value of the sample).
    """
    low, high = percentile_interval(resampled[1:], confidence)
    models = [by_model[name] for name in (model, compared_with) if name]
    # A ratio or a difference of models with different values has neither of them.
    attention, *other_attentions = {item.metadata["attention"] for item in models}
    context, *other_contexts = {item.metadata["context"] for item in models}
    return replace(
        common, group=group, model=model, compared_with=compared_with, metric=metric,
        low=low, high=high, n=n, attention="" if other_attentions else attention,
        context=0 if other_contexts else context,
        value=float(resampled[0]) if estimate is None else estimate,
    )  # fmt: skip


def choose_types(
    labels: NDArray[np.str_], minimum: int, order: Sequence[str] = ()
) -> tuple[list[str], dict[str, int]]:
    """Return the types with at least ``minimum`` cells, and the cell counts of the other types.

    The types in ``order`` come first, the other types follow by name.
    """
    cells = Counter(labels.tolist())
    names = [*(name for name in order if name in cells), *sorted(cells.keys() - set(order))]
    kept = [name for name in names if cells[name] >= minimum]
    return kept, {name: cells[name] for name in names if cells[name] < minimum}


def pair_name(a: str, b: str) -> str:
    """Return the name of a pair of cell types, e.g. ``Cardiac vs Neural``.

    A type whose own name contains the word "vs" is in quotation marks, so that no two pairs have
    the same name.
    """
    return " vs ".join(f'"{name}"' if "vs" in name.split() else name for name in (a, b))


def measure_pair(
    by_model: Mapping[str, Embedding], a: str, b: str, dataset: str, settings: Mmd, seed: int,
    device: str | torch.device,
) -> tuple[int, Resampled]:  # fmt: skip
    """Measure the MMD between cell types ``a`` and ``b`` in each model.

    Return the number of cells, and sqrt(max(MMD^2, 0)) as estimators x models x (1 + resamples).
    The bandwidth of a model is computed from at most ``BANDWIDTH_CELLS`` random cells of the pair,
    the same cells in all models. Raise a UserError if a bandwidth is 0.
    """
    name = pair_name(a, b)
    labels = next(iter(by_model.values())).labels
    members = [np.flatnonzero(labels == cell_type) for cell_type in (a, b)]  # rows of the cells
    w, v = (  # counts of the cells of each type
        resample_counts(len(cells), settings.resamples, derive(seed, "mmd", dataset, cell_type))
        for cell_type, cells in zip((a, b), members, strict=True)
    )
    pair = subset = np.concatenate(members)
    if len(pair) > BANDWIDTH_CELLS:
        generator = np.random.default_rng(derive(seed, "mmd bandwidth", dataset, name))
        subset = generator.choice(pair, BANDWIDTH_CELLS, replace=False)
    squared = []  # models x estimators x (1 + resamples)
    for embedding in by_model.values():
        points = torch.as_tensor(embedding.values[subset]).to(device, torch.float64)
        bandwidth = median_squared_distance(points)
        if bandwidth == 0:
            raise UserError(
                f"{embedding.path}: most cells of {name} have the same embedding, so the kernel's "
                "bandwidth is 0; check the model's training"
            )
        x, y = (embedding.values[cells] for cells in members)
        squared.append(
            mmd_squared(x, y, w, v, bandwidth=bandwidth, block=settings.block_cells, device=device)
        )
    roots = np.sqrt(np.maximum(np.swapaxes(squared, 0, 1), 0))
    if np.isnan(roots).any():
        log(
            f"{dataset}: {name}: a resample contains copies of one cell only, so the unbiased MMD "
            "and its mean over pairs have no interval; raise evaluation.mmd.minimum_cells"
        )
    return len(pair), roots


def ratio(first: NDArray[np.float64], second: NDArray[np.float64]) -> Resampled:
    """Return first / second: infinity if only ``second`` is 0, and 1 if both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(first == second, 1.0, first / second)


def resample_counts(cells: int, resamples: int, seed: int) -> Counts:
    """Draw resamples of all cells with replacement, and count how often each cell is drawn."""
    drawn = np.random.default_rng(seed).integers(0, cells, size=(resamples, cells))
    drawn += np.arange(resamples)[:, None] * cells  # so that one `bincount` counts all resamples
    counts = np.bincount(drawn.ravel(), minlength=resamples * cells).reshape(resamples, cells)
    return np.concatenate([np.ones((1, cells), dtype=np.int64), counts])


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared Euclidean distances, (n, m), of ``a`` (n, d) from ``b`` (m, d)."""
    norms = a.square().sum(1)[:, None] + b.square().sum(1)  # |a|^2 + |b|^2
    return torch.addmm(norms, a, b.T, alpha=-2).clamp_(min=0)


def median_squared_distance(points: Tensor) -> float:
    """Return the median squared distance over all pairs of points (rows)."""
    count = len(points)
    is_pair = torch.ones(count, count, dtype=torch.bool, device=points.device).triu_(1)
    # torch.median would return the lower of two middle values.
    return float(np.median(squared_distances(points, points)[is_pair].cpu().numpy()))


def bilinear_form(
    x: Tensor, y: Tensor | None, w: Tensor, v: Tensor, bandwidth: float, block: int
) -> Tensor:
    """Return w'Kv for each row of ``w`` and ``v``, where K is the kernel of ``x`` and ``y``.

    Args:
        x, y: n x dimensions and m x dimensions. None for ``y`` means ``x``.
        w, v: (1 + resamples) x n and (1 + resamples) x m.
        bandwidth: s^2, above 0.
        block: number of rows and of columns of the kernel that are in memory at a time.
    """
    other = x if y is None else y
    total = torch.zeros(len(w), dtype=x.dtype, device=x.device)
    for i in range(0, len(x), block):
        rows = slice(i, i + block)
        for j in range(i if y is None else 0, len(other), block):
            columns = slice(j, j + block)
            kernel = squared_distances(x[rows], other[columns]).mul_(-0.5 / bandwidth).exp_()
            if y is None and i == j:
                kernel.fill_diagonal_(1.0)  # rounding errors may leave other values
            # A symmetric kernel: blocks below the diagonal are skipped, blocks above count twice.
            weight = 2 if y is None and j > i else 1
            total += weight * ((w[:, rows] @ kernel) * v[:, columns]).sum(1)
    return total


def mmd_squared(
    x: NDArray[np.floating], y: NDArray[np.floating], w: Counts, v: Counts, *,
    bandwidth: float, block: int, device: str | torch.device = "cpu",
) -> Estimates:  # fmt: skip
    """Return both estimates of MMD^2 between two samples for each row of counts, in float64.

    Each row of ``w`` must sum to n, and each row of ``v`` to m. :func:`bilinear_form` describes
    all arguments.
    """
    n, m = len(x), len(y)
    center = x.mean(0, dtype=np.float64)  # subtracted only to reduce rounding errors of distances
    arrays = (x - center, y - center, w, v)
    tx, ty, tw, tv = (torch.as_tensor(array).to(device, torch.float64) for array in arrays)
    xx = bilinear_form(tx, None, tw, tw, bandwidth, block).cpu().numpy()
    yy = bilinear_form(ty, None, tv, tv, bandwidth, block).cpu().numpy()
    xy = bilinear_form(tx, ty, tw, tv, bandwidth, block).cpu().numpy()
    squares_w, squares_v = (np.square(counts).sum(1) for counts in (w, v))
    cross = 2 * xy / (n * m)
    # 0 / 0 if a resample contains copies of one cell only.
    with np.errstate(invalid="ignore"):
        within = (xx - squares_w) / (n**2 - squares_w) + (yy - squares_v) / (m**2 - squares_v)
    return Estimates(unbiased=within - cross, biased=xx / n**2 + yy / m**2 - cross)


def measure_mmd(x: NDArray[np.floating], y: NDArray[np.floating]) -> float:
    """Return sqrt(max(unbiased MMD^2, 0)) of two samples, without resamples, in float64.

    ``x`` and ``y`` are n x dimensions and m x dimensions, with n and m at least 2. The bandwidth is
    the median squared distance between all cells of both samples.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    bandwidth = median_squared_distance(torch.as_tensor(np.concatenate([x, y])))
    # Counts have one row, in which each cell counts once.
    counts = [np.ones((1, len(cells)), dtype=np.int64) for cells in (x, y)]
    squared = mmd_squared(x, y, *counts, bandwidth=bandwidth, block=1024).unbiased[0]
    return float(np.sqrt(max(float(squared), 0.0)))


def percentile_interval(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """Return the ends of a percentile interval.

    A percentile between two elements is rounded outward. It is not interpolated, so that the
    interval of sqrt(x) is the square root of the interval of x. The ends are NaN if there are so
    few values that the expected share of further values between the smallest and the largest,
    (count - 1) / (count + 1), is below ``confidence``.
    """
    tail = (1 - confidence) / 2
    if (len(values) - 1) / (len(values) + 1) < confidence - 1e-9:
        return math.nan, math.nan
    low = np.quantile(values, tail, method="lower")
    return float(low), float(np.quantile(values, 1 - tail, method="higher"))
