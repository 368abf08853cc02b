"""Read ``reported.yaml``, which contains the numbers and settings of the paper."""

import functools
from importlib.resources import files
from typing import Any

import yaml

from scsigmoid.config.schema import Config
from scsigmoid.model.sizes import EncoderSettings, count_parameters
from scsigmoid.results.labels import four_digits

#: Largest relative difference of the number of parameters from the size in a name such as ``160M``.
SIZE_TOLERANCE = 0.15


@functools.cache
def reported() -> dict[str, Any]:
    """Return the content of the file, by table or kind of number. It is read once."""
    text = files("scsigmoid.paper").joinpath("reported.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def models_in_paper(config: Config) -> dict[str, str]:
    """Return the paper's names of the configured models that are in the paper, by their name here.

    Models are compared by attention and context. If several are alike, the model with the paper's
    name counts, or else the first.
    """
    names = {}
    for paper_name, paper in reported()["models"].items():
        alike = [
            name
            for name, model in config.models.items()
            if (model.attention, model.context) == (paper["attention"], paper["context"])
        ]
        if alike:
            names[paper_name if paper_name in alike else alike[0]] = paper_name
    return names


def models_here(config: Config) -> dict[str, str]:
    """Return the configured models that are in the paper, by the paper's names."""
    return {paper_name: name for name, paper_name in models_in_paper(config).items()}


def timed_sizes(config: Config) -> list[str]:
    """Return the sizes of the training benchmark: the paper's names, or ours for other sizes."""
    benchmark = config.benchmarks.training
    names = []
    for name in benchmark.sizes:
        encoder = EncoderSettings.of(
            config.sizes[name],
            config.architecture,
            "sigmoid",
            max(benchmark.contexts),
            benchmark.vocabulary,
        )
        paper_name = size_in_paper(count_parameters(encoder))
        if not paper_name and name in reported()["settings"]["cost"]["benchmarks.training.sizes"]:
            name = f"{name} with {four_digits(count_parameters(encoder) / 1e6)}M parameters"
        names.append(paper_name or name)
    return names


def size_in_paper(parameters: int) -> str:
    """Return the paper's size with this number of parameters, e.g. ``160M``, or ""."""
    for size in reported()["settings"]["cost"]["benchmarks.training.sizes"]:
        number, unit = float(size[:-1]), {"M": 1e6, "B": 1e9}[size[-1]]
        if abs(parameters / (number * unit) - 1) <= SIZE_TOLERANCE:
            return str(size)
    return ""


def cell_types(pair: str) -> frozenset[str]:
    """Return the two cell types of a pair such as ``"Immune vs Neural"``, in lower case."""
    return frozenset(part.strip().lower() for part in pair.split(" vs "))
