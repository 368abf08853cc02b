"""Subcommands that time parts of the experiment."""

import argparse

from scsigmoid.cli.arguments import number, stage
from scsigmoid.config.check import Loaded, built, from_yaml
from scsigmoid.config.schema import (
    Architecture,
    KernelBenchmark,
    Size,
    ThroughputBenchmark,
    Training,
    TrainingBenchmark,
)


@stage("--settings --output --machine")
def benchmark_kernel(options: argparse.Namespace) -> None:
    """Time the attention kernels."""
    from scsigmoid.benchmarks.kernel import run_kernel_benchmark

    settings = built(KernelBenchmark, options.settings["benchmarks.kernel"])
    run_kernel_benchmark(settings, options.settings["device"], options.output, options.machine)


@stage("--settings --output --machine")
def benchmark_throughput(options: argparse.Namespace) -> None:
    """Time training steps."""
    from scsigmoid.benchmarks.throughput import run_throughput_benchmark

    settings = options.settings
    run_throughput_benchmark(
        built(ThroughputBenchmark, settings["benchmarks.throughput"]),
        *timed(settings["timed.throughput"]),
        settings["seed"],
        settings["device"],
        options.output,
        options.machine,
    )


@stage("--settings --output --machine")
def benchmark_training(options: argparse.Namespace) -> None:
    """Time training with each attention kernel."""
    from scsigmoid.benchmarks.training import run_training_benchmark

    settings = options.settings
    benchmark = built(TrainingBenchmark, settings["benchmarks.training"])
    sizes, architecture, training = timed(settings["timed.training"])
    run_training_benchmark(
        benchmark,
        sizes[benchmark.size],
        architecture,
        training,
        settings["seed"],
        settings["device"],
        options.output,
        options.machine,
    )


def timed(settings: Loaded) -> tuple[dict[str, Size], Architecture, Training]:
    """What is trained, and how (``Plan.setting("timed.<benchmark>")``)."""
    return (
        {name: built(Size, values) for name, values in settings["sizes"].items()},
        built(Architecture, settings["architecture"]),
        built(Training, settings["training"]),
    )


@stage("--configuration --cells --output", {"--cells": number("how many", 30_000)})
def simulate_tokens(options: argparse.Namespace) -> None:
    """Write simulated cells, ready for training."""
    from scsigmoid.benchmarks.simulated import write_simulated_tokens

    config = from_yaml(options.configuration)
    write_simulated_tokens(
        options.output,
        built(ThroughputBenchmark, config["benchmarks"]["throughput"]),
        options.cells,
        max(model["context"] for model in config["models"].values()) - 1,
        config["seed"],
    )
