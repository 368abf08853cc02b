"""Launching the Triton kernels: configurations, tables of tiles, strides, grids."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from scsigmoid.attention import tuning
from scsigmoid.attention.backends import interpreting
from scsigmoid.attention.launching import FUSED, describable, described, output
from scsigmoid.attention.problem import Problem, nothing
from scsigmoid.attention.schedule import Tiling, share_out
from scsigmoid.attention.triton_kernels import dkdv_kernel, dq_kernel, forward_kernel
from scsigmoid.attention.tuning import (
    INTERPRETED,
    Configuration,
    Kernel,
    block_width,
)

#: Largest head dimension.
WIDEST = 128
KERNELS: dict[Kernel, Any] = {"forward": forward_kernel, "dq": dq_kernel, "dkdv": dkdv_kernel}
#: Tensors that a kernel reads and writes.
TENSORS: dict[Kernel, int] = {"forward": 4, "dq": 5, "dkdv": 6}
#: Places of those that the inner loop reads.
LOOPED: dict[Kernel, tuple[int, int]] = {"forward": (1, 2), "dq": (2, 3), "dkdv": (0, 1)}
#: What switches a kernel's by-product on.
BY_PRODUCTS: dict[Kernel, str] = {"forward": "SCORE_MAX", "dq": "BIAS_GRAD"}


def constants(
    chosen: Configuration, dimension: int, itemsize: int, *, has_bias: bool, accurate: bool
) -> dict[str, Any]:
    """The kernels' compile-time arguments; float32 always gets the exact sigmoid."""
    return {
        "D": dimension,
        "BLOCK_D": block_width(dimension),
        "BLOCK_Q": chosen.block_q,
        "BLOCK_K": chosen.block_k,
        "HAS_BIAS": has_bias,
        "SIGMOID": "exact" if itemsize == 4 else "pair" if accurate else "tanh",
        "PRECISION": "ieee" if itemsize == 4 else "tf32",
        "STAGES": chosen.stages,
        "TMA": chosen.tma,
        "TAIL_LAST": chosen.tail_last,
    }


def inner_contiguous(tensor: Tensor) -> Tensor:
    """The tensor, copied only if the elements of one head do not lie side by side."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _argument(tensor: Tensor, rows: int) -> TensorDescriptor:
    """What a kernel gets for a tensor whose blocks of ``rows`` tokens are copied whole."""
    return TensorDescriptor(tensor, *described(tensor, rows, block_width(tensor.shape[-1])))


def _device(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be the tensor's."""
    if tensor.device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def _parts(problem: Problem, tiling: Tiling, q: Tensor) -> Tensor:
    """Where the programs of a kernel put what they find beside, (sequences, heads, blocks)."""
    shape = (problem.sequences, q.shape[1], tiling.blocks)
    return torch.zeros(shape, dtype=torch.float32, device=q.device)


def _launch(
    kernel: Kernel,
    chosen: Configuration,
    tensors: Sequence[Tensor],
    problem: Problem,
    tiling: Tiling,
    parts: Tensor | None = None,
) -> None:
    """Launch a kernel.

    Args:
        kernel: the kernel.
        chosen: its configuration.
        tensors: inputs and results, in the order of the kernel's first arguments.
        problem: what to compute.
        tiling: programs and their tiles.
        parts: (sequences, heads, blocks) float32 for the by-product, if it is asked for.
    """
    _, heads, dimension = tensors[0].shape
    # The interpreter knows no inline assembly, so there the sigmoid is exact.
    fixed = constants(
        chosen,
        dimension,
        4 if interpreting() else tensors[0].element_size(),
        has_bias=problem.bias is not None,
        accurate=bool(problem.accurate),
    )
    by_product = BY_PRODUCTS.get(kernel)
    flag = {} if by_product is None else {by_product: parts is not None}
    looped = LOOPED[kernel] if chosen.tma else ()
    rows = chosen.block_q if kernel == "dkdv" else chosen.block_k
    with _device(tensors[0]):
        KERNELS[kernel][(tiling.tiles * heads,)](
            *(_argument(x, rows) if place in looped else x for place, x in enumerate(tensors)),
            problem.starts_q,
            problem.ends_q,
            problem.starts_k,
            problem.ends_k,
            problem.bias,
            tiling.table,
            *(() if by_product is None else (parts,)),
            *(stride for tensor in tensors for stride in tensor.stride()[:2]),
            problem.scale,
            heads,
            tiling.blocks,
            tiling.tiles,
            SCHEDULED=tiling.table is not None,
            **flag,
            **fixed,
            num_warps=chosen.warps,
            num_stages=chosen.stages,
            **FUSED,
        )


