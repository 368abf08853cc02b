"""Pairwise distances of cells, in blocks of float64 matrix products on the CPU or a GPU."""

from itertools import combinations_with_replacement

import torch
from torch import Tensor

from scsigmoid.progress import track

# Number of rows and columns of a block (8 MB). Larger blocks take a quarter longer on a CPU: the
# allocator does not reuse their memory.
BLOCK = 1024


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared Euclidean distances, (n, m), of ``a`` (n, d) from ``b`` (m, d)."""
    norms = a.square().sum(1)[:, None] + b.square().sum(1)  # |a|^2 + |b|^2
    return torch.addmm(norms, a, b.T, alpha=-2).clamp_(min=0)


def silhouettes(points: Tensor, labels: Tensor) -> Tensor:
    """Return the Euclidean silhouette of each point (Rousseeuw 1987), (points,), float64.

    The silhouette is (b - a) / max(a, b), where a is the mean distance to the other points of the
    same label and b the smallest mean distance to the points of another label. It is 0 if a and b
    are 0, and for the only point of a label.

    Args:
        points: points x dimensions, float64.
        labels: index of the label of each point, (points,), int64, from 0, without gaps.
    """
    is_member = torch.nn.functional.one_hot(labels).to(points.dtype)  # points x labels
    # Sum of the distances from each point to the points of each label.
    sums = torch.zeros_like(is_member)
    points = points - points.mean(0)  # the distances stay the same, with less rounding error
    blocks = [slice(start, start + BLOCK) for start in range(0, len(points), BLOCK)]
    pairs = list(combinations_with_replacement(blocks, 2))
    for rows, columns in track(pairs, label="silhouette"):
        distances = squared_distances(points[rows], points[columns]).sqrt_()
        if rows == columns:
            distances.fill_diagonal_(0.0)  # rounding errors may leave other values
        sums[rows] += distances @ is_member[columns]
        if rows != columns:
            sums[columns] += distances.T @ is_member[rows]
    counts = is_member.sum(0)
    own_label = labels[:, None]
    # 0 / 0 for the only point of a label.
    within = sums.gather(1, own_label).squeeze(1) / (counts[labels] - 1)
    between = (sums / counts).scatter(1, own_label, torch.inf).amin(1)
    return ((between - within) / torch.maximum(within, between)).nan_to_num(0.0)
