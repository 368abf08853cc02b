"""Compiling ahead of the timing, in several processes.

One kernel that chooses among many configurations compiles some fifty of them for a shape, one after
the other; ``torch.compile`` takes half a minute and more for a large encoder, most of it on one
core.  Here processes do that side by side.  Triton and torch keep what is compiled on disk, so the
process that times finds it there; every choice is still made by that process, on an idle GPU.
"""

import functools
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import replace
from typing import Any

import torch

from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.providers import PROVIDERS, Provider
from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.benchmarks.timing import passes
from scsigmoid.config.schema import ThroughputBenchmark, Training
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings, count_parameters
from scsigmoid.progress import log
from scsigmoid.training.step import Trainer, autocast

# Each process holds a shape's tensors and a context, about 2 GB of the GPU's memory.
MOST_PROCESSES = 16
# What is not compiled by then is compiled, or fails, where it is timed.
MOST_SECONDS = 150.0
# What a kernel that chooses among configurations spends on each, warm-up and timing, where Triton
# takes 25 and 100 ms: some fifty configurations and three kernels a class of lengths add up.
CHOICE_MS = (5, 30)


def jobs(cases: Sequence[Case], providers: Sequence[Provider]) -> list[tuple[int, Case]]:
    """What there is to compile: places in ``PROVIDERS`` and a shape for each different code."""
    found: dict[tuple[object, ...], tuple[int, Case]] = {}
    for provider in providers:
        index = PROVIDERS.index(provider)
        for case in filter(provider.suits, cases):
            if provider.compiled_for is not None:
                found.setdefault((index, provider.compiled_for(case)), (index, case))
    # Those with many configurations take longest, and longer at long sequences.
    return sorted(found.values(), key=lambda job: (-PROVIDERS[job[0]].chooses, -job[1].length))


def compile_ahead(
    cases: Sequence[Case],
    providers: Sequence[Provider],
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Compile the kernels for whose compilation it is worth starting processes."""
    ordered = [(index, case, device, dtype) for index, case in jobs(cases, providers)]
    in_processes(compile_one, ordered, os.cpu_count() or 1, "kernels")


def in_processes(
    work: Callable[..., None], ordered: Sequence[tuple[Any, ...]], cores: int, what: str
) -> None:
    """Compile side by side, for ``MOST_SECONDS`` at most; nothing where one process would do.

    Args:
        work: compiles one thing.
        ordered: its arguments, the longest work first.
        cores: processes at a time.
        what: is compiled, in the plural.
    """
    processes = min(len(ordered), cores, MOST_PROCESSES)
    if processes < 2:
        return
    share_compiled_kernels()
    end = time.monotonic() + MOST_SECONDS
    # Leaving the block ends the processes, also one that hangs.
    begin = (importlib.import_module, (first_with_torch(),))
    with multiprocessing.get_context("spawn").Pool(processes, *begin) as pool:
        running = [pool.apply_async(work, arguments) for arguments in ordered]
        for one in running:
            one.wait(max(0.0, end - time.monotonic()))
        unfinished = sum(not one.ready() for one in running)
    if unfinished:
        log(f"{unfinished} of {len(ordered)} {what} were not compiled in {MOST_SECONDS:g} s")


def first_with_torch() -> str:
    """The module that other processes must import first, to find in torch's cache what is meant.

    The keys of that cache hold constants of torch by the name of the module that they are found in,
    which is the first one of ``sys.modules`` that imports torch.  That of somebody else's program
    may not be one that can be imported.
    """
    modules = list(sys.modules.items())
    first = next(
        name
        for name, module in modules
        if name != "__main__" and getattr(module, "torch", None) is torch
    )
    return first if first.partition(".")[0] in ("scsigmoid", "torch") else "torch"


def share_compiled_kernels() -> None:
    """Have all processes look in one place; torch's compiler would change it halfway."""
    import triton

    os.environ.setdefault("TRITON_CACHE_DIR", triton.knobs.cache.dir)


def bound_choices() -> None:
    """Let Triton's autotuner spend a bounded time on each configuration, in this process."""
    from triton.testing import do_bench

    warmup, repetitions = CHOICE_MS
    choose_by(functools.partial(do_bench, warmup=warmup, rep=repetitions))


def choose_by(bench: Callable[..., list[float]]) -> None:
    """How Triton's autotuner times a configuration, in this process."""
    from triton.runtime.autotuner import Autotuner

    Autotuner.do_bench = property(lambda _: bench)  # type: ignore[method-assign, assignment]


def run_once(call: Callable[[], object], quantiles: object) -> list[float]:
    """In place of timing: compiles a configuration, and calls them all alike."""
    call()
    return [0.0] * 3


@contextmanager
def unheard() -> Iterator[None]:
    """What fails here fails again where it is noted, and what is said here is said again there."""
    with (
        suppress(Exception),
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stderr(nowhere),
    ):
        yield


def compile_one(index: int, case: Case, device: torch.device, dtype: torch.dtype) -> None:
    """Run one kernel once at one shape, with every configuration that it may choose."""
    provider = PROVIDERS[index]
    if provider.chooses:
        choose_by(run_once)
    with unheard():
        inputs = Inputs(case, device, dtype)
        passes(provider.prepare(inputs), inputs.in_layout(provider.layout))
        torch.cuda.synchronize()


# torch's compiler starts processes of its own; by default, as many as there are cores.
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


def compile_steps_ahead(
    encoders: Sequence[EncoderSettings],
    settings: ThroughputBenchmark,
    training: Training,
    seed: int,
    device: torch.device,
) -> None:
    """Compile the steps of several encoders, each graph once: the contexts of a model share it."""
    graphs: dict[EncoderSettings, EncoderSettings] = {}
    for encoder in encoders:
        graphs.setdefault(replace(encoder, context=1), encoder)
    ordered = sorted(graphs.values(), key=lambda one: -count_parameters(one))
    cores = os.cpu_count() or 1
    with few_threads(max(1, cores // max(1, len(ordered)))):
        jobs = [(encoder, settings, training, seed, device) for encoder in ordered]
        in_processes(compile_step, jobs, cores, "models")


@contextmanager
def few_threads(count: int) -> Iterator[None]:
    """Processes that are started in the block compile with so many others each."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


def compile_step(
    encoder: EncoderSettings,
    settings: ThroughputBenchmark,
    training: Training,
    seed: int,
    device: torch.device,
) -> None:
    """Compile the forward and the backward pass of one encoder by taking them."""
    # Choices among kernels that are made while others use the GPU must not be kept.
    torch._inductor.config.autotune_local_cache = False
    with unheard():
        batch = next(simulated_batches(settings, encoder.context, training, seed))
        with device:
            model = Encoder(encoder)
        trainer = Trainer(model, training, seed, device)
        with autocast(device):
            loss = trainer.summed_loss(batch.to(device), 1) / max(1, len(batch.masked))
        loss.backward()
