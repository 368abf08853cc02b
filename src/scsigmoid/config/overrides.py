"""Settings given as ``key=value`` on a command line, as Snakemake takes them."""

from collections.abc import Sequence
from typing import Any

import yaml

from scsigmoid.errors import UserError


def parsed(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings from ``key=value`` pairs; a value is YAML, e.g. ``corpus={source: embedded}``.

    Raises:
        UserError: for a pair that is none.
    """
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserError(f"--config: expected KEY=VALUE, found {pair!r}")
        try:
            settings[key] = yaml.safe_load(value)
        except (yaml.YAMLError, RecursionError):
            raise UserError(f"--config {key}: not valid YAML: {value!r}") from None
    return settings
