"""How long training takes: the nearest rate in ``rates.yaml``, scaled by counted operations."""

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
# What a checkpoint and the trained model hold for each parameter, float32: weights and two moments.
CHECKPOINT_BYTES, MODEL_BYTES = 12, 4
NEAR = 1.05  # work that differs by less counts as the measured work


@dataclass(frozen=True)
class Lengths:
    """A log-normal distribution of the number of genes that cells express.

    Attributes:
        median: of the distribution.
        sigma: of its logarithm.
    """

    median: float
    sigma: float

    def sample(self, longest: float = float("inf")) -> list[float]:
        """Evenly spaced quantiles, cut at ``longest``; their mean is the cells'."""
        normal = NormalDist()
        places = ((index + 0.5) / QUANTILES for index in range(QUANTILES))
        return [
            min(self.median * exp(self.sigma * normal.inv_cdf(place)), longest) for place in places
        ]

    def mean(self, longest: float = float("inf")) -> float:
        """Mean length of cells that are cut at ``longest``."""
        return sum(self.sample(longest)) / QUANTILES


@dataclass(frozen=True, kw_only=True)
class TrainingRate:
    """A measured training rate.

    Attributes:
        machine: its name.
        measured: when and how.
        size: of the encoder.
        vocabulary: tokens.
        lengths: of the cells, before they are cut.
        attention: ``sigmoid`` or ``softmax``.
        context: longest sequence, in tokens.
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


@cache
def rates() -> dict[str, Any]:
    """The content of ``rates.yaml``."""
    text = files("scsigmoid.forecast").joinpath("rates.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def training_rates() -> Iterator[TrainingRate]:
    """All measured training rates."""
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
    """The lengths that cells of this configuration are assumed to have (Fig. 1, or simulated)."""
    throughput = config.benchmarks.throughput
    return Lengths(throughput.median_length, throughput.sigma_length)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The cost of training one model.

    Attributes:
        model: its name.
        parameters: of the encoder.
        steps: of training.
        hours: on one device.
        rate: what the hours are scaled from.
        scale: counted work of a cell over that of the measured rate.
        bytes: of its checkpoints and weights.
    """

    model: str
    parameters: int
    steps: int
    hours: float
    rate: TrainingRate
    scale: float
    bytes: int

    @property
    def measured(self) -> bool:
        """Whether the rate was measured for this very work."""
        return 1 / NEAR < self.scale < NEAR


def efforts(config: Config, vocabulary: int) -> list[Effort]:
    """The cost of every model of a configuration, with so many tokens."""
    size = config.sizes[config.architecture.size]
    return [
        effort(config, name, model, size, model_training(config, name), vocabulary)
        for name, model in config.models.items()
    ]


def study_efforts(config: Config, vocabulary: int) -> list[Effort]:
    """The cost of every run of its study."""
    return [
        effort(config, name, run.model, config.sizes[run.size], run.training, vocabulary)
        for name, run in study_runs(config).items()
    ]


def effort(
    config: Config, name: str, model: Model, size: Size, training: Training, vocabulary: int
) -> Effort:
    """The cost of one model; variants of attention count as none."""
    lengths, architecture, kind = lengths_of(config), config.architecture, model.attention
    encoder = EncoderSettings.of(size, architecture, kind, model.context, vocabulary)
    work = work_of(encoder, lengths, training.mask_fraction)
    scales = {}
    for rate in training_rates():
        if rate.attention == kind:
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
    """Mean counted operations of a cell's forward and backward pass."""
    cells = [round(length) for length in lengths.sample(settings.context)]
    return count_flops(settings, cells, round(mask_fraction * sum(cells))) / len(cells)
