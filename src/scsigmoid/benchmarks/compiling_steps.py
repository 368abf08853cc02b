"""Compiling training steps ahead of their timing, side by side.

``torch.compile`` takes half a minute and more for a large encoder, most of it on one core.  It
keeps what it makes on disk, for graphs of any batch; the process that times finds it there.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from scsigmoid.benchmarks.compiling import in_processes, unheard
from scsigmoid.benchmarks.simulated_batches import simulated_batches
from scsigmoid.config.schema import ThroughputBenchmark, Training
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.parameters import count_parameters
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.step import Trainer, autocast

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
    ordered = sorted(graphs.values(), key=lambda one: -count_parameters(one).total)
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
