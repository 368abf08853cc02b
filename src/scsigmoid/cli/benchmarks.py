"""Subcommands that time parts of the experiment."""

import argparse
from typing import Any

from scsigmoid.cli.arguments import number, stage
from scsigmoid.config.check import built, from_yaml
from scsigmoid.config.schema import (
    Architecture,
    KernelBenchmark,
    Size,
    ThroughputBenchmark,
    Training,
    TrainingBenchmark,
)
from scsigmoid.errors import UserError


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
        {name: built(Size, values) for name, values in settings["sizes"].items()},
        built(Architecture, settings["architecture"]),
        built(Training, settings["training"]),
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
    run_training_benchmark(
        benchmark,
        built(Size, settings["sizes"][benchmark.size]),
        built(Architecture, settings["architecture"]),
        built(Training, settings["training"]),
        settings["seed"],
        settings["device"],
        options.output,
        options.machine,
    )


def model_of(config: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The entry of ``--model`` in the configuration."""
    if options.model not in config["models"]:
        raise UserError(f"--model {options.model}: not among models of {options.configuration}")
    model: dict[str, Any] = config["models"][options.model]
    return model


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


@stage("--model --configuration --processes --steps --device --output --machine")
def benchmark_scaling(options: argparse.Namespace) -> None:
    """Time training on several processes."""
    from scsigmoid.benchmarks.scaling import run_scaling_benchmark

    config = from_yaml(options.configuration)
    model = model_of(config, options)
    try:
        counts = [int(count) for count in options.processes.split(",")]
    except ValueError:
        raise UserError(
            f"--processes {options.processes}: expected numbers with commas, as in 1,2"
        ) from None
    settings = {
        "attention": model["attention"],
        "context": model["context"],
        "cls_token": config["tokens"]["cls"],
        "backend": model.get("backend", "auto"),
        "size": config["sizes"][config["architecture"]["size"]],
        "architecture": config["architecture"],
        "training": config["training"] | model.get("training", {}),
        "seed": config["seed"],
        "device": options.device,
    }
    lengths = built(ThroughputBenchmark, config["benchmarks"]["throughput"])
    run_scaling_benchmark(
        options.model, settings, lengths, counts, options.steps, options.output, options.machine
    )


@stage("--checkout --include* --nvcc? --output")
def build_flash_sigmoid(options: argparse.Namespace) -> None:
    """Compile FlashSigmoid's kernels, to time them."""
    from scsigmoid.benchmarks.flash_sigmoid import build

    build(options.checkout, options.include or [], options.nvcc or "nvcc", options.output)
