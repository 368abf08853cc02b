"""The sequences and options of attention, which backends receive with q, k and v."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

#: Maximum number of keys for which the sigmoid by default uses the GPU's approximate tanh. With
#: bias -log n and scores of standard deviation 1, the approximation makes the error of bfloat16
#: results 1.05 times as large at 4,096 keys, and 1.4 times at 16,384 (docs/assumptions.md).
LONGEST_APPROXIMATE = 8192
#: Options that only some backends compute, as messages name them.
CAUSAL, KEY_BIAS = "causal masks", "biases of keys"

Kind = Literal["sigmoid", "softmax"]


class Problem(NamedTuple):
    """The sequences of a batch and how to compute their attention, the same for all backends.

    Attributes:
        starts_q, ends_q, starts_k, ends_k: (sequences,) int32, first and one-past-last token of
            each sequence in the queries and in the keys, on the device of the queries.
        bias: (sequences,) float32 (float64 for float64 inputs), or None for -log(number of keys).
        key_bias: (key tokens,) in the dtype of ``bias``, added to all scores of a key, or None.
        longest_q, longest_k: maximum number of queries and of keys of a sequence.
        scale: factor by which q . k is multiplied.
        accurate: compute an exact sigmoid, or one whose error is below the rounding of the results,
            instead of the approximate tanh of the GPU. None: True if ``longest_k`` is above
            :data:`LONGEST_APPROXIMATE`.
        has_gaps: whether tokens may be outside all sequences (padding). Their results are 0.
        deterministic: compute the same bits in each run. None: as set by
            :func:`torch.use_deterministic_algorithms`.
        kind: ``sigmoid`` or, with backend ``reference`` only, ``softmax``, which ignores the bias.
        is_causal: whether query i attends only to keys j <= i, counted from the start of their
            sequence. The default bias still is -log(number of keys of the sequence).
    """

    starts_q: Tensor
    ends_q: Tensor
    starts_k: Tensor
    ends_k: Tensor
    bias: Tensor | None
    key_bias: Tensor | None
    longest_q: int
    longest_k: int
    scale: float
    accurate: bool | None = None
    has_gaps: bool = False
    deterministic: bool | None = None
    kind: Kind = "sigmoid"
    is_causal: bool = False

    def resolve(self) -> "Problem":
        """Return a copy with defaults in place of None in ``accurate`` and ``deterministic``."""
        accurate, deterministic = self.accurate, self.deterministic
        if accurate is None:
            accurate = self.longest_k > LONGEST_APPROXIMATE
        if deterministic is None:
            deterministic = torch.are_deterministic_algorithms_enabled()
        # `_replace` takes several times as long.
        return Problem(*self[:9], accurate, self.has_gaps, deterministic, *self[12:])

    @property
    def sequences(self) -> int:
        return self.starts_q.shape[0]

    @property
    def is_self_attention(self) -> bool:
        """True if queries and keys share the tensors of first and last tokens in memory.

        Equal values in different tensors are not compared, because the host would wait for the GPU.
        """
        return (
            self.longest_q == self.longest_k
            and self.starts_q.data_ptr() == self.starts_k.data_ptr()
            and self.ends_q.data_ptr() == self.ends_k.data_ptr()
        )


def make_packed_problem(
    cu_seqlens: Tensor, longest: int, scale: float, kind: Kind = "sigmoid"
) -> Problem:
    """Return the problem of packed sequences that attend to themselves, with the default bias.

    ``longest`` is the maximum number of tokens of a sequence.
    """
    starts, ends = cu_seqlens[:-1], cu_seqlens[1:]
    return Problem(starts, ends, starts, ends, None, None, longest, longest, scale, kind=kind)


def compute_dtype(like: Tensor) -> torch.dtype:
    """Return the dtype of biases and sums: float64 for float64 inputs, otherwise float32."""
    return torch.float64 if like.dtype == torch.float64 else torch.float32
