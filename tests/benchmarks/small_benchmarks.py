"""Settings of benchmarks for tests."""

import json
from pathlib import Path

import torch
from small_training import ARCHITECTURE, TRAINING

from scsigmoid.benchmarks.cases import groups
from scsigmoid.benchmarks.conditions import Conditions
from scsigmoid.benchmarks.kernel import run_kernel_benchmark
from scsigmoid.benchmarks.rows import KernelRow, TrainingGroup, read_rows
from scsigmoid.config.schema import KernelBenchmark, Size, TrainingBenchmark
from scsigmoid.model.sizes import EncoderSettings

PAPER = KernelBenchmark(
    tokens=16384,
    hidden=2048,
    head_dimensions=[64, 128],
    lengths=[512, 1024, 2048, 4096, 8192, 16384],
    padding=[0.0, 0.25],
    jagged=True,
    median_length=1830,
    sigma_length=0.65,
    iterations=250,
    seconds=15,
    warmup_ms=100,
    confidence=0.99,
)
PAPER_CASES = [case for group in groups(PAPER) for case in group]
KERNEL = PAPER.model_copy(
    update={
        "tokens": 32,
        "hidden": 16,
        "head_dimensions": [8, 16],
        "lengths": [16, 32],
        "median_length": 10,
        "iterations": 8,
        "seconds": 60,
        "warmup_ms": 0,
    }
)
TRAINING_BENCHMARK = TrainingBenchmark(
    sizes=["small"],
    contexts=[16, 32],
    cells_per_gpu=[3],
    kernels=None,
    vocabulary=50,
    steps=2,
    rounds=9,
    seconds=60,
    projected_cells=131.6e6,
    median_length=20,
    sigma_length=0.65,
    confidence=0.99,
)
SIZE = Size(layers=2, hidden=16, heads=2, feed_forward=32)


def conditions(context: int, cells: int = 3) -> Conditions:
    """Return the conditions of a group of the training benchmark on the CPU."""
    vocabulary = TRAINING_BENCHMARK.vocabulary
    encoder = EncoderSettings.of(SIZE, ARCHITECTURE, "sigmoid", context, vocabulary)
    group = TrainingGroup("small", context, cells)
    unchanging = TRAINING.model_copy(update={"learning_rate": 0.0})
    return Conditions(group, encoder, TRAINING_BENCHMARK, unchanging, 42, torch.device("cpu"))


def run_kernel(settings: KernelBenchmark, folder: Path) -> list[KernelRow]:
    run_kernel_benchmark(settings, "cpu", folder / "kernel.csv", folder / "kernel.json")
    facts = json.loads((folder / "kernel.json").read_text())
    assert (facts["device"], facts["command"]) == ("cpu", "scsigmoid benchmark-kernel")
    return read_rows(folder / "kernel.csv", KernelRow)
