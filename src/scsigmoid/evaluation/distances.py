"""Pairwise distances of cells, in blocks of float64 matrix products on the CPU or a GPU."""

from collections.abc import Iterator

import torch
from torch import Tensor

from scsigmoid.progress import track

# Rows and columns of a block: 8 MB, which the allocator of the CPU reuses. Larger blocks take a
# quarter longer.
BLOCK = 1024
# Cells whose differences to all their neighbors are in memory at a time.
FEW = 512


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return squared Euclidean distances, rows of ``a`` x rows of ``b``."""
    lengths = a.square().sum(1)[:, None] + b.square().sum(1)
    return torch.addmm(lengths, a, b.T, alpha=-2).clamp_(min=0)


def upper_blocks(count: int, label: str) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of the blocks on and above the diagonal, with a progress bar."""
    starts = range(0, count, BLOCK)
    pairs = [(i, j) for i in starts for j in starts if j >= i]
    for i, j in track(pairs, label=label):
        yield slice(i, min(i + BLOCK, count)), slice(j, min(j + BLOCK, count))


def nearest(points: Tensor, neighbours: int) -> tuple[Tensor, Tensor]:
    """Return the exact nearest neighbors of each point, without the point itself.

    Args:
        points: points x dimensions, float64.
        neighbours: number of neighbors, less than the number of points.

    Returns:
        Indices (int64) and Euclidean distances (float64), points x neighbors, in ascending order of
        distance, then of index.
    """
    count = len(points)
    best = points.new_full((count, neighbours), torch.inf)
    indices = torch.zeros((count, neighbours), dtype=torch.int64, device=points.device)

    def offer(rows: slice, columns: slice, squared: Tensor) -> None:
        values, places = squared.topk(min(neighbours, squared.shape[1]), largest=False)
        candidates = torch.cat([indices[rows], places + columns.start], 1)
        best[rows], kept = torch.cat([best[rows], values], 1).topk(neighbours, largest=False)
        indices[rows] = candidates.gather(1, kept)

    points = points - points.mean(0)  # centered, because products of large values lose digits
    for rows, columns in upper_blocks(count, "neighbours"):
        squared = squared_distances(points[rows], points[columns])
        if rows == columns:
            squared.fill_diagonal_(torch.inf)
        offer(rows, columns, squared)
        if rows != columns:
            offer(columns, rows, squared.T)
    # The distances are computed again from differences, which have no cancellation.
    indices = indices.sort(1).values
    parts = zip(points.split(FEW), indices.split(FEW), strict=True)
    distances = torch.cat([(part[:, None] - points[near]).norm(dim=2) for part, near in parts])
    distances, order = distances.sort(dim=1, stable=True)
    return indices.gather(1, order), distances


def silhouettes(points: Tensor, labels: Tensor) -> Tensor:
    """Return the silhouette of each point (Rousseeuw 1987), in Euclidean distance.

    (b - a) / max(a, b), where a is the mean distance to the other points of the same label and b
    the smallest mean distance to the points of another label.  It is 0 if both are 0, and for a
    point that is the only one of its label.

    Args:
        points: points x dimensions, float64.
        labels: (points,) int64, 0 to the number of labels - 1.

    Returns:
        (points,), float64.
    """
    members = torch.nn.functional.one_hot(labels).to(points.dtype)
    sums = torch.zeros_like(members)
    points = points - points.mean(0)
    for rows, columns in upper_blocks(len(points), "silhouette"):
        distances = squared_distances(points[rows], points[columns]).sqrt_()
        if rows == columns:
            distances.fill_diagonal_(0.0)
        sums[rows] += distances @ members[columns]
        if rows != columns:
            sums[columns] += distances.T @ members[rows]
    counts = members.sum(0)
    own = labels[:, None]
    within = sums.gather(1, own).squeeze(1) / (counts[labels] - 1)  # 0 / 0 for an only point
    between = (sums / counts).scatter(1, own, torch.inf).amin(1)
    return ((between - within) / torch.maximum(within, between)).nan_to_num(0.0)
