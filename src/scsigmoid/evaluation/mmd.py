"""Bootstrap MMD between cell types (appendix, "Maximum Mean Discrepancy").

For every pair of cell types and both models: MMD by two estimators (:mod:`~.mmd_kernel`), its
mean over resamples and percentiles of them.  ``unbiased`` is ours: its percentiles are an interval
of about the nominal coverage.  ``biased`` is the paper's, as far as can be told: it prints means
over resamples, and the asymmetry of its intervals is that of a V statistic; copies of a cell lift
resamples, so these percentiles may lie above the true value (docs/evaluation.md has the coverage
of both).  Both are printed as the square root of max(MMD^2, 0); the signed squares stand beside
them.

Resamples are drawn cell type by cell type, from seeds that name the dataset and the type.  So the
interval of a pair depends on its two types alone, both models share the resamples, which makes
their ratio and difference paired, and a mean over pairs resamples a type's cells together in all
pairs that it occurs in, which makes its interval a joint one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from scsigmoid.config.schema import Mmd
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import Embedding, read_arms
from scsigmoid.evaluation.mmd_kernel import (
    Estimates,
    median_squared_distance,
    mmd_squared,
    percentiles,
    resample_counts,
)
from scsigmoid.measurements import Measurement, source_of, write_measurements
from scsigmoid.progress import track
from scsigmoid.seeds import derive

# The median heuristic looks at no more cells of a pair than these: 8.4 million distances.
BANDWIDTH_CELLS = 4096


@dataclass(frozen=True)
class PairOfTypes:
    """The MMD of one pair of cell types.

    Attributes:
        name: ``A vs B``.
        cells: cells of both types.
        squared: model name to its estimates of MMD^2; element 0 is the sample's, the others are
            the resamples'.
    """

    name: str
    cells: int
    squared: dict[str, Estimates]

    def mmd(self, model: str, estimator: str) -> NDArray[np.float64]:
        """MMD of the sample and the resamples: the root of max(MMD^2, 0)."""
        root: NDArray[np.float64] = np.sqrt(np.maximum(getattr(self.squared[model], estimator), 0))
        return root


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
        embeddings: model name to embedding file, two of them, the sigmoid model first.
        dataset: the dataset's name.
        settings: resamples, confidence, smallest type, block size.
        seed: the configuration's seed.
        output: the measurements, for ``<e>`` in ``unbiased`` and ``biased``: for each pair
            ``mmd_<e>`` and ``mmd2_<e>`` of both models, ``mmd_<e>_bootstrap_mean`` (the mean over
            resamples, which the paper prints), ``mmd_<e>_ratio`` and ``mmd_<e>_difference`` of the
            first and the second; for all pairs (no group) ``mmd_<e>_mean`` of both models,
            ``mmd_<e>_mean_ratio_of_means``, ``mmd_<e>_mean_of_ratios`` and
            ``mmd_<e>_bootstrap_mean_ratio_of_means``; and ``mmd_left_out``, the number of cells,
            for each type that has fewer than the minimum.
        device: where kernels are computed, in float64 everywhere.
        order: cell types that come first; others follow by name.

    Raises:
        UserError: if embeddings do not match, or fewer than two types have enough cells.
    """
    arms = read_arms(embeddings)
    labels = next(iter(arms.values())).labels
    types, small = choose_types(labels, settings.minimum_cells, order)
    if len(types) < 2:
        raise UserError(
            f"{next(iter(embeddings.values()))}: {len(types)} cell types have at least "
            f"{settings.minimum_cells} cells, and MMD compares two; lower "
            "evaluation.mmd.minimum_cells or leave the dataset out"
        )
    pairs = [
        measure_pair(arms, a, b, dataset, settings, seed, device)
        for a, b in track(list(combinations(types, 2)), label=f"MMD {dataset}")
    ]
    simulated = any(arm.metadata["simulated"] for arm in arms.values())
    common = Measurement(
        dataset=dataset,
        model="",
        metric="mmd_left_out",
        value=0,
        simulated=simulated,
        source=source_of(output, *embeddings.values()),
    )
    table = Rows(arms, common, settings, seed)
    rows = [row for pair in pairs for row in table.of_pair(pair)]
    rows += table.of_means(pairs)
    rows += [replace(common, group=name, value=count, n=count) for name, count in small.items()]
    write_measurements(output, rows)


def choose_types(
    labels: NDArray[np.str_], minimum: int, first: Sequence[str] = ()
) -> tuple[list[str], dict[str, int]]:
    """The cell types that are compared, in order, and the smaller ones with their cells."""
    names, counts = np.unique(labels, return_counts=True)
    cells = dict(zip(names.tolist(), counts.tolist(), strict=True))
    order = sorted(
        cells,
        key=lambda name: (first.index(name) if name in first else len(first), name),
    )
    kept = [name for name in order if cells[name] >= minimum]
    return kept, {name: cells[name] for name in order if cells[name] < minimum}


