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
        group: ``data``, ``quality``, ``stability``, ``kernel``, ``training cost``, ``theory`` or
            ``paper's arithmetic``.
        statement: the claim in our words.
        location: labels of the paper's source where it stands.
        value: the paper's value, or the two ends of a range.
        unit: of the value.
        measure: name of the function that computes our value (``scsigmoid.paper.claims``).
        of: what the measure is given.
        rule: how the two are compared (``claims.rules``).
        tolerance: relative, or in the value's unit for the rule ``points``.
        decimals: digits that the paper prints, for the rule ``rounds``.
        requires: what must hold before a verdict is possible (``claims.requirements``).
        models: models that the claim is about, by their names in the configuration.
        datasets: evaluation datasets that the claim is about.
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
    decimals: int = 0
    requires: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


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
        named = {
            key: item[key] for key in ("value", "models", "datasets", "decimals") if key in item
        }
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


def dataset_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """tab:eval_datasets."""
    for dataset, entry in data["datasets"].items():
        yield {
            "dataset": dataset,
            "title": entry["title"],
            "value": entry["cells"],
            "datasets": [dataset],
            "give": ["dataset"],
        }


def validation_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
                "give": ["dataset", "model"],
            }


def validation_difference_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
                "give": ["dataset", "first", "second"],
            }


def mmd_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of tab:mmd_heart_oft."""
    for row in data["mmd"]["heart_oft"]:
        sigmoid, softmax = row["sigmoid"][0], row["softmax"][0]
        yield {
            "pair": row["pair"],
            "slug": row["pair"].lower().replace(" ", "_"),
            "sigmoid": sigmoid,
            "softmax": softmax,
            "value": round(sigmoid / softmax, 4),
            "give": ["pair"],
        }


def tflops_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
                **peak_rule(provider),
                "give": ["provider", "pass"],
            }


def peak_rule(provider: str) -> dict[str, Any]:
    """Ours may be faster than the paper's; a baseline should be as fast as it was there."""
    if provider == "triton_sigmoid":
        return {"peak_rule": "at_least", "tolerance": 0.05}
    return {"peak_rule": "within", "tolerance": 0.15}


def peak_gain_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """TritonSigmoid's peak forward TFLOPS over those of the others."""
    own = data["tflops"]["triton_sigmoid"]["forward"]
    for gain in data["printed"]["peak_gains"]:
        other = data["tflops"][gain["provider"]]["forward"]
        yield {
            "provider": gain["provider"],
            "label": provider_label(gain["provider"]),
            "value": round(own / other, 4),
            "give": ["provider"],
        }


def own_peak_gain_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The gains as the paper prints them: percent or times."""
    for gain in data["printed"]["peak_gains"]:
        percent = gain["unit"] == "%"
        yield {
            "provider": gain["provider"],
            "label": provider_label(gain["provider"]),
            "value": gain["value"],
            "unit": gain["unit"],
            "gain_text": f"{gain['value']} % more" if percent else f"{gain['value']} times",
            "decimals": 0 if percent else 1,
            "give": ["provider", "unit"],
        }


def speed_up_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Average speed-ups over standard PyTorch attention."""
    for row in data["speed_ups"]:
        low_high = row.get("range")
        yield {
            "provider": row["provider"],
            "label": provider_label(row["provider"]),
            "pass": row["pass"],
            "padding": row["padding"],
            "padding_label": f"{row['padding']:.0%}".replace("%", "_padding"),
            "padding_text": f"{row['padding'] * 100:.0f} % padding",
            "range_text": f" ({low_high[0]:.2f} to {low_high[1]:.2f})" if low_high else "",
            "value": row["mean"],
            **peak_rule(row["provider"]),
            "give": ["provider", "pass", "padding"],
        }


def padded_gain_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """TritonSigmoid over FlashAttention-2 on padded sequences."""
    for direction, value in data["printed"]["padded_gains"].items():
        yield {"pass": direction, "value": value, "give": ["pass"]}


def padding_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cost of padding."""
    for direction, row in data["padding_overhead"].items():
        yield {**row, "pass": direction, "value": row["decrease"], "give": ["pass"]}


def saving_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """GPU-hours that sigmoid saves, in percent as printed."""
    for row in data["gpu_hours"]:
        yield {
            **row,
            "context_label": context_label(row["context"]),
            "value": row["saved"],
            "decimals": 0 if isinstance(row["saved"], int) else 1,
            "give": ["size", "context"],
        }


def gpu_hours_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """GPU-hours of each attention."""
    for row in data["gpu_hours"]:
        for attention in ("sigmoid", "softmax"):
            yield {
                "size": row["size"],
                "context": row["context"],
                "context_label": context_label(row["context"]),
                "attention": attention,
                "value": row[attention],
                "give": ["size", "context", "attention"],
            }


ITEMS = {
    "datasets": dataset_items,
    "validation_loss": validation_items,
    "validation_differences": validation_difference_items,
    "mmd": mmd_items,
    "tflops": tflops_items,
    "peak_gains": peak_gain_items,
    "own_peak_gains": own_peak_gain_items,
    "speed_ups": speed_up_items,
    "padded_gains": padded_gain_items,
    "padding_overhead": padding_items,
    "gpu_hours": gpu_hours_items,
    "gpu_hours_saved": saving_items,
}
