"""Read ``reported.yaml``, which contains the numbers and settings of the paper."""

import functools
from importlib.resources import files
from typing import Any

import yaml


@functools.cache
def reported() -> dict[str, Any]:
    """Return the content of the file, by table or kind of number. It is read once."""
    text = files("scsigmoid.paper").joinpath("reported.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def cell_types(pair: str) -> frozenset[str]:
    """Return the two cell types of a pair such as ``"Immune vs Neural"``, in lower case."""
    return frozenset(part.strip().lower() for part in pair.split(" vs "))
