"""Which training steps are compiled ahead, and how."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_training import ARCHITECTURE, TRAINING

from scsigmoid.benchmarks import compiling_steps
from scsigmoid.benchmarks.compiling_steps import THREADS, compile_step, compile_steps_ahead
from scsigmoid.config.schema import Size, ThroughputBenchmark
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.step import Trainer

CPU = torch.device("cpu")
SETTINGS = ThroughputBenchmark(
    sizes=[],
    contexts=[16, 32],
    cells_per_gpu=2,
    vocabulary=50,
    steps=4,
    read_every=2,
    projected_cells=1.0,
    median_length=20,
    sigma_length=0.65,
    confidence=0.95,
)


def encoder(layers: int, attention: str, context: int) -> EncoderSettings:
    size = Size(layers=layers, hidden=16, heads=2, feed_forward=32)
    return EncoderSettings.of(size, ARCHITECTURE, attention, context, SETTINGS.vocabulary)


def test_each_graph_is_compiled_once_and_the_largest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[EncoderSettings, str | None]] = []

    def in_processes(work: object, jobs: Sequence[tuple[Any, ...]], cores: int, what: str) -> None:
        assert work is compile_step
        begun.extend((job[0], os.environ.get(THREADS)) for job in jobs)

    monkeypatch.setattr(compiling_steps, "in_processes", in_processes)
    monkeypatch.setattr("os.cpu_count", lambda: 9)
    monkeypatch.delenv(THREADS, raising=False)
    encoders = [
        encoder(layers, attention, context)
        for layers in (1, 2)
        for context in (16, 32)
        for attention in ("sigmoid", "softmax")
    ]
    compile_steps_ahead(encoders, SETTINGS, TRAINING, 42, CPU)
    assert begun == [
        (encoder(layers, attention, 16), "2")
        for layers in (2, 1)
        for attention in ("sigmoid", "softmax")
    ]
    assert THREADS not in os.environ


def test_what_is_compiled_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward of the same loss; a failure is silent."""
    losses: list[float] = []
    summed_loss = Trainer.summed_loss

    def watched(self, batch, step):  # type: ignore[no-untyped-def]
        loss = summed_loss(self, batch, step)
        loss.register_hook(lambda gradient: losses.append(float(loss)))
        return loss

    monkeypatch.setattr(Trainer, "summed_loss", watched)
    compile_step(encoder(1, "sigmoid", 16), SETTINGS, TRAINING, 42, CPU)
    assert len(losses) == 1
    unknown = replace(encoder(1, "sigmoid", 16), backend="none")
    compile_step(unknown, SETTINGS, TRAINING, 42, CPU)
    assert len(losses) == 1
