"""What the paper reports, read from ``reported.yaml``."""

import functools
from importlib.resources import files
from typing import Any

import yaml

Reported = dict[str, Any]


@functools.cache
def reported() -> Reported:
    """Return the paper's tables and other numbers as plain data."""
    text = files("scsigmoid.paper").joinpath("reported.yaml").read_text(encoding="utf-8")
    values: Reported = yaml.safe_load(text)
    return values
