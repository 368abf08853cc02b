"""What the paper reports, read from ``reported.yaml`` and given types."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any

import yaml

from scsigmoid.paper.labels import context_label, nominal, provider_label


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
    make = ITEMS.get(entry["each"])
    for item in make(data) if make else data[entry["each"]]:
        words = item | described(item, data)
        own = {
            key: value.format(**words) if isinstance(value, str) else value
            for key, value in entry.items()
        }
        named = {key: item[key] for key in ("value", "models", "datasets") if key in item}
        of = {key: item[key] for key in entry.get("of", ())}
        yield as_claim(own | {"of": of} | named, data)


def described(item: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """What else fills the braces, by what an item names."""
    words: dict[str, Any] = {}
    if "dataset" in item:
        words["title"] = data["datasets"][item["dataset"]]["title"]
    if "provider" in item:
        words["label"] = provider_label(item["provider"])
        # Ours may be faster than the paper's; a baseline should be as fast as it was there.
        own = item["provider"] == "triton_sigmoid"
        words |= {"peak_rule": "at_least" if own else "within", "tolerance": 0.05 if own else 0.15}
    if "context" in item:
        context = item["context"]
        named = isinstance(context, str)
        words["context_label"] = context.upper() if named else context_label(context)
    if "padding" in item:
        words["percent"] = f"{item['padding'] * 100:.0f}"
    return words


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


# The items of ``each`` that are no rows of a table as it stands.


def datasets(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """tab:eval_datasets."""
    for name, row in data["datasets"].items():
        yield {"dataset": name, "value": row["cells"], "datasets": [name]}


def validation_loss(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of tab:validation_loss_detailed."""
    for dataset, row in data["validation_loss"].items():
        for model, (mean, _) in row.items():
            label = f"{data['models'][model]['attention'].capitalize()} {nominal(model)}"
            yield {
                "dataset": dataset, "model": model, "label": label, "value": mean,
                "models": [model], "datasets": [dataset],
            }  # fmt: skip


def validation_differences(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Sigmoid minus softmax for each row and context of tab:validation_loss_detailed."""
    for dataset, row in data["validation_loss"].items():
        for item in data["contexts"]:
            first, second = item["models"]
            difference = round(row[first][0] - row[second][0], 6)
            yield item | {
                "dataset": dataset, "first": first, "second": second, "value": difference,
                "datasets": [dataset],
            }  # fmt: skip


def mmd(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of tab:mmd_heart_oft."""
    for row in data["mmd"]["heart_oft"]:
        pair, sigmoid, softmax = row["pair"], row["sigmoid"][0], row["softmax"][0]
        yield {
            "pair": pair, "slug": pair.lower().replace(" ", "_"), "sigmoid": sigmoid,
            "softmax": softmax, "value": round(sigmoid / softmax, 4),
        }  # fmt: skip


def tflops(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The peak TFLOPS: ours must reach them, a baseline must be met."""
    for provider, row in data["tflops"].items():
        for direction in () if provider == "shape" else ("forward", "backward"):
            place = "sec:kernel"
            if direction == "forward" and provider in data["printed"]["headlines"]:
                place = "sec:introduction, sec:kernel"
            if direction == "forward" and provider == "triton_sigmoid":
                place = f"abstract, {place}, conclusion"
            yield {
                "provider": provider, "pass": direction, "value": row[direction], "place": place,
            }  # fmt: skip


def peak_gains(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """TritonSigmoid's peak forward TFLOPS over those of the others."""
    own = data["tflops"]["triton_sigmoid"]["forward"]
    for gain in data["printed"]["peak_gains"]:
        other = data["tflops"][gain["provider"]]["forward"]
        yield {"provider": gain["provider"], "value": round(own / other, 4)}


def speed_ups(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Average speed-ups over standard PyTorch attention."""
    for row in data["speed_ups"]:
        ends = row.get("range")
        words = f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else ""
        yield row | {"range_text": words, "value": row["mean"]}


def speed_up_ends(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The two ends of each range of speed-ups."""
    for row in data["speed_ups"]:
        for end, value in zip(("lowest", "highest"), row.get("range", ()), strict=False):
            yield row | {"end": end, "value": value}


def mean_rates(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Mean TFLOPS without and with padding."""
    for row in data["padding_overhead"]:
        for form in ("unpadded", "padded"):
            yield row | {"form": form, "padded": form == "padded", "value": row[form]}


def gpu_hours_of_each(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """GPU-hours of each attention."""
    for row in data["gpu_hours"]:
        for attention in ("sigmoid", "softmax"):
            yield row | {"attention": attention, "value": row[attention]}


#: By the name that ``each`` gives; of any other name the items are the rows of that table.
ITEMS = {
    function.__name__: function
    for function in (
        datasets, validation_loss, validation_differences, mmd, tflops, peak_gains, speed_ups,
        speed_up_ends, mean_rates, gpu_hours_of_each,
    )
}  # fmt: skip
