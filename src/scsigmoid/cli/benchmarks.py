"""Subcommands that time parts of the experiment."""

import math
from typing import Annotated

from scsigmoid.cli.arguments import Configuration, Machine, Output, Seconds, stage


@stage
def benchmark_kernel(
    configuration: Configuration, output: Output, machine: Machine, seconds: Seconds = math.inf
) -> None:
    """Time the attention kernels."""
    from scsigmoid.benchmarks.kernel import run_kernel_benchmark

    config = configuration.config
    run_kernel_benchmark(config.benchmarks.kernel, config.device, output, machine, seconds)


@stage
def benchmark_training(
    configuration: Configuration, output: Output, machine: Machine, seconds: Seconds = math.inf
) -> None:
    """Time training with each attention kernel."""
    from scsigmoid.benchmarks.training import run_training_benchmark

    config = configuration.config
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


@stage
def simulate_tokens(
    configuration: Configuration, output: Output, cells: Annotated[int, "number of cells"] = 30_000
) -> None:
    """Write simulated cells, ready for training."""
    from scsigmoid.benchmarks.simulated import write_simulated_tokens

    config = configuration.config
    longest = max(model.context for model in config.models.values()) - 1  # without <cls>
    write_simulated_tokens(output, config.benchmarks.training, cells, longest, config.seed)
