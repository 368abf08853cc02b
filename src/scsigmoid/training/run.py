"""What one training run is."""

import json
from dataclasses import asdict, dataclass

from scsigmoid.config.schema import Architecture, Size, Training
from scsigmoid.model.sizes import EncoderSettings

# Settings of ``training`` that change how a run is carried out, not which model it makes: they may
# differ when it is resumed.
PRACTICAL = (
    "steps",
    "micro_batch_tokens",
    "log_every",
    "validate_every",
    "checkpoint_every",
    "keep_checkpoints",
    "threads",
    "workers",
    "deterministic",
)


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """All settings of one model's training: ``Plan.setting("models.<name>")`` and the name.

    Attributes:
        model: the model's name.
        attention: ``sigmoid`` or ``softmax``.
        context: longest sequence in tokens.
        cls_token: whether [CLS] is in front of a cell's genes; it takes a place of the context.
        backend: attention backend.
        size: dimensions of the encoder.
        architecture: what all encoders share.
        training: how it is trained.
        seed: the configuration's seed.
        device: ``auto``, ``cpu`` or ``cuda``.
    """

    model: str
    attention: str
    context: int
    cls_token: bool
    backend: str
    size: Size
    architecture: Architecture
    training: Training
    seed: int
    device: str

    def encoder_settings(self, vocabulary_size: int) -> EncoderSettings:
        """The encoder for a vocabulary of so many tokens."""
        return EncoderSettings.of(
            self.size,
            self.architecture,
            self.attention,
            self.context,
            vocabulary_size,
            self.backend,
            self.cls_token,
        )

    def identity(self, vocabulary: str, data: str) -> dict[str, str]:
        """Everything that determines the trained model, by name of the setting.

        Args:
            vocabulary: the vocabulary's fingerprint.
            data: the fingerprint of the training cells.
        """
        # The named size is spelled out by its dimensions.
        architecture = asdict(self.architecture)
        del architecture["size"]
        training = {k: v for k, v in asdict(self.training).items() if k not in PRACTICAL}
        settings = {
            "attention": self.attention,
            "context": self.context,
            **{f"size.{key}": value for key, value in asdict(self.size).items()},
            **{f"architecture.{key}": value for key, value in architecture.items()},
            **{f"training.{key}": value for key, value in training.items()},
            "seed": self.seed,
            "tokens.cls": self.cls_token,
        }
        return {
            **{key: json.dumps(value) for key, value in settings.items()},
            "vocabulary": vocabulary,
            "training cells": data,
        }
