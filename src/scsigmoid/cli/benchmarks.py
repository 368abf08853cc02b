"""Subcommands that time parts of the experiment."""

import argparse

from scsigmoid.cli.arguments import JobSettings, number, stage
from scsigmoid.config.check import read_yaml
from scsigmoid.config.schema import Architecture, KernelBenchmark, Size, Training, TrainingBenchmark

BENCHMARK = "--settings --output --machine --seconds?"  # arguments of both benchmarks


@stage(BENCHMARK)
def benchmark_kernel(options: argparse.Namespace) -> None:
    """Time the attention kernels."""
    from scsigmoid.benchmarks.kernel import run_kernel_benchmark

    settings, device = options.settings, options.settings["device"]
    benchmark = settings.section("benchmarks.kernel", KernelBenchmark)
    run_kernel_benchmark(benchmark, device, options.output, options.machine, options.seconds)


@stage(BENCHMARK)
def benchmark_training(options: argparse.Namespace) -> None:
    """Time training with each attention kernel."""
    from scsigmoid.benchmarks.training import run_training_benchmark

    settings = options.settings
    sizes = JobSettings(settings["sizes"], "--settings: sizes")
    run_training_benchmark(
        settings.section("benchmarks.training", TrainingBenchmark),
        {name: sizes.section(name, Size) for name in sizes},
        settings.section("architecture", Architecture),
        settings.section("training", Training),
        settings["seed"],
        settings["device"],
        options.output,
        options.machine,
        options.seconds,
    )


@stage("--configuration --cells --output", {"--cells": number("number of cells", 30_000)})
def simulate_tokens(options: argparse.Namespace) -> None:
    """Write simulated cells, ready for training."""
    from scsigmoid.benchmarks.simulated import write_simulated_tokens

    # Not read_config(): it imports pydantic, which a bare GPU image does not have.
    config = JobSettings(read_yaml(options.configuration), str(options.configuration))
    benchmarks = JobSettings(config["benchmarks"], config.source)
    benchmark = benchmarks.section("training", TrainingBenchmark)
    longest = max(model["context"] for model in config["models"].values()) - 1  # without <cls>
    write_simulated_tokens(options.output, benchmark, options.cells, longest, config["seed"])
