"""Time attention on this computer's GPU: ``python -m scsigmoid.attention.benchmark``.

Times sigmoid attention and the softmax backends that can run, FlashAttention-4 if it is installed,
in a minute. :mod:`scsigmoid.benchmarks` measures more kernels, checks and intervals.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median

import torch
from torch import Tensor

from scsigmoid.attention import choose_backend, sigmoid_attention, softmax_attention
from scsigmoid.errors import UserError

#: Lengths of the sequences of each batch. The last batch has quantiles of the lengths of cells.
BATCHES = {
    "16 x 1,024 tokens": [1024] * 16,
    "8 x 2,048": [2048] * 8,
    "2 x 8,192": [8192] * 2,
    "cells": [510, 820, 1170, 1590, 2110, 2800, 3810, 5780],
}
WIDTH, DIMENSIONS, ROUNDS = 2048, (64, 128), 12


def kernels() -> dict[str, Callable[..., Tensor]]:
    """Return the kernels that can run on the GPU, by name."""
    device = torch.device("cuda")
    found: dict[str, Callable[..., Tensor]] = {
        f"sigmoid, {choose_backend('sigmoid', 'auto', device)}": sigmoid_attention
    }
    for backend in ("fa4", "sdpa"):
        try:
            choose_backend("softmax", backend, device)
        except UserError as error:
            print(error, file=sys.stderr)
        else:
            found[f"softmax, {backend}"] = partial(softmax_attention, backend=backend)
    return found


def milliseconds(run: Callable[[], object]) -> float:
    """Return the time of a call on the GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(5):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 5


def measure(
    by_name: Mapping[str, Callable[..., Tensor]], dimension: int, lengths: list[int]
) -> dict[str, tuple[float, float]]:
    """Return the median TFLOPS of forward and backward pass of each kernel, timed in rounds."""
    shape = (sum(lengths), WIDTH // dimension, dimension)
    tensors = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    q, k, v, grad = (x.requires_grad_() for x in tensors)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).to("cuda", torch.int32)
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(ROUNDS + 1):  # the first round compiles and is dropped
        for name, kernel in by_name.items():
            attend = partial(kernel, q, k, v, cu_seqlens, max(lengths))
            out = attend()
            forward = milliseconds(attend)
            gradients = partial(torch.autograd.grad, out, (q, k, v), grad, retain_graph=True)
            times.setdefault(name, []).append((forward, milliseconds(gradients)))
    # 4 n^2 operations per element of the width forward, 2.5 times as many backward
    operations = 4 * WIDTH * sum(n * n for n in lengths)
    return {
        name: (
            operations / median(forward for forward, _ in rounds[1:]) / 1e9,
            2.5 * operations / median(backward for _, backward in rounds[1:]) / 1e9,
        )
        for name, rounds in times.items()
    }


def lines() -> Iterator[str]:
    yield f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16, eager calls"
    yield "TFLOPS, forward / backward"
    by_name = kernels()
    for dimension in DIMENSIONS:
        for batch, lengths in BATCHES.items():
            for name, (forward, backward) in measure(by_name, dimension, lengths).items():
                shape = f"head dimension {dimension}, {batch}"
                yield f"{shape:<38} {name:<20} {forward:6.0f} / {backward:4.0f}"


def main() -> int:
    if not torch.cuda.is_available():
        print("the benchmark needs a CUDA GPU and torch sees none", file=sys.stderr)
        return 1
    torch.manual_seed(0)
    for line in lines():
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
