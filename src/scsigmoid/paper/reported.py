"""What the paper reports, read from ``reported.yaml`` and given types."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any

import yaml

from scsigmoid.paper.reported_items import ITEMS


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One quantitative claim of the paper.

    Attributes:
        id: unique name.
        group: ``data``, ``quality``, ``stability``, ``kernel`` or ``training cost``.
        statement: the claim in our words.
        location: labels of the paper's source where it stands.
        value: the paper's value, or the two ends of a range.
        unit: of the value.
        measure: name of the function that computes our value (``scsigmoid.paper.claims``).
        of: what the measure is given.
        rule: how the two are compared (``claims.rules``).
        tolerance: relative, or in the value's unit for the rule ``points``.
        requires: what must hold before a verdict is possible (``claims.requirements``).
        models: models that the claim is about, by their names in the configuration.
        datasets: evaluation datasets that the claim is about.
        family: what it has in common with the claims that were made of the same entry; a heading.
    """

    id: str
    group: str
    statement: str
    location: str
    value: float | tuple[float, float]
    unit: str
    measure: str
    of: dict[str, Any] = field(default_factory=dict)
    rule: str
    tolerance: float = 0.0
    requires: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    family: str = ""


@dataclass(frozen=True)
class Reported:
    """The paper's tables as plain data, and its claims."""

    data: dict[str, Any]

    def __getitem__(self, table: str) -> Any:
        return self.data[table]

    @functools.cached_property
    def claims(self) -> list[Claim]:
        """Every claim, those of whole tables expanded."""
        return [claim for entry in self.data["claims"] for claim in expand(entry, self.data)]


@functools.cache
def reported() -> Reported:
    """Read ``reported.yaml``."""
    text = files("scsigmoid.paper").joinpath("reported.yaml").read_text(encoding="utf-8")
    return Reported(yaml.safe_load(text))


def expand(entry: dict[str, Any], data: dict[str, Any]) -> Iterator[Claim]:
    """The claims of one entry: one, or one for every item that ``each`` names."""
    if "each" not in entry:
        yield as_claim(entry, data)
        return
    for item in ITEMS[entry["each"]](data):
        own = {
            key: value.format(**item) if isinstance(value, str) else value
            for key, value in entry.items()
        }
        named = {key: item[key] for key in ("value", "models", "datasets") if key in item}
        of = {key: item[key] for key in item.get("give", ())}
        yield as_claim(own | {"of": of} | named, data)


def as_claim(values: dict[str, Any], data: dict[str, Any]) -> Claim:
    """A claim from plain values."""
    known = {f.name for f in fields(Claim)}
    given = {key: value for key, value in values.items() if key in known}
    value = given["value"]
    given["value"] = (float(value[0]), float(value[1])) if isinstance(value, list) else float(value)
    given["tolerance"] = float(given.get("tolerance", 0.0))
    if given.get("datasets") == "all":
        given["datasets"] = list(data["datasets"])
    for key in ("requires", "models", "datasets"):
        given[key] = tuple(given.get(key, ()))
    return Claim(**given)
