"""Hours of training: the nearest rate in ``rates.yaml``, scaled by counted operations."""

from collections.abc import Iterator
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
NEAR = 1.05  # work within this factor counts as measured


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


@dataclass(frozen=True, kw_only=True)
class TrainingRate:
    """A measured training rate.

    Attributes:
        machine: device and its number.
        measured: date and method.
        size: dimensions of the encoder.
        vocabulary: number of tokens.
        lengths: lengths of the cells before they are cut.
        attention: ``sigmoid`` or ``softmax``.
        context: longest sequence in tokens.
        cells_per_second: the rate.
    """

    machine: str
    measured: str
    size: Size
    vocabulary: int
    lengths: Lengths
    attention: str
    context: int
    cells_per_second: float

    @property
    def device(self) -> str:
        """The kind of device in words."""
        return "an H200" if "H200" in self.machine else "a core"

    def is_on(self, device: str) -> bool:
        """Return whether the rate is of a configured device. ``auto`` may be any."""
        return device == "auto" or (device == "cpu") == (self.device == "a core")


@cache
def rates() -> dict[str, Any]:
    """Return the content of ``rates.yaml``."""
    text = files("scsigmoid.forecast").joinpath("rates.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def training_rates() -> Iterator[TrainingRate]:
    """Yield all measured training rates."""
    for entry in rates()["training"]:
        for attention, contexts in entry["cells_per_second"].items():
            for context, value in contexts.items():
                yield TrainingRate(
                    machine=entry["machine"],
                    measured=entry["measured"],
                    size=Size(**entry["size"]),
                    vocabulary=entry["vocabulary"],
                    lengths=Lengths(**entry["lengths"]),
                    attention=attention,
                    context=context,
                    cells_per_second=value,
                )


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
        steps: number of optimizer steps.
        hours: training time on one device.
        rate: the measured rate that the hours are scaled from.
        scale: counted operations of a cell, relative to those of the measured rate.
        bytes: size of its checkpoints and models.
    """

    model: str
    parameters: int
    steps: int
    hours: float
    rate: TrainingRate
    scale: float
    bytes: int

    def evaluation_hours(self, cells: int, trials: int) -> float:
        """Return the time of embeddings and validation losses, which are forward passes."""
        return cells * (1 + trials) / 3 * self.scale / self.rate.cells_per_second / 3600

    @property
    def measured(self) -> bool:
        """Whether the rate was measured with this amount of work."""
        return 1 / NEAR < self.scale < NEAR


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
    lengths, architecture, kind = lengths_of(config), config.architecture, model.attention
    encoder = EncoderSettings.of(size, architecture, kind, model.context, vocabulary)
    work = work_of(encoder, lengths, training.mask_fraction)
    scales = {}
    for rate in training_rates():
        if rate.attention == kind and rate.is_on(config.device):
            measured = EncoderSettings.of(
                rate.size, architecture, kind, rate.context, rate.vocabulary
            )
            scales[rate] = work / work_of(measured, rate.lengths, training.mask_fraction)
    nearest = min(scales, key=lambda rate: abs(log(scales[rate])))
    parameters = count_parameters(encoder)
    return Effort(
        model=name,
        parameters=parameters,
        steps=training.steps,
        hours=training.steps
        * training.global_batch
        * scales[nearest]
        / nearest.cells_per_second
        / 3600,
        rate=nearest,
        scale=scales[nearest],
        bytes=parameters
        * (CHECKPOINT_BYTES * training.keep_checkpoints + MODEL_BYTES * (1 + len(training.kept))),
    )


def work_of(settings: EncoderSettings, lengths: Lengths, mask_fraction: float) -> float:
    """Return the mean number of operations of a cell's forward and backward pass."""
    cells = [round(length) for length in lengths.sample(settings.context)]
    return count_flops(settings, cells, round(mask_fraction * sum(cells))) / len(cells)
