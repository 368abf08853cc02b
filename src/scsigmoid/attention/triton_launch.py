"""Launches of the Triton kernels: configurations, tables of tiles, strides, grids."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from scsigmoid.attention.backends import is_interpreted
from scsigmoid.attention.launching import FUSED, allocate_output, describe, is_describable
from scsigmoid.attention.problem import Problem
from scsigmoid.attention.schedule import Tiling, assign_tiles
from scsigmoid.attention.triton_kernels import dkdv_kernel, dq_kernel, forward_kernel
from scsigmoid.attention.tuning import (
    INTERPRETED,
    Configuration,
    Kernel,
    find_configuration,
    pad_dimension,
)

#: Largest supported head dimension.
WIDEST = 256
KERNELS: dict[Kernel, Any] = {"forward": forward_kernel, "dq": dq_kernel, "dkdv": dkdv_kernel}
#: Indices of the two tensor arguments that the inner loop reads, by descriptors if possible.
LOOPED: dict[Kernel, tuple[int, int]] = {"forward": (1, 2), "dq": (2, 3), "dkdv": (0, 1)}


def make_constants(
    configuration: Configuration,
    dimension: int,
    itemsize: int,
    *,
    accurate: bool,
    causal: bool = False,
) -> dict[str, Any]:
    """Return the kernels' common compile-time arguments. float32 (4 bytes) is always accurate."""
    return {
        "D": dimension,
        "BLOCK_D": pad_dimension(dimension),
        "BLOCK_Q": configuration.block_q,
        "BLOCK_K": configuration.block_k,
        "SIGMOID": "division" if itemsize == 4 else "pair" if accurate else "tanh",
        # float32 is split into parts for tensor cores, at its precision. Half precision ignores it.
        "PRECISION": "tf32x3" if itemsize == 4 else "tf32",
        "STAGES": configuration.stages,
        "TMA": configuration.tma,
        "TAIL_LAST": configuration.tail_last,
        "CAUSAL": causal,
    }


