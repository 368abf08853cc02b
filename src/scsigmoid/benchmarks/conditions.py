"""The settings of a group of the training benchmark."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from scsigmoid.benchmarks.rows import TrainingGroup
from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.config.schema import Training, TrainingBenchmark
from scsigmoid.model.batches import Batch
from scsigmoid.model.sizes import EncoderSettings

#: Settings of ``training`` that the computation of a step depends on.
STEP_SETTINGS = (
    "weight_decay", "betas", "epsilon", "gradient", "clipping", "mask_fraction", "mask_replacement",
)  # fmt: skip


@dataclass(frozen=True)
class Conditions:
    """Settings that all variants of a group share.

    Attributes:
        encoder: settings of the encoder. Each variant replaces attention and backend.
        settings: settings of the benchmark.
        training: settings of the optimizer and of masking, with a learning rate of 0.
        seed: seed of weights, cells, masks and dropout.
    """

    group: TrainingGroup
    encoder: EncoderSettings
    settings: TrainingBenchmark
    training: Training
    seed: int
    device: torch.device

    def batches(self, cells: int | None = None) -> Iterator[Batch]:
        """Yield packed batches of ``cells`` cells (default: the group's), the same in each call."""
        cells = cells or self.group.cells
        return simulated_batches(self.settings, self.group.context, cells, self.training, self.seed)
