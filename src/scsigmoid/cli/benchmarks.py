"""Subcommands that time parts of the experiment."""

import math
from typing import Annotated

from scsigmoid.cli.arguments import Configuration, Machine, Output, Seconds, stage
from scsigmoid.config.schema import Device
from scsigmoid.progress import announce


@stage
def benchmark_kernel(
    configuration: Configuration, output: Output, machine: Machine, seconds: Seconds = math.inf
) -> None:
    """Time the attention kernels."""
    from scsigmoid.benchmarks.cases import groups
    from scsigmoid.benchmarks.kernel import run_kernel_benchmark

    config = configuration.config
    kernel = config.benchmarks.kernel
    shapes = f"{len(groups(kernel))} groups of shapes, {kernel.tokens:,} tokens each"
    announce_on_cpu(config.device, f"attention: {shapes}, hidden size {kernel.hidden:,}", "kernel")
    run_kernel_benchmark(config.benchmarks.kernel, config.device, output, machine, seconds)


@stage
def benchmark_training(
    configuration: Configuration, output: Output, machine: Machine, seconds: Seconds = math.inf
) -> None:
    """Time training with each attention kernel."""
    from scsigmoid.benchmarks.training import run_training_benchmark

    config = configuration.config
    training = config.benchmarks.training
    shapes = f"sizes {', '.join(training.sizes)}, contexts {', '.join(map(str, training.contexts))}"
    announce_on_cpu(config.device, f"training steps: {shapes}", "training")
    run_training_benchmark(
        config.benchmarks.training,
        config.sizes,
        config.architecture,
        config.training,
        config.seed,
        config.device,
        output,
        machine,
        seconds,
    )


def announce_on_cpu(device: Device, work: str, section: str) -> None:
    """Print what is timed if it runs on a CPU, where the paper's sizes take hours."""
    import torch

    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        announce(f"on the CPU, {work}; smaller values of benchmarks.{section} take less time")


@stage
def simulate_tokens(
    configuration: Configuration, output: Output, cells: Annotated[int, "number of cells"] = 30_000
) -> None:
    """Write simulated cells, ready for training."""
    from scsigmoid.benchmarks.simulated import write_simulated_tokens

    config = configuration.config
    longest = max(model.context for model in config.models.values()) - 1  # without <cls>
    write_simulated_tokens(output, config.benchmarks.training, cells, longest, config.seed)
