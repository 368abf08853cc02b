"""Estimate hours and memory of training from measured rates (``rates.yaml``) and operations."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import ceil, exp, inf, log
from statistics import NormalDist
from typing import Any

import yaml

from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config, Size
from scsigmoid.model.sizes import EncoderSettings, count_flops, count_parameters

QUANTILES = 500  # number of lengths that represent a distribution
# Bytes per parameter. A checkpoint contains weights and two moments in float32, a model weights.
# Training also has gradients in memory.
CHECKPOINT_BYTES, MODEL_BYTES, TRAINING_BYTES = 12, 4, 16


@dataclass(frozen=True)
class Lengths:
    """A log-normal distribution of the number of genes per cell."""

    median: float
    sigma: float  # standard deviation of the logarithm

    def sample(self, longest: float = float("inf")) -> list[float]:
        """Return quantiles at evenly spaced probabilities, each at most ``longest``."""
        normal = NormalDist()
        probabilities = ((index + 0.5) / QUANTILES for index in range(QUANTILES))
        lengths = (self.median * exp(self.sigma * normal.inv_cdf(p)) for p in probabilities)
        return [min(length, longest) for length in lengths]

    def mean(self) -> float:
        return sum(self.sample()) / QUANTILES


@cache
def rates() -> dict[str, Any]:
    """Return the content of ``rates.yaml``."""
    text = files("scsigmoid.forecast").joinpath("rates.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def lengths_of(config: Config) -> Lengths:
    """Return the distribution of lengths in ``benchmarks.training``, assumed for training cells."""
    benchmark = config.benchmarks.training
    return Lengths(benchmark.median_length, benchmark.sigma_length)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The cost of training one model.

    Attributes:
        model: name of the model or run.
        parameters: number of parameters.
        steps: number of training steps.
        hours: on one device, by the name of the machine whose measured rate the estimate uses.
        wall_hours: on the configured GPUs of all nodes, by machine.
        embedding_rate: cells per second of a forward pass on one device, by machine.
        disk_bytes: size of checkpoints, snapshots and final model.
        memory_bytes: GPU memory of a training process.
    """

    model: str
    parameters: int
    steps: int
    hours: dict[str, float]
    wall_hours: dict[str, float]
    embedding_rate: dict[str, float]
    disk_bytes: int
    memory_bytes: float


def estimate_effort(plan: Plan, name: str, vocabulary: int) -> Effort:
    """Return the cost of training ``name``, which is a model or a run of a study.

    For each machine, the estimate uses the rate of the measured model with the nearest number of
    operations per cell. Changes to attention (``architecture.variants``) are ignored.
    ``vocabulary`` is the number of tokens.
    """
    config, run = plan.config, plan.run_config(name)
    training, size = run.training, run.size_of(name)
    attention, context = run.models[name].attention, run.models[name].context
    encoder = EncoderSettings.of(size, config.architecture, attention, context, vocabulary)
    operations = mean_operations(encoder, lengths_of(config), training.mask_fraction)
    parameters = count_parameters(encoder)
    hours: dict[str, float] = {}
    wall_hours: dict[str, float] = {}
    embedding_rate: dict[str, float] = {}
    device = "cuda" if config.device == "auto" else config.device
    nearest: dict[str, float] = {}  # by machine: absolute logarithm of the ratio of operations
    for entry in rates()["training"]:
        if entry["device"] != device:
            continue
        machine, shortest = entry["machine"], entry["shortest_step"]
        measured_size, measured_lengths = Size(**entry["size"]), Lengths(**entry["lengths"])
        for measured_context, rate in entry["cells_per_second"][attention].items():
            measured = EncoderSettings.of(
                measured_size, config.architecture, attention, measured_context, entry["vocabulary"]
            )
            ratio = operations / mean_operations(measured, measured_lengths, training.mask_fraction)
            if abs(log(ratio)) >= nearest.get(machine, inf):
                continue
            nearest[machine] = abs(log(ratio))
            cells_per_second = rate / ratio
            compute = training.global_batch / cells_per_second
            for times, gpus in ((hours, 1), (wall_hours, count_gpus(config))):
                seconds = step_seconds(compute, gpus, shortest, parameters)
                times[machine] = training.steps * seconds / 3600
            # The backward pass has twice the operations of the forward pass.
            embedding_rate[machine] = 3 * cells_per_second
    execution = training.execution
    checkpoints, models = execution.keep_checkpoints, 1 + len(training.snapshot_suffixes)
    cells = ceil(training.global_batch / count_gpus(config))
    tokens = min(execution.micro_batch_tokens, cells * context)
    activations = rates()["memory_bytes"] * tokens * size.layers * size.hidden
    return Effort(
        model=name,
        parameters=parameters,
        steps=training.steps,
        hours=hours,
        wall_hours=wall_hours,
        embedding_rate=embedding_rate,
        disk_bytes=parameters * (CHECKPOINT_BYTES * checkpoints + MODEL_BYTES * models),
        memory_bytes=parameters * TRAINING_BYTES + activations,
    )


def count_gpus(config: Config) -> int:
    """Return the number of GPUs that train a model together, or 1 for the device ``cpu``."""
    return 1 if config.device == "cpu" else config.gpus * config.nodes


def step_seconds(compute: float, gpus: int, shortest: float, parameters: float) -> float:
    """Return the seconds of a training step on a number of GPUs.

    Args:
        compute: seconds of the step on one GPU.
        gpus: number of GPUs that divide the cells of the step.
        shortest: lower bound in seconds, for any number of GPUs.
        parameters: number of parameters, to which the loss of several GPUs is proportional.
    """
    measured = rates()["several_gpus"]
    loss = measured["loss"] * parameters / measured["parameters"] if gpus > 1 else 0.0
    return float(max(shortest, compute / gpus + loss))


def mean_operations(settings: EncoderSettings, lengths: Lengths, mask_fraction: float) -> float:
    """Return the mean number of operations per cell in forward and backward pass."""
    cell_lengths = [round(length) for length in lengths.sample(settings.context)]
    masked = round(mask_fraction * sum(cell_lengths))
    return count_flops(settings, cell_lengths, masked) / len(cell_lengths)
