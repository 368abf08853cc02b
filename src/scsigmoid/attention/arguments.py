"""Checks of what callers pass.

Shapes, types and devices are checked always.  The values of lengths are checked where that costs
nothing: on the CPU.  On a GPU reading them would make the host wait for the device, so there it is
done only when the caller asks (``check=True``).
"""

import math
from itertools import pairwise
from numbers import Integral, Real

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def check_tensor(name: str, value: object) -> None:
    """Refuse what is no dense tensor.

    Raises:
        TypeError: naming the argument.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: must be a tensor, is {type(value).__name__}")
    if value.layout != torch.strided or value.is_nested:
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise TypeError(f"{name}: must be a dense tensor, is a {kind} one")


def check_switches(check: object, **settings: object) -> None:
    """Refuse what is neither True nor False; of ``settings`` None will do, too.

    Raises:
        TypeError: naming the argument.
    """
    for name, value in (("check", check), *settings.items()):
        if not isinstance(value, bool) and not (value is None and name in settings):
            raise TypeError(f"{name}: must be True or False, is {type(value).__name__}")


def check_tensors(q: Tensor, k: Tensor, v: Tensor, *, dimensions: int) -> None:
    """Check ``q``, ``k`` and ``v`` against each other.

    Args:
        q, k, v: (tokens, heads, dim) if ``dimensions`` is 3; (sequences, length, heads, dim) if 4.
        dimensions: number of dimensions.

    Raises:
        TypeError: for what is no dense tensor, and for a wrong or differing dtype.
        ValueError: for a wrong shape or device; the message names the argument.
    """
    layout = "(tokens, heads, dim)" if dimensions == 3 else "(sequences, length, heads, dim)"
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor)
        if tensor.dim() != dimensions:
            raise ValueError(f"{name}: must have shape {layout}, has {tuple(tensor.shape)}")
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{name}: dtype {tensor.dtype} is not a supported floating point type")
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name}: dtype {tensor.dtype} differs from q's {q.dtype}")
        if tensor.device != q.device:
            raise ValueError(f"{name}: lies on {tensor.device}, q on {q.device}")
        if tensor.shape[-2:] != q.shape[-2:]:
            raise ValueError(
                f"{name}: heads and dim {tuple(tensor.shape[-2:])} differ from q's "
                f"{tuple(q.shape[-2:])}"
            )
    if q.shape[-1] == 0:
        raise ValueError("q: its last dimension, dim, is 0")
    if v.shape != k.shape:
        raise ValueError(f"v: shape {tuple(v.shape)} differs from k's {tuple(k.shape)}")
    if dimensions == 4 and k.shape[0] != q.shape[0]:
        raise ValueError(f"k: {k.shape[0]} sequences, q has {q.shape[0]}")


def check_boundaries(name: str, cu_seqlens: Tensor, like: Tensor) -> None:
    """Check type, shape and device of cumulative lengths, (sequences + 1,) int32."""
    check_tensor(name, cu_seqlens)
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        raise ValueError(f"{name}: must have shape (sequences + 1,), has {tuple(cu_seqlens.shape)}")
    if cu_seqlens.dtype != torch.int32:
        raise TypeError(f"{name}: must be int32, is {cu_seqlens.dtype}")
    if cu_seqlens.device != like.device:
        raise ValueError(f"{name}: lies on {cu_seqlens.device}, q on {like.device}")


def check_longest(name: str, longest: int) -> None:
    """Check a maximum length."""
    if not isinstance(longest, (int, torch.SymInt, Integral)):
        raise TypeError(f"{name}: must be a whole number, is {type(longest).__name__}")
    if longest < 0:
        raise ValueError(f"{name}: must not be negative, is {longest}")


def check_cumulative(name: str, cu_seqlens: Tensor, tokens: int, longest: int) -> None:
    """Check the values of cumulative lengths.

    They go from 0 to ``tokens``, never down, and no length is over ``longest``.  Waits for the
    device if the tensor lies on a GPU.
    """
    values = cu_seqlens.tolist()
    if values[0] != 0:
        raise ValueError(f"{name}: must begin with 0, begins with {values[0]}")
    lengths = [end - start for start, end in pairwise(values)]
    if lengths and min(lengths) < 0:
        raise ValueError(
            f"{name}: must not decrease, does at sequence {lengths.index(min(lengths))}"
        )
    if values[-1] != tokens:
        raise ValueError(f"{name}: must end with the number of tokens, {tokens}, not {values[-1]}")
    if lengths and max(lengths) > longest:
        raise ValueError(
            f"{name}: a sequence has {max(lengths)} tokens, more than the maximum, {longest}"
        )


def readable(lengths: Tensor, check: bool) -> bool:
    """Whether values can be checked, at no cost unless ``check``: not those of a shape alone."""
    return (
        (check or lengths.device.type == "cpu")
        and type(lengths) is Tensor
        and not torch.compiler.is_compiling()
    )


def check_places(like: Tensor, cu_seqlens: Tensor, max_seqlen: int, check: bool) -> None:
    """Check where sequences lie among the tokens of a tensor; values on a GPU if ``check``."""
    check_boundaries("cu_seqlens", cu_seqlens, like)
    check_longest("max_seqlen", max_seqlen)
    check_switches(check)
    if readable(cu_seqlens, check):
        check_cumulative("cu_seqlens", cu_seqlens, like.shape[0], max_seqlen)


def check_fused(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, check: bool) -> None:
    """Check q, k and v in one tensor, (tokens, 3, heads, dim), and where sequences lie."""
    check_tensor("qkv", qkv)
    if qkv.ndim != 4 or qkv.shape[1] != 3:
        raise ValueError(f"qkv: must have shape (tokens, 3, heads, dim), has {tuple(qkv.shape)}")
    check_tensors(*qkv.unbind(1), dimensions=3)
    check_places(qkv, cu_seqlens, max_seqlen, check)


def check_lengths(name: str, lengths: Tensor, capacity: int) -> None:
    """Check the values of lengths of padded sequences: 0 to ``capacity``."""
    values = lengths.tolist()
    if values and (min(values) < 0 or max(values) > capacity):
        wrong = min(values) if min(values) < 0 else max(values)
        raise ValueError(f"{name}: must lie between 0 and {capacity}, has {wrong}")


def as_number(name: str, value: object) -> float:
    """A number as a float.

    Raises:
        TypeError: for anything else; names the argument.
    """
    if not isinstance(value, (int, float, torch.SymInt, torch.SymFloat, Real)):
        raise TypeError(f"{name}: must be a number, is {type(value).__name__}")
    return float(value)


def resolve_scale(scale: float | None, dimension: int) -> float:
    """The factor of the scores: 1 / sqrt(dim) by default.

    Raises:
        TypeError, ValueError: for what is no number, or not a finite one.
    """
    if scale is None:
        return float(dimension) ** -0.5
    number = as_number("scale", scale)
    if not torch.compiler.is_compiling() and not math.isfinite(number):
        raise ValueError(f"scale: must be finite, is {number}")
    return number


def under_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """What autocast does to a product's inputs: where it is on, cast them, but not float64."""
    device = tensors[0].device.type
    if (
        device == "meta"
        or tensors[0].dtype == torch.float64
        or not torch.is_autocast_enabled(device)
    ):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor.to(dtype) for tensor in tensors)
