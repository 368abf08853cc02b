"""How long training takes: the nearest measured rate, scaled by counted operations."""

from dataclasses import dataclass
from math import log

from scsigmoid.config.check import model_training
from scsigmoid.config.schema import Architecture, Config, Size
from scsigmoid.forecast.rates import Lengths, TrainingRate, training_rates
from scsigmoid.forecast.volume import lengths_of
from scsigmoid.model.parameters import count_flops, count_parameters
from scsigmoid.model.sizes import EncoderSettings

# What a checkpoint and the trained model hold for each parameter, float32: weights and two moments.
CHECKPOINT_BYTES, MODEL_BYTES = 12, 4
NEAR = 1.05  # work that differs by less counts as the measured work


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The cost of training one model.

    Attributes:
        model: its name.
        parameters: of the encoder.
        hours: on one device.
        rate: what the hours are scaled from.
        scale: counted work of a cell over that of the measured rate.
        bytes: of its checkpoints and weights.
    """

    model: str
    parameters: int
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
    found = []
    lengths = lengths_of(config)
    size = config.sizes[config.architecture.size]
    for name, model in config.models.items():
        training = model_training(config, name)
        encoder = settings_of(size, config.architecture, model.attention, model.context, vocabulary)
        work = work_of(encoder, lengths, training.mask_fraction)
        scales = {
            rate: work
            / work_of(
                settings_of(
                    rate.size, config.architecture, rate.attention, rate.context, rate.vocabulary
                ),
                rate.lengths,
                training.mask_fraction,
            )
            for rate in training_rates()
            if rate.attention == model.attention
        }
        nearest = min(scales, key=lambda rate: abs(log(scales[rate])))
        cells = training.steps * training.global_batch
        parameters = count_parameters(encoder).total
        found.append(
            Effort(
                model=name,
                parameters=parameters,
                hours=cells * scales[nearest] / nearest.cells_per_second / 3600,
                rate=nearest,
                scale=scales[nearest],
                bytes=parameters * (CHECKPOINT_BYTES * training.keep_checkpoints + MODEL_BYTES),
            )
        )
    return found


def settings_of(
    size: Size, architecture: Architecture, attention: str, context: int, vocabulary: int
) -> EncoderSettings:
    """The encoder whose work is counted."""
    return EncoderSettings.of(size, architecture, attention, context, vocabulary)


def work_of(settings: EncoderSettings, lengths: Lengths, mask_fraction: float) -> float:
    """Mean counted operations of a cell's forward and backward pass."""
    cells = [round(length) for length in lengths.sample(settings.context)]
    return count_flops(settings, cells, round(mask_fraction * sum(cells))) / len(cells)