def _trial(
    kernel: Kernel, dimension: int, dtype: torch.dtype, device: torch.device, chosen: Configuration
) -> Callable[[], None]:
    """What launches a kernel on a batch made for timing it: 4 sequences of 2,048, 8 heads."""
    generator = torch.Generator(device).manual_seed(0)
    bounds = torch.arange(0, 5 * 2048, 2048, dtype=torch.int32, device=device)
    shape = (4 * 2048, 8, dimension)
    tensors = [
        torch.randn(shape, dtype=dtype, device=device, generator=generator)
        for _ in range(TENSORS[kernel])
    ]
    problem = Problem(
        *(bounds[:-1], bounds[1:], bounds[:-1], bounds[1:]),
        bias=None,
        longest_q=2048,
        longest_k=2048,
        scale=dimension**-0.5,
        accurate=False,
        gaps=False,
        deterministic=False,
    )
    block = chosen.block_k if kernel == "dkdv" else chosen.block_q
    tiling = share_out(problem, shape[0], block, keys=kernel == "dkdv")
    return lambda: _launch(kernel, chosen, tensors, problem, tiling)


def _configuration(kernel: Kernel, q: Tensor, *looped: Tensor) -> Configuration:
    """The kernel's configuration; ``looped`` are the tensors that its inner loop reads."""
    if interpreting():
        return INTERPRETED
    about = q.shape[-1], q.dtype, q.device
    trial = functools.partial(_trial, kernel, *about)
    chosen = tuning.choose(kernel, *about, trial, KERNELS[kernel])
    if chosen.tma and not all(map(describable, looped)):
        return dataclasses.replace(chosen, tma=False, tail_last=True)
    return chosen


def check(q: Tensor) -> None:
    """Check that the kernels know the type and the head dimension of ``q``.

    Raises:
        TypeError, ValueError: if not; names ``q``.
    """
    if q.shape[-1] > WIDEST:
        raise ValueError(
            f"q: head dimension {q.shape[-1]} is above {WIDEST}, the triton backend's limit; "
            "use backend='reference'"
        )
    if q.dtype == torch.float64:
        raise TypeError("q: the triton backend has no float64; use backend='reference'")


def forward(
    q: Tensor, k: Tensor, v: Tensor, problem: Problem, score_max: bool
) -> tuple[Tensor, Tensor | None]:
    """Launch algorithm 1.

    Returns:
        The result, contiguous, and the largest score of each head, (heads,) float32, if
        ``score_max`` asks for it.
    """
    check(q)
    q, k, v = map(inner_contiguous, (q, k, v))
    out = output(q, problem.starts_q, problem.ends_q, problem.gaps)
    largest = torch.zeros(q.shape[1], device=q.device) if score_max else None
    if out.numel():
        chosen = _configuration("forward", q, k, v)
        tiling = share_out(problem, q.shape[0], chosen.block_q)
        parts = _parts(problem, tiling, q) if score_max else None
        _launch("forward", chosen, (q, k, v, out), problem, tiling, parts)
        largest = largest if parts is None else parts.amax(dim=(0, 2))
    return out, largest


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    problem: Problem,
    bias_grad: bool,
    into: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Launch algorithms 2 and 3.

    Args:
        grad to problem: see :mod:`problem`.
        bias_grad: whether the bias has a gradient.
        into: where to write the gradients of ``q``, ``k`` and ``v``, a token's heads side by side;
            only for a problem without gaps.

    Returns:
        Gradients of ``q``, ``k`` and ``v``, contiguous or ``into``, and of the bias, (sequences,)
        float32; nothing in its place unless ``bias_grad`` asks for it.
    """
    grad, q, k, v = map(inner_contiguous, (grad, q, k, v))
    if into is None:
        dq = output(q, problem.starts_q, problem.ends_q, problem.gaps)
        dk, dv = (output(x, problem.starts_k, problem.ends_k, problem.gaps) for x in (k, v))
    else:
        dq, dk, dv = into
    dbias = torch.zeros(problem.sequences, device=q.device) if bias_grad else nothing(q)
    if dq.numel():
        chosen = _configuration("dq", q, k, v)
        tiling = share_out(problem, q.shape[0], chosen.block_q)
        parts = _parts(problem, tiling, q) if bias_grad else None
        _launch("dq", chosen, (grad, q, k, v, dq), problem, tiling, parts)
        dbias = dbias if parts is None else parts.sum(dim=(1, 2))
    if dk.numel():
        block = chosen.block_q if dq.numel() else 0
        chosen = _configuration("dkdv", q, q, grad)
        # Where queries and keys are the same tokens, and blocks as large, so are the tiles.
        if not (problem.own_keys and block == chosen.block_k):
            tiling = share_out(problem, k.shape[0], chosen.block_k, keys=True)
        _launch("dkdv", chosen, (grad, q, k, v, dk, dv), problem, tiling)
    return dq, dk, dv, dbias
