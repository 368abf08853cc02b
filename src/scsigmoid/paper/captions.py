"""One caption for each figure and table, read from ``captions.yaml``."""

import functools
from importlib.resources import files

import yaml


@functools.cache
def captions() -> dict[str, dict[str, str]]:
    """All captions: ``figures`` and ``tables``, by name."""
    text = files("scsigmoid.paper").joinpath("captions.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = yaml.safe_load(text)
    return found


def caption(kind: str, name: str) -> str:
    """The caption of one figure or table.

    Args:
        kind: ``figures`` or ``tables``.
        name: e.g. ``loss`` or ``umap_heart_oft``.
    """
    known = captions()[kind]
    return known[name] if name in known else known[name.split("_")[0]]
