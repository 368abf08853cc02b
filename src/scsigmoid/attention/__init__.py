"""Sigmoid and softmax attention over packed sequences.

Sequences are packed along the token axis without padding: ``q``, ``k`` and ``v`` have shape
(tokens, heads, dim) and ``cu_seqlens`` contains the cumulative lengths.
:func:`sigmoid_attention_padded` takes padded sequences, (sequences, length, heads, dim), and their
lengths.
"""

from scsigmoid.attention.backends import choose_backend
from scsigmoid.attention.sigmoid import (
    score_max,
    sigmoid_attention,
    sigmoid_attention_padded,
    sigmoid_attention_qkv,
)
from scsigmoid.attention.softmax import softmax_attention, softmax_attention_qkv
from scsigmoid.kernels import BACKENDS

__all__ = [
    "BACKENDS",
    "choose_backend",
    "score_max",
    "sigmoid_attention",
    "sigmoid_attention_padded",
    "sigmoid_attention_qkv",
    "softmax_attention",
    "softmax_attention_qkv",
]
