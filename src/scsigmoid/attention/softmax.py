"""Softmax attention of packed sequences: the baseline."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from torch import Tensor

from scsigmoid.attention.arguments import (
    cast_for_autocast,
    check_fused,
    check_packing,
    check_tensors,
    resolve_scale,
)
from scsigmoid.attention.backends import choose_backend, find_unsupported
from scsigmoid.attention.torch_internals import mark_constant
from scsigmoid.kernels import BACKENDS

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


#: Functions of backends that were used in this process, by their names in the registry.
FUNCTIONS: dict[str, Callable[..., Any]] = {}


@mark_constant
def load(name: str) -> str:
    """Import a function of a backend, ``module:function``, on first use. Return its name.

    torch.compile calls this while tracing, and then traces the function in :data:`FUNCTIONS`.
    """
    if name not in FUNCTIONS:
        FUNCTIONS[name] = resolve_name(f"scsigmoid.attention.{name}")
    return name


def make_mask(backend: str, cu_seqlens: Tensor, tokens: int) -> "BlockMask | None":
    """Return the mask of a batch for all layers, or None if the backend does not need one.

    Args:
        backend: ``auto`` or a name in :data:`scsigmoid.kernels.BACKENDS`.
        cu_seqlens: (sequences + 1,) int32, cumulative lengths.
        tokens: number of tokens of the batch.
    """
    entry = BACKENDS["softmax"].get(backend)
    if entry is None or not entry.mask:
        return None
    mask: BlockMask = FUNCTIONS[load(entry.mask)](cu_seqlens, tokens)
    return mask


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
        mask: result of :func:`make_mask` for the batch (default: ``flex`` creates it).
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
    backend = choose_backend("softmax", backend, q.device, find_unsupported("softmax", q))
    scale = resolve_scale(scale, q.shape[-1])
    attend = FUNCTIONS[load(BACKENDS["softmax"][backend].attend)]
    attended: Tensor = attend([q, k, v], cu_seqlens, max_seqlen, scale, mask)
    return attended


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
    backend = choose_backend("softmax", backend, qkv.device, find_unsupported("softmax", qkv))
    entry = BACKENDS["softmax"][backend]
    tensors = [qkv] if entry.takes_qkv else qkv.unbind(1)
    scale = resolve_scale(scale, qkv.shape[-1])
    attended: Tensor = FUNCTIONS[load(entry.attend)](tensors, cu_seqlens, max_seqlen, scale, mask)
    return attended