def measure_pair(
    arms: Mapping[str, Embedding],
    a: str,
    b: str,
    dataset: str,
    settings: Mmd,
    seed: int,
    device: str | torch.device = "cpu",
) -> PairOfTypes:
    """Both estimates of MMD^2 between types ``a`` and ``b``, for every model and resample.

    The bandwidth is each model's own: the median over the pooled pair, or over a seeded choice of
    4,096 of its cells, the same in both models, where it has more.

    Raises:
        UserError: if more than half of the cells lie at one point, which leaves no bandwidth.
    """
    name = f"{a} vs {b}"
    labels = next(iter(arms.values())).labels
    members = {kind: np.flatnonzero(labels == kind) for kind in (a, b)}
    w, v = (
        resample_counts(len(rows), settings.resamples, derive(seed, "mmd", dataset, kind))
        for kind, rows in members.items()
    )
    pooled = np.concatenate([members[a], members[b]])
    chosen = pooled
    if len(pooled) > BANDWIDTH_CELLS:
        generator = np.random.default_rng(derive(seed, "mmd bandwidth", dataset, name))
        chosen = generator.choice(pooled, BANDWIDTH_CELLS, replace=False)
    squared = {}
    for model, arm in arms.items():
        bandwidth = median_squared_distance(
            torch.as_tensor(arm.values[chosen]).to(device, torch.float64)
        )
        if not bandwidth > 0:
            raise UserError(
                f"{arm.path}: most cells of {name} have the same embedding, which leaves the "
                "kernel no bandwidth; check the model's training"
            )
        squared[model] = mmd_squared(
            arm.values[members[a]],
            arm.values[members[b]],
            w,
            v,
            bandwidth=bandwidth,
            block=settings.block_cells,
            device=device,
        )
    return PairOfTypes(name, len(pooled), squared)


def ratio(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """first / second; infinite where only ``second`` is 0, and 1 where both are."""
    both = np.broadcast_to(first == second, first.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(both, 1.0, first / second)


@dataclass(frozen=True)
class Rows:
    """Turns estimates into measurements.

    Attributes:
        arms: model to embedding.
        common: what all measurements share.
        settings: the confidence of the intervals.
        seed: the configuration's seed.
    """

    arms: Mapping[str, Embedding]
    common: Measurement
    settings: Mmd
    seed: int

    def row(
        self, values: NDArray[np.float64], metric: str, model: str, group: str, n: int
    ) -> Measurement:
        """Point (element 0) and percentile interval (the others)."""
        low, high = percentiles(values[1:], self.settings.confidence)
        arm = self.arms.get(model, next(iter(self.arms.values())))
        return replace(
            self.common,
            group=group,
            model=model,
            attention=arm.metadata["attention"] if model in self.arms else "",
            context=arm.metadata["context"],
            metric=metric,
            value=float(values[0]),
            low=low,
            high=high,
            n=n,
            seed=self.seed,
        )

    def over_resamples(
        self, values: NDArray[np.float64], metric: str, model: str, group: str, n: int
    ) -> Measurement:
        """The mean over resamples, with the same interval."""
        return replace(self.row(values, metric, model, group, n), value=float(values[1:].mean()))

    def of_pair(self, pair: PairOfTypes) -> Iterator[Measurement]:
        """All measurements of a pair."""
        for estimator in Estimates._fields:
            roots = {model: pair.mmd(model, estimator) for model in self.arms}
            for model, values in roots.items():
                where = model, pair.name, pair.cells
                yield self.row(values, f"mmd_{estimator}", *where)
                yield self.over_resamples(values, f"mmd_{estimator}_bootstrap_mean", *where)
            for model, estimates in pair.squared.items():
                values = getattr(estimates, estimator)
                yield self.row(values, f"mmd2_{estimator}", model, pair.name, pair.cells)
            (first, a), (second, b) = roots.items()
            yield self.row(
                ratio(a, b), f"mmd_{estimator}_ratio", f"{first} / {second}", pair.name, pair.cells
            )
            yield self.row(
                a - b, f"mmd_{estimator}_difference", f"{first} - {second}", pair.name, pair.cells
            )

    def of_means(self, pairs: list[PairOfTypes]) -> Iterator[Measurement]:
        """Means over all pairs; ``n`` is their number."""
        first, second = self.arms
        both = f"{first} / {second}"
        for estimator in Estimates._fields:
            a, b = (np.stack([pair.mmd(model, estimator) for pair in pairs]) for model in self.arms)
            metric = f"mmd_{estimator}_mean"
            for model, values in ((first, a), (second, b)):
                yield self.row(values.mean(0), metric, model, "", len(pairs))
            of_means = ratio(a.mean(0), b.mean(0))
            yield self.row(of_means, f"{metric}_ratio_of_means", both, "", len(pairs))
            yield self.row(ratio(a, b).mean(0), f"{metric}_of_ratios", both, "", len(pairs))
            of_resamples = ratio(a[:, 1:].mean(), b[:, 1:].mean())
            name = f"mmd_{estimator}_bootstrap_mean_ratio_of_means"
            overall = self.row(of_means, name, both, "", len(pairs))
            yield replace(overall, value=float(of_resamples))
