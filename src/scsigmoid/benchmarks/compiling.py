"""Compilation in parallel processes before anything is timed.

An autotuner compiles about fifty configurations for a shape, one after the other. ``torch.compile``
takes half a minute or more for a large encoder. The process that times kernels finds the results in
the disk caches of Triton and torch, and chooses among configurations itself, on an idle GPU.
"""

import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.conditions import Conditions
from scsigmoid.benchmarks.providers import PROVIDERS, Provider
from scsigmoid.benchmarks.timing import release, run_passes
from scsigmoid.benchmarks.variants import Variant
from scsigmoid.model.devices import synchronize
from scsigmoid.model.sizes import count_parameters
from scsigmoid.progress import log
from scsigmoid.training.step import Trainer

# A function and its arguments, which are pickled for another process.
Job = tuple[Any, ...]

# Maximum number of processes. Each needs about 2 GB of GPU memory for CUDA and a shape's tensors.
MOST_PROCESSES = 16
# Time limit of all jobs. Kernels that are not compiled in time are compiled before they are timed.
MOST_SECONDS = 150.0
# Milliseconds of warm-up and timing that an autotuner spends on a configuration. Triton's defaults,
# 25 and 100, are too long for fifty configurations of each of triton-sigmoid's three kernels.
AUTOTUNING_MS = {"warmup": 5, "rep": 30}


def kernel_jobs(
    cases: Sequence[Case], providers: Sequence[Provider], device: torch.device
) -> list[Job]:
    """Return a job for each different kernel code, the longest job first.

    Jobs contain the index of a provider, because a provider cannot be pickled.
    """
    first_case: dict[tuple[int, Hashable], Case] = {}
    for provider in providers:
        if provider.compiled_for is not None:
            index = PROVIDERS.index(provider)
            for case in filter(provider.is_timed_for, cases):
                first_case.setdefault((index, provider.compiled_for(case)), case)
    jobs: list[Job] = [(compile_kernel, index, c, device) for (index, _), c in first_case.items()]
    # Kernels with many configurations take most time, in particular for long sequences.
    return sorted(jobs, key=lambda job: (-PROVIDERS[job[1]].is_autotuned, -job[2].length))


def run_in_processes(jobs: Sequence[Job], most: int = MOST_PROCESSES) -> None:
    """Run jobs in up to ``most`` processes, for up to ``MOST_SECONDS``. Jobs start in order.

    Do nothing if only one process could run: this would not save time.
    """
    cores = os.cpu_count() or 1
    processes = min(len(jobs), cores, most)
    if processes < 2:
        return
    import triton

    # Otherwise torch's compiler would set its own folder in the processes that import it.
    os.environ.setdefault("TRITON_CACHE_DIR", triton.knobs.cache.dir)
    # Number of processes that torch's compiler starts in each process (default: one per core).
    compiler_processes = {"TORCHINDUCTOR_COMPILE_THREADS": str(cores // processes)}
    end = time.monotonic() + MOST_SECONDS
    spawn = multiprocessing.get_context("spawn")
    # Leaving the block terminates the processes, also processes that hang.
    with patch.dict(os.environ, compiler_processes), spawn.Pool(processes) as pool:
        results = [pool.apply_async(function, arguments) for function, *arguments in jobs]
        for result in results:
            result.wait(max(0.0, end - time.monotonic()))
        unfinished = sum(not result.ready() for result in results)
    if unfinished:
        log(f"{unfinished} of {len(jobs)} kernels were not compiled in {MOST_SECONDS:g} s")


def limit_autotuning() -> None:
    """Limit the time that Triton's autotuner spends on each configuration, in this process."""
    from triton.testing import do_bench

    set_autotuner_timer(functools.partial(do_bench, **AUTOTUNING_MS))


def set_autotuner_timer(bench: Callable[..., list[float]]) -> None:
    """Set the function with which Triton's autotuner times a configuration, in this process."""
    from triton.runtime.autotuner import Autotuner

    # A property, as in Triton: a plain function would become a method and get `self`.
    Autotuner.do_bench = property(lambda _: bench)  # type: ignore[method-assign, assignment]


@contextmanager
def silenced() -> Iterator[None]:
    """Hide errors and messages in the block. Preparing a kernel for timing reports them later."""
    with suppress(Exception), Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        yield


def compile_kernel(index: int, case: Case, device: torch.device) -> None:
    """Run a provider's kernel once for a case, with each configuration of its autotuner."""

    def run_once(call: Callable[[], object], quantiles: object) -> list[float]:
        call()
        return [0.0] * 3  # all configurations appear equally fast

    provider = PROVIDERS[index]
    set_autotuner_timer(run_once)
    with silenced():
        inputs = Inputs(case, device)
        run_passes(provider.prepare(inputs), inputs.in_layout(provider.layout))
        synchronize(device)


MEMORY_SHARE = 0.85  # fraction of the GPU's memory that all processes together may use
CUDA_BYTES = 2e9  # memory that CUDA needs in each process
PARAMETER_BYTES = 8  # a weight and its gradient


def compile_steps_ahead(variants: Sequence[Variant], groups: Sequence[Conditions]) -> None:
    """Compile the training steps of all variants in parallel, for ``groups`` of one size.

    All groups share the graph of a packed variant. A padded variant has a graph for each group.
    """
    encoder, device = groups[0].encoder, groups[0].device
    gpu_bytes = torch.cuda.get_device_properties(device).total_memory
    process_bytes = CUDA_BYTES + PARAMETER_BYTES * count_parameters(encoder)
    most = max(1, min(MOST_PROCESSES, int(MEMORY_SHARE * gpu_bytes / process_bytes)))
    padded_kernels = {variant.kernel for variant in variants if variant.layout == "padded"}
    # For each context, a batch with padding
    cases = [
        Case("jagged", encoder.head_dimension, encoder.heads, context, (context - 1,) * 2)
        for context in dict.fromkeys(group.encoder.context for group in groups)
    ]
    autotuned = [each for each in PROVIDERS if each.is_autotuned and each.name in padded_kernels]
    jobs = kernel_jobs(cases, autotuned, device)
    for variant in variants:
        with_own_graph = groups if variant.layout == "padded" else groups[:1]
        jobs += [(compile_step, variant, group, MEMORY_SHARE / most) for group in with_own_graph]
    run_in_processes(jobs, most)


def compile_step(variant: Variant, conditions: Conditions, memory_share: float) -> None:
    """Compile the forward and backward pass of a variant by starting a step.

    If the step does not fit in the fraction ``memory_share`` of the GPU's memory, it fails after
    both passes were compiled, because torch compiles both before it runs the first.
    """
    # Do not store choices among kernels: other processes on the GPU distort the measured times.
    torch._inductor.config.autotune_local_cache = False
    # Autotuners do not run configurations here: the jobs of `compile_kernel` compile them.
    set_autotuner_timer(lambda call, quantiles: [0.0] * 3)
    device = conditions.device
    with silenced():
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(memory_share)
        batch = variant.batch(next(conditions.batches()), conditions.encoder.context)
        encoder = variant.encoder(conditions.encoder, device)
        Trainer(encoder, conditions.training, conditions.seed, device).step(1, [batch])
        synchronize(device)
    release(device)
