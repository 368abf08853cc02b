"""The largest attention score: what the stress test watches."""

from itertools import pairwise

import torch
from torch import Tensor

from scsigmoid.attention.arguments import check_boundaries, check_tensors, resolve_scale
from scsigmoid.attention.reference import largest_scores


@torch.no_grad()
def score_max(q: Tensor, k: Tensor, cu_seqlens: Tensor, scale: float | None = None) -> Tensor:
    """Largest ``|q . k * scale|`` over all heads and all pairs of tokens of one sequence.

    Computed in float32 block by block, so the memory does not grow with the square of the length.
    Reads ``cu_seqlens`` on the host, so a GPU is waited for.

    Args:
        q, k: (tokens, heads, dim).
        cu_seqlens: (sequences + 1,) int32.
        scale: factor of the scores; 1 / sqrt(dim) by default.

    Returns:
        A float32 scalar tensor on the device of ``q``; 0 without tokens.  NaN if a score is NaN.
    """
    check_tensors(q, k, k, dimensions=3)
    check_boundaries("cu_seqlens", cu_seqlens, q)
    spans = list(pairwise(cu_seqlens.tolist()))
    if not q.shape[1]:
        return torch.zeros((), dtype=torch.float32, device=q.device)
    return largest_scores(q, k, spans, spans, resolve_scale(scale, q.shape[-1])).amax()
