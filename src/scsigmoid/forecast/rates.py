"""The measured speeds and sizes that a forecast rests on (``rates.yaml``)."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from math import exp
from statistics import NormalDist
from typing import Any

import yaml

from scsigmoid.config.schema import Size

QUANTILES = 500


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
        """Evenly spaced quantiles, cut at ``longest``: means over them are means over cells."""
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
        machine: in words.
        measured: when and how, in words.
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
