"""The arguments of the attention operator other than q, k and v."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

#: Most keys for which the hardware's approximate tanh is the default.  With b = -log n and scores
#: of standard deviation 1 the error of O is 1.05 times that of an exact sigmoid at 4,096 keys and
#: 1.4 times at 16,384; docs/assumptions.md has the reason for the limit.
LONGEST_APPROXIMATE = 8192

Kind = Literal["sigmoid", "softmax"]


class Problem(NamedTuple):
    """Where sequences lie and how their attention is computed; the same for every backend.

    Attributes:
        starts_q, ends_q, starts_k, ends_k: (sequences,) int32, each sequence's first and
            one-past-last token among queries and among keys; on the tensors' device.
        bias: (sequences,) float32 (float64 for float64 inputs), or None for -log(number of keys).
        longest_q, longest_k: no sequence has more queries or keys.
        scale: factor of the scores.
        accurate: exact sigmoid, or one as good, instead of the hardware's approximate tanh; None
            decides by :data:`LONGEST_APPROXIMATE`.
        has_gaps: tokens may lie outside every sequence (padding); they get exact zeros.
        deterministic: gradients must not depend on the order in which the GPU runs its blocks;
            None is what torch is set to.
        kind: ``sigmoid`` or, for the reference alone, ``softmax``.
    """

    starts_q: Tensor
    ends_q: Tensor
    starts_k: Tensor
    ends_k: Tensor
    bias: Tensor | None
    longest_q: int
    longest_k: int
    scale: float
    accurate: bool | None
    has_gaps: bool
    deterministic: bool | None
    kind: Kind = "sigmoid"

    def resolved(self) -> "Problem":
        """The problem with what the caller left open decided."""
        accurate, deterministic = self.accurate, self.deterministic
        if accurate is None:
            accurate = self.longest_k > LONGEST_APPROXIMATE
        if deterministic is None:
            deterministic = torch.are_deterministic_algorithms_enabled()
        return self._replace(accurate=accurate, deterministic=deterministic)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return self.starts_q.shape[0]

    @property
    def is_self_attention(self) -> bool:
        """Whether the keys are known to lie where the queries do: attention to oneself."""
        return (
            self.longest_q == self.longest_k
            and self.starts_q.data_ptr() == self.starts_k.data_ptr()
            and self.ends_q.data_ptr() == self.ends_k.data_ptr()
        )


def empty(like: Tensor) -> Tensor:
    """In place of a by-product that was not asked for: an empty float32 tensor."""
    return torch.empty(0, dtype=torch.float32, device=like.device)


def compute_dtype(like: Tensor) -> torch.dtype:
    """What biases, sums and the reference are computed in: float64 for float64, else float32."""
    return torch.float64 if like.dtype == torch.float64 else torch.float32
