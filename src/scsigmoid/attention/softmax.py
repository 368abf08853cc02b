"""Softmax attention of packed sequences: the baseline."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from torch import Tensor

from scsigmoid.attention.arguments import (
    cast_for_autocast,
    check_fused,
    check_packing,
    check_tensors,
    resolve_scale,
)
from scsigmoid.attention.backends import choose_backend, find_unsupported
from scsigmoid.kernels import BACKENDS

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


#: The function of each backend, resolved here so that torch.compile sees ordinary functions.
ATTEND: dict[str, Callable[..., Tensor]] = {
    name: resolve_name(f"scsigmoid.attention.{backend.attend}")
    for name, backend in BACKENDS["softmax"].items()
}


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    *,
    scale: float | None = None,
    backend: str = "auto",
    mask: "BlockMask | None" = None,
    check: bool = False,
) -> Tensor:
    """Compute softmax attention, O = softmax(Q K^T * scale) V, of packed sequences.

    Every token attends to all tokens of its sequence.

    Args:
        q, k, v: (tokens, heads, dim), bfloat16, float16, float32 or float64. ``fa4`` supports
            bfloat16 and float16 with dims 64 and 128 only.
        cu_seqlens: (sequences + 1,) int32, cumulative lengths from 0 to ``tokens``.
        max_seqlen: length of the longest sequence, or more.
        scale: factor of the scores (default 1 / sqrt(dim)).
        backend: ``auto`` or a name in :data:`scsigmoid.kernels.BACKENDS`.
        mask: :func:`scsigmoid.attention.flex.document_mask` of the batch (default: ``flex`` creates
            it). Other backends ignore it.
        check: as in :func:`scsigmoid.attention.sigmoid_attention`.

    Returns:
        Tensor of the shape and dtype of ``q``.

    Raises:
        TypeError, ValueError: if an argument has a wrong type, shape, device or value.
        NotImplementedError, RuntimeError: for derivatives that the backend does not support.
        UserError: if the backend does not run on the device.
    """
    q, k, v = cast_for_autocast(q=q, k=k, v=v)
    check_tensors(q, k, v, dimensions=3)
    if k.shape[0] != q.shape[0]:
        raise ValueError(f"k: {k.shape[0]} tokens but q has {q.shape[0]}")
    check_packing(q, cu_seqlens, max_seqlen, check)
    backend = choose_backend("softmax", backend, q.device, find_unsupported(q))
    scale = resolve_scale(scale, q.shape[-1])
    return ATTEND[backend]([q, k, v], cu_seqlens, max_seqlen, scale, mask)


def softmax_attention_qkv(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    *,
    scale: float | None = None,
    backend: str = "auto",
    mask: "BlockMask | None" = None,
    check: bool = False,
) -> Tensor:
    """Compute :func:`softmax_attention` of q, k and v in one tensor, the output of a projection.

    Equals :func:`softmax_attention` of the three slices. With ``fa4``, one gradient is written
    instead of three.

    Args:
        qkv: (tokens, 3, heads, dim): q, k and v.
        cu_seqlens, max_seqlen, scale, backend, mask, check: as in :func:`softmax_attention`.

    Returns:
        (tokens, heads, dim), the dtype of ``qkv``.
    """
    (qkv,) = cast_for_autocast(qkv=qkv)
    check_fused(qkv, cu_seqlens, max_seqlen, check)
    backend = choose_backend("softmax", backend, qkv.device, find_unsupported(qkv))
    tensors = [qkv] if BACKENDS["softmax"][backend].takes_qkv else qkv.unbind(1)
    scale = resolve_scale(scale, qkv.shape[-1])
    return ATTEND[backend](tensors, cu_seqlens, max_seqlen, scale, mask)
