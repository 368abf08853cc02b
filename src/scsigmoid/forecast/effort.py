"""Hours of training: the nearest rate in ``rates.yaml``, scaled by counted operations."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp, log
from statistics import NormalDist
from typing import Any

import yaml

from scsigmoid.config.check import model_training
from scsigmoid.config.schema import Config, Model, Size, Training
from scsigmoid.config.study import study_runs
from scsigmoid.model.sizes import EncoderSettings, count_flops, count_parameters

QUANTILES = 500
# Bytes per parameter, in float32: weights and two moments in a checkpoint, weights in a model.
CHECKPOINT_BYTES, MODEL_BYTES = 12, 4


@dataclass(frozen=True)
class Lengths:
    """A log-normal distribution of the number of genes that a cell expresses.

    Attributes:
        median: median number of genes.
        sigma: standard deviation of the logarithm.
    """

    median: float
    sigma: float

    def sample(self, longest: float = float("inf")) -> list[float]:
        """Return evenly spaced quantiles, cut at ``longest``."""
        normal = NormalDist()
        places = ((index + 0.5) / QUANTILES for index in range(QUANTILES))
        return [
            min(self.median * exp(self.sigma * normal.inv_cdf(place)), longest) for place in places
        ]

    def mean(self, longest: float = float("inf")) -> float:
        """Return the mean length of cells that are cut at ``longest``."""
        return sum(self.sample(longest)) / QUANTILES


@cache
def rates() -> dict[str, Any]:
    """Return the content of ``rates.yaml``."""
    text = files("scsigmoid.forecast").joinpath("rates.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def lengths_of(config: Config) -> Lengths:
    """Return the lengths that the cells of a configuration are assumed to have."""
    benchmark = config.benchmarks.training
    return Lengths(benchmark.median_length, benchmark.sigma_length)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The cost of training one model.

    Attributes:
        model: name of the model.
        parameters: number of parameters of the encoder.
        hours: training time on one device.
        device: the device in words.
        bytes: size of its checkpoints and models.
    """

    model: str
    parameters: int
    hours: float
    device: str
    bytes: int


def efforts(config: Config, vocabulary: int) -> list[Effort]:
    """Return the cost of every model. ``vocabulary`` is the number of tokens."""
    return [
        effort(config, name, model, config.size_of(name), model_training(config, name), vocabulary)
        for name, model in config.models.items()
    ]


def study_efforts(config: Config, vocabulary: int) -> list[Effort]:
    """Return the cost of every run of the study."""
    return [
        effort(config, name, run.model, config.sizes[run.size], run.training, vocabulary)
        for name, run in study_runs(config).items()
    ]


def effort(
    config: Config, name: str, model: Model, size: Size, training: Training, vocabulary: int
) -> Effort:
    """Return the cost of one model. Variants of attention are not counted."""
    architecture, kind = config.architecture, model.attention
    encoder = EncoderSettings.of(size, architecture, kind, model.context, vocabulary)
    work = work_of(encoder, lengths_of(config), training.mask_fraction)
    candidates = []  # (difference from the measured work, seconds per cell, device)
    for entry in rates()["training"]:
        if config.device not in ("auto", entry["device"]):
            continue
        for context, rate in entry["cells_per_second"][kind].items():
            measured = EncoderSettings.of(
                Size(**entry["size"]), architecture, kind, context, entry["vocabulary"]
            )
            scale = work / work_of(measured, Lengths(**entry["lengths"]), training.mask_fraction)
            candidates.append((abs(log(scale)), scale / rate, entry["machine"]))
    _, seconds, device = min(candidates)
    parameters = count_parameters(encoder)
    return Effort(
        model=name,
        parameters=parameters,
        hours=training.steps * training.global_batch * seconds / 3600,
        device=device,
        bytes=parameters
        * (CHECKPOINT_BYTES * training.keep_checkpoints + MODEL_BYTES * (1 + len(training.kept))),
    )


def work_of(settings: EncoderSettings, lengths: Lengths, mask_fraction: float) -> float:
    """Return the mean number of operations of a cell's forward and backward pass."""
    cells = [round(length) for length in lengths.sample(settings.context)]
    return count_flops(settings, cells, round(mask_fraction * sum(cells))) / len(cells)
