"""Compiling the kernels ahead of the timing, on all cores.

One kernel that chooses among many configurations compiles some fifty of them for a shape, one after
the other.  Here processes do that side by side.  Triton and torch keep what is compiled on disk, so
the process that times finds it there; every choice is still made by that process, on an idle GPU.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.providers import PROVIDERS

# Each process holds a shape's tensors and a context, about 2 GB of the GPU's memory.
MOST_PROCESSES = 16


def jobs(cases: Sequence[Case]) -> list[tuple[int, Case]]:
    """What there is to compile: places in ``PROVIDERS`` and a shape for each different code."""
    found: dict[tuple[object, ...], tuple[int, Case]] = {}
    for index, provider in enumerate(PROVIDERS):
        if provider.compiled_for is not None:
            for case in cases:
                found.setdefault((index, provider.compiled_for(case)), (index, case))
    # The longest sequences take longest.
    return sorted(found.values(), key=lambda job: -job[1].length)


def compile_ahead(cases: Sequence[Case], device: torch.device, dtype: torch.dtype) -> None:
    """Compile the kernels for whose compilation it is worth starting processes."""
    ordered = jobs(cases)
    processes = min(len(ordered), os.cpu_count() or 1, MOST_PROCESSES)
    if processes < 2:
        return
    # All must look in one place; torch's compiler would change it halfway.
    import triton

    os.environ.setdefault("TRITON_CACHE_DIR", triton.knobs.cache.dir)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for index, case in ordered:
            pool.submit(compile_one, index, case, device, dtype)


def compile_one(index: int, case: Case, device: torch.device, dtype: torch.dtype) -> None:
    """Run one kernel once at one shape, every configuration of it."""
    from triton.runtime.autotuner import Autotuner

    def run_once(call: Any, quantiles: Any) -> list[float]:
        call()
        return [0.0] * 3

    Autotuner.do_bench = property(lambda _: run_once)  # type: ignore[method-assign, assignment]
    provider = PROVIDERS[index]
    # What fails here fails again where it is noted.
    with contextlib.suppress(Exception):
        inputs = Inputs(case, device, dtype)
        q, k, v, gradient = inputs.in_layout(provider.layout)
        output = provider.prepare(inputs)(q, k, v)
        torch.autograd.grad(output, (q, k, v), gradient)
        torch.cuda.synchronize()
