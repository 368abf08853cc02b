"""What the paper reports, read from ``reported.yaml`` and given types."""

import functools
from collections.abc import Callable, Iterator
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
    for item in ITEMS[entry["each"]](data):
        own = {
            key: value.format(**item) if isinstance(value, str) else value
            for key, value in entry.items()
        }
        named = {key: item[key] for key in ("value", "models", "datasets") if key in item}
        of = {key: item[key] for key in entry.get("of", ())}
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


# The items of ``each``: of every entry of a table what fills the braces of a claim.

Items = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]
ITEMS: dict[str, Items] = {}


def items(function: Items) -> Items:
    """Enter a function that makes items of the paper's tables under its own name."""
    ITEMS[function.__name__] = function
    return function


@items
def datasets(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """tab:eval_datasets."""
    for dataset, entry in data["datasets"].items():
        yield {
            "dataset": dataset,
            "title": entry["title"],
            "value": entry["cells"],
            "datasets": [dataset],
        }


@items
def validation_loss(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of tab:validation_loss_detailed."""
    for dataset, row in data["validation_loss"].items():
        for model, (mean, _) in row.items():
            yield {
                "dataset": dataset,
                "title": data["datasets"][dataset]["title"],
                "model": model,
                "label": f"{data['models'][model]['attention'].capitalize()} {nominal(model)}",
                "value": mean,
                "models": [model],
                "datasets": [dataset],
            }


@items
def validation_differences(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Sigmoid minus softmax for each row and context of tab:validation_loss_detailed."""
    for dataset, row in data["validation_loss"].items():
        for context in ("2k", "4k"):
            sigmoid, softmax = f"sigmoid_{context}", f"softmax_{context}"
            yield {
                "dataset": dataset,
                "title": data["datasets"][dataset]["title"],
                "context": context,
                "context_label": context.upper(),
                "first": sigmoid,
                "second": softmax,
                "value": round(row[sigmoid][0] - row[softmax][0], 6),
                "models": [sigmoid, softmax],
                "datasets": [dataset],
            }


@items
def contexts(_: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The two contexts of the compared models."""
    for context in ("2k", "4k"):
        yield {
            "context": context,
            "context_label": context.upper(),
            "models": [f"sigmoid_{context}", f"softmax_{context}"],
        }


@items
def mmd(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of tab:mmd_heart_oft."""
    for row in data["mmd"]["heart_oft"]:
        sigmoid, softmax = row["sigmoid"][0], row["softmax"][0]
        yield {
            "pair": row["pair"],
            "slug": row["pair"].lower().replace(" ", "_"),
            "sigmoid": sigmoid,
            "softmax": softmax,
            "value": round(sigmoid / softmax, 4),
        }


@items
def tflops(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The peak TFLOPS: ours must reach them, a baseline must be met."""
    for provider, row in data["tflops"].items():
        if provider == "shape":
            continue
        for direction, value in row.items():
            yield {
                "provider": provider,
                "label": provider_label(provider),
                "pass": direction,
                "value": value,
                "place": place(data, provider, direction),
                **peak_rule(provider),
            }


def place(data: dict[str, Any], provider: str, direction: str) -> str:
    """Where peak TFLOPS stand besides section 4."""
    if provider not in data["printed"]["headlines"] or direction != "forward":
        return "sec:kernel"
    if provider == "triton_sigmoid":
        return "abstract, sec:introduction, sec:kernel, conclusion"
    return "sec:introduction, sec:kernel"


def peak_rule(provider: str) -> dict[str, Any]:
    """Ours may be faster than the paper's; a baseline should be as fast as it was there."""
    if provider == "triton_sigmoid":
        return {"peak_rule": "at_least", "tolerance": 0.05}
    return {"peak_rule": "within", "tolerance": 0.15}


@items
def peak_gains(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """TritonSigmoid's peak forward TFLOPS over those of the others."""
    own = data["tflops"]["triton_sigmoid"]["forward"]
    for gain in data["printed"]["peak_gains"]:
        other = data["tflops"][gain["provider"]]["forward"]
        yield {
            "provider": gain["provider"],
            "label": provider_label(gain["provider"]),
            "value": round(own / other, 4),
        }


@items
def speed_ups(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Average speed-ups over standard PyTorch attention."""
    for row in data["speed_ups"]:
        low_high = row.get("range")
        yield {
            **row,
            "label": provider_label(row["provider"]),
            "padding_label": f"{row['padding']:.0%}".replace("%", "_padding"),
            "padding_text": f"{row['padding'] * 100:.0f} % padding",
            "range_text": f" ({low_high[0]:.2f} to {low_high[1]:.2f})" if low_high else "",
            "value": row["mean"],
            **peak_rule(row["provider"]),
        }


@items
def speed_up_ends(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The two ends of each range of speed-ups."""
    ranges = {row["mean"]: row["range"] for row in data["speed_ups"] if "range" in row}
    for item in speed_ups(data):
        for end, value in zip(("lowest", "highest"), ranges.get(item["value"], ()), strict=False):
            yield item | {"end": end, "value": value}


@items
def flash_variants(_: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The kernels that TritonSigmoid is compared with."""
    for provider in ("flash_attention_2", "flash_sigmoid"):
        yield {"provider": provider, "label": provider_label(provider)}


@items
def padded_gains(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """TritonSigmoid over FlashAttention-2 on padded sequences."""
    for direction, value in data["printed"]["padded_gains"].items():
        yield {"pass": direction, "value": value}


@items
def padding_overhead(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cost of padding."""
    for direction, row in data["padding_overhead"].items():
        yield {**row, "pass": direction, "value": row["decrease"]}


@items
def mean_rates(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Mean TFLOPS without and with padding."""
    for direction, row in data["padding_overhead"].items():
        for form in ("unpadded", "padded"):
            padded = form == "padded"
            yield {"pass": direction, "form": form, "padded": padded, "value": row[form]}


@items
def gpu_hours_saved(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """GPU-hours that sigmoid saves, in percent as printed."""
    for row in data["gpu_hours"]:
        yield {**row, "context_label": context_label(row["context"]), "value": row["saved"]}


@items
def gpu_hours(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """GPU-hours of each attention."""
    for row in data["gpu_hours"]:
        for attention in ("sigmoid", "softmax"):
            label = context_label(row["context"])
            yield {**row, "context_label": label, "attention": attention, "value": row[attention]}