def make_inner_contiguous(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _make_descriptor(tensor: Tensor, rows: int) -> TensorDescriptor:
    return TensorDescriptor(tensor, *describe(tensor, rows, pad_dimension(tensor.shape[-1])))


def _launch(
    kernel: Kernel,
    configuration: Configuration,
    tensors: Sequence[Tensor],
    problem: Problem,
    tiling: Tiling,
    dbias: Tensor | None = None,
) -> None:
    """Launch a kernel. ``tensors`` are its first arguments: inputs, then results.

    Kernel ``dq`` fills ``dbias``, (sequences, heads, blocks) float32, with the bias gradient of
    each tile, and kernel ``dkdv`` fills ``dbias``, (key tokens, heads) float32, with the gradient
    of the bias of each key.
    """
    _, heads, dimension = tensors[0].shape
    # The interpreter does not support inline assembly, so it computes as for float32 (4 bytes).
    constants = make_constants(
        configuration,
        dimension,
        4 if is_interpreted() else tensors[0].element_size(),
        accurate=bool(problem.accurate),
        causal=problem.is_causal,
    )
    descriptors = LOOPED[kernel] if configuration.tma else ()
    rows = configuration.block_q if kernel == "dkdv" else configuration.block_k
    KERNELS[kernel][(tiling.programs * heads,)](
        *(_make_descriptor(x, rows) if i in descriptors else x for i, x in enumerate(tensors)),
        problem.starts_q,
        problem.ends_q,
        problem.starts_k,
        problem.ends_k,
        problem.bias,
        problem.key_bias,
        tiling.table,
        *(() if kernel == "forward" else (dbias,)),
        *(stride for tensor in tensors for stride in tensor.stride()[:2]),
        problem.scale,
        heads,
        tiling.tiles_per_sequence,
        tiling.programs,
        **({} if kernel == "forward" else {"BIAS_GRAD": dbias is not None}),
        **constants,
        num_warps=configuration.warps,
        num_stages=configuration.stages,
        **FUSED,
    )


_capability = functools.cache(torch.cuda.get_device_capability)


def _choose_configuration(
    kernel: Kernel, q: Tensor, looped: tuple[Tensor, Tensor]
) -> Configuration:
    """Return the configuration of a kernel whose inner loop reads the tensors ``looped``."""
    if is_interpreted():
        return INTERPRETED
    capability = _capability(q.device)
    configuration = find_configuration(kernel, q.shape[-1], q.element_size(), capability)
    if configuration.tma and not all(map(is_describable, looped)):
        # Only data-center GPUs have configurations with `tma`. On them the tail is faster last.
        return dataclasses.replace(configuration, tma=False, tail_last=True)
    return configuration


def forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
    """Launch algorithm 1 and return its result, contiguous."""
    if q.shape[-1] > WIDEST:
        raise ValueError(
            f"q: head dimension {q.shape[-1]} is above {WIDEST}, the limit of backend 'triton'; "
            "use backend='reference'"
        )
    if q.dtype == torch.float64:
        raise TypeError("q: backend 'triton' does not support float64; use backend='reference'")
    if q.dtype == torch.bfloat16 and q.is_cpu:
        raise TypeError("q: Triton's interpreter computes bfloat16 wrongly; use float16 or float32")
    q, k, v = map(make_inner_contiguous, (q, k, v))
    out = allocate_output(q, problem)
    if out.numel():
        configuration = _choose_configuration("forward", q, (k, v))
        tiling = assign_tiles(problem, q.shape[0], configuration.block_q)
        _launch("forward", configuration, (q, k, v, out), problem, tiling)
    return out


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    problem: Problem,
    bias_grad: bool,
    into: tuple[Tensor, Tensor, Tensor] | None = None,
    key_bias_grad: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Launch algorithms 2 and 3.

    Args:
        grad, q, k, v, problem, bias_grad, key_bias_grad: as for :func:`ops.compute_gradients`.
        into: tensors for the gradients of ``q``, ``k`` and ``v`` (default: allocate them). The
            heads of a token must be contiguous. Only for a problem without gaps, because tokens
            outside sequences are not written.

    Returns:
        Gradients of ``q``, ``k`` and ``v``, contiguous or ``into``, of the bias, (sequences,)
        float32, or None without ``bias_grad``, and of the bias of keys, (key tokens,) float32, or
        None without ``key_bias_grad``.
    """
    grad, q, k, v = map(make_inner_contiguous, (grad, q, k, v))
    if into is None:
        dq = allocate_output(q, problem)
        dk, dv = (allocate_output(x, problem, keys=True) for x in (k, v))
    else:
        dq, dk, dv = into
    dbias = q.new_zeros(problem.sequences, dtype=torch.float32) if bias_grad else None
    # Zeros, because the padding is not written.
    head_dkey_bias = k.new_zeros(k.shape[:2], dtype=torch.float32) if key_bias_grad else None
    dq_block = 0  # block size of dQ's tiles, 0 if there are none
    if dq.numel():
        configuration = _choose_configuration("dq", q, (k, v))
        dq_block = configuration.block_q
        tiling = assign_tiles(problem, q.shape[0], configuration.block_q)
        shape = (problem.sequences, q.shape[1], tiling.tiles_per_sequence)
        tile_dbias = torch.zeros(shape, dtype=torch.float32, device=q.device) if bias_grad else None
        _launch("dq", configuration, (grad, q, k, v, dq), problem, tiling, tile_dbias)
        dbias = None if tile_dbias is None else tile_dbias.sum(dim=(1, 2))
    if dk.numel():
        configuration = _choose_configuration("dkdv", q, (q, grad))
        # Reuse the tiles of dQ if queries and keys have the same boundaries and block size.
        if not (problem.is_self_attention and dq_block == configuration.block_k):
            tiling = assign_tiles(problem, k.shape[0], configuration.block_k, keys=True)
        _launch("dkdv", configuration, (grad, q, k, v, dk, dv), problem, tiling, head_dkey_bias)
    dkey_bias = None if head_dkey_bias is None else head_dkey_bias.sum(dim=1)
    return dq, dk, dv, dbias, dkey_bias
