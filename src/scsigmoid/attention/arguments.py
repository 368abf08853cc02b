"""Checks of the arguments of attention.

The values of lengths on a GPU are checked only with ``check=True``, because the host must wait for
the GPU. Types, shapes, dtypes and devices are always checked.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral, Real

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_ORDINARY = (Tensor, torch.nn.Parameter)


def are_valid(
    tensors: Sequence[Tensor], dimensions: int, cu_seqlens: Tensor, max_seqlen: int, check: bool
) -> bool:
    """Return True if packed tensors of one shape pass all checks without autocast.

    On a GPU the checks of a call take as long as a short kernel, and this function a fifth of it.
    If it returns False, call the checks, which raise an error if an argument is invalid.
    """
    if torch.compiler.is_compiling() or check is not False:
        return False
    for x in (*tensors, cu_seqlens):
        if type(x) not in _ORDINARY or x.is_nested or x.layout is not torch.strided:
            return False
    first = tensors[0]
    shape, dtype, device = first.shape, first.dtype, first.device
    for x in tensors[1:]:
        if x.shape != shape or x.dtype is not dtype or x.device != device:
            return False
    return (
        len(shape) == dimensions
        and shape[-1] > 0
        and dtype in DTYPES
        and device.type != "cpu"  # on the CPU, the values of `cu_seqlens` are checked
        and cu_seqlens.dtype is torch.int32
        and cu_seqlens.dim() == 1
        and cu_seqlens.shape[0] > 0
        and cu_seqlens.device == device
        and type(max_seqlen) is int
        and max_seqlen >= 0
        and (device.type == "meta" or not torch.is_autocast_enabled(device.type))
    )


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError if ``value`` is not a dense tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: must be a tensor, is {type(value).__name__}")
    if value.layout != torch.strided or value.is_nested:
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise TypeError(f"{name}: must be a dense tensor, is a {kind} tensor")


def check_booleans(**settings: object) -> None:
    """Raise TypeError if a setting is not True, False or None."""
    for name, value in settings.items():
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"{name}: must be True or False, is {type(value).__name__}")


def check_real(name: str, tensor: Tensor) -> None:
    """Raise TypeError if a bias is complex, or boolean, because it is no mask."""
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name}: dtype {tensor.dtype} is not real; it is added to the scores")


def check_device(name: str, tensor: Tensor, q: Tensor) -> None:
    """Raise ValueError if ``tensor`` is not on the device of ``q``."""
    if tensor.device != q.device:
        message = f"is on {tensor.device} but q is on {q.device}; move them to one device"
        raise ValueError(f"{name}: {message}")


def check_tensors(
    q: Tensor, k: Tensor, v: Tensor, *, dimensions: int, is_grouped: bool = False
) -> None:
    """Check shapes, dtypes and devices of the tensors ``q``, ``k`` and ``v``.

    Shapes are (tokens, heads, dim) if ``dimensions`` is 3 (packed sequences), or (sequences,
    length, heads, dim) if it is 4 (padded sequences). If ``is_grouped``, ``k`` and ``v`` may have
    fewer heads than ``q``.
    """
    layout = "(tokens, heads, dim)" if dimensions == 3 else "(sequences, length, heads, dim)"
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != dimensions:
            raise ValueError(f"{name}: must have shape {layout}, has {tuple(tensor.shape)}")
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{name}: dtype {tensor.dtype} is not a supported floating point type")
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name}: dtype {tensor.dtype} differs from q's {q.dtype}")
        check_device(name, tensor, q)
        heads, heads_q = tensor.shape[-2], q.shape[-2]
        if is_grouped and heads != heads_q and tensor.shape[-1] == q.shape[-1]:
            if heads == 0 or heads_q % heads:
                raise ValueError(f"{name}: its {heads} heads do not divide q's {heads_q}")
        elif tensor.shape[-2:] != q.shape[-2:]:
            raise ValueError(
                f"{name}: heads and dim {tuple(tensor.shape[-2:])} differ from q's "
                f"{tuple(q.shape[-2:])}"
            )
    if q.shape[-1] == 0:
        raise ValueError("q: its last dimension, dim, is 0")
    if v.shape != k.shape:
        raise ValueError(f"v: shape {tuple(v.shape)} differs from k's {tuple(k.shape)}")
    if dimensions == 4 and k.shape[0] != q.shape[0]:
        raise ValueError(f"k: {k.shape[0]} sequences but q has {q.shape[0]}")


def _check_values(name: str, cu_seqlens: Tensor, tokens: int, max_length: int) -> None:
    """Check the first and last cumulative length, and that lengths are 0 to ``max_length``."""
    values = cu_seqlens.tolist()
    if values[0] != 0:
        raise ValueError(f"{name}: must start with 0, starts with {values[0]}")
    lengths = [end - start for start, end in pairwise(values)]
    shortest, longest = min(lengths, default=0), max(lengths, default=0)
    if shortest < 0:
        raise ValueError(
            f"{name}: must not decrease, but does at sequence {lengths.index(shortest)}"
        )
    if values[-1] != tokens:
        raise ValueError(f"{name}: must end with the number of tokens, {tokens}, not {values[-1]}")
    if longest > max_length:
        raise ValueError(
            f"{name}: a sequence has {longest} tokens, more than the maximum, {max_length}"
        )


def _can_read(lengths: Tensor, check: bool) -> bool:
    """Return True if ``lengths`` has values that the host may read: on the CPU, or if ``check``."""
    return (
        (check or lengths.device.type == "cpu")
        and type(lengths) is Tensor  # fake tensors do not have values
        and not torch.compiler.is_compiling()
    )


def check_packing(
    like: Tensor, cu_seqlens: Tensor, max_seqlen: int, check: bool, suffix: str = ""
) -> None:
    """Check the lengths of the packed sequences in ``like``, (tokens, ...).

    ``cu_seqlens`` must be (sequences + 1,) int32. In error messages ``suffix`` (``_k`` for keys)
    follows the names of the arguments.
    """
    name = f"cu_seqlens{suffix}"
    check_tensor(name, cu_seqlens)
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        raise ValueError(f"{name}: must have shape (sequences + 1,), has {tuple(cu_seqlens.shape)}")
    if cu_seqlens.dtype != torch.int32:
        raise TypeError(f"{name}: must be int32, is {cu_seqlens.dtype}")
    check_device(name, cu_seqlens, like)
    if not isinstance(max_seqlen, (int, torch.SymInt, Integral)):
        type_name = type(max_seqlen).__name__
        raise TypeError(f"max_seqlen{suffix}: must be a whole number, is {type_name}")
    if max_seqlen < 0:
        raise ValueError(f"max_seqlen{suffix}: must not be negative, is {max_seqlen}")
    check_booleans(check=check)
    if _can_read(cu_seqlens, check):
        _check_values(name, cu_seqlens, like.shape[0], max_seqlen)


def check_fused(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, check: bool) -> None:
    """Check q, k and v in one tensor (tokens, 3, heads, dim), and their cumulative lengths."""
    if qkv.ndim != 4 or qkv.shape[1] != 3:
        raise ValueError(f"qkv: must have shape (tokens, 3, heads, dim), has {tuple(qkv.shape)}")
    check_tensors(*qkv.unbind(1), dimensions=3)
    check_packing(qkv, cu_seqlens, max_seqlen, check)


def check_lengths(name: str, lengths: Tensor, like: Tensor, check: bool) -> None:
    """Check the lengths of the padded sequences in ``like``, (sequences, length, heads, dim)."""
    check_tensor(name, lengths)
    if lengths.shape != (like.shape[0],):
        raise ValueError(f"{name}: must have shape ({like.shape[0]},), has {tuple(lengths.shape)}")
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: must be int32 or int64, is {lengths.dtype}")
    check_device(name, lengths, like)
    check_booleans(check=check)
    if _can_read(lengths, check):
        for value in lengths.tolist():
            if not 0 <= value <= like.shape[1]:
                raise ValueError(f"{name}: must be between 0 and {like.shape[1]}, contains {value}")


def to_float(name: str, value: object) -> float:
    """Convert a number to float. Raise TypeError for any other type."""
    if not isinstance(value, (int, float, torch.SymInt, torch.SymFloat, Real)):
        raise TypeError(f"{name}: must be a number, is {type(value).__name__}")
    return float(value)


def resolve_scale(scale: float | None, dimension: int) -> float:
    """Return ``scale`` as a finite float, or 1 / sqrt(``dimension``) if it is None."""
    if scale is None:
        return float(dimension) ** -0.5
    number = to_float("scale", scale)
    # In a compiled region, the number may be symbolic.
    if not torch.compiler.is_compiling() and not math.isfinite(number):
        raise ValueError(f"scale: must be finite, is {number}")
    return number


def cast_for_autocast(**tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the arguments with the dtype of autocast if it is enabled, as PyTorch's SDPA does.

    float64 and integers are not cast. Raise TypeError if an argument is not a dense tensor.
    """
    for name, tensor in tensors.items():
        check_tensor(name, tensor)
    values = tuple(tensors.values())
    device = values[0].device.type
    # PyTorch raises an error if asked for the autocast of the meta device.
    if device == "meta" or not torch.is_autocast_enabled(device):
        return values
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in values
    )
