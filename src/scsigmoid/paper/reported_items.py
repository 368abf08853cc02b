"""What one claim is made of for every entry of a table of ``reported.yaml``.

Each function yields the values that fill the braces of a claim's entry; ``give`` names those that
its measure gets.
"""

from collections.abc import Iterator
from typing import Any

from scsigmoid.paper.labels import context_label, nominal, provider_label


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


def context_items(_: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The two contexts of the compared models."""
    for context in ("2k", "4k"):
        yield {
            "context": context,
            "context_label": context.upper(),
            "models": [f"sigmoid_{context}", f"softmax_{context}"],
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
                "place": place(data, provider, direction),
                **peak_rule(provider),
                "give": ["provider", "pass"],
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


def speed_up_end_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The two ends of each range of speed-ups."""
    ranges = {row["mean"]: row["range"] for row in data["speed_ups"] if "range" in row}
    for item in speed_up_items(data):
        for end, value in zip(("lowest", "highest"), ranges.get(item["value"], ()), strict=False):
            yield item | {"end": end, "value": value, "give": [*item["give"], "end"]}


def flash_items(_: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The kernels that TritonSigmoid is compared with."""
    for provider in ("flash_attention_2", "flash_sigmoid"):
        yield {"provider": provider, "label": provider_label(provider), "give": ["provider"]}


def padded_gain_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """TritonSigmoid over FlashAttention-2 on padded sequences."""
    for direction, value in data["printed"]["padded_gains"].items():
        yield {"pass": direction, "value": value, "give": ["pass"]}


def padding_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cost of padding."""
    for direction, row in data["padding_overhead"].items():
        yield {**row, "pass": direction, "value": row["decrease"], "give": ["pass"]}


def mean_rate_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Mean TFLOPS without and with padding."""
    for direction, row in data["padding_overhead"].items():
        for form in ("unpadded", "padded"):
            yield {
                "pass": direction,
                "form": form,
                "padded": form == "padded",
                "value": row[form],
                "give": ["pass", "padded"],
            }


def saving_items(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """GPU-hours that sigmoid saves, in percent as printed."""
    for row in data["gpu_hours"]:
        yield {
            **row,
            "context_label": context_label(row["context"]),
            "value": row["saved"],
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
    "contexts": context_items,
    "mmd": mmd_items,
    "tflops": tflops_items,
    "peak_gains": peak_gain_items,
    "speed_ups": speed_up_items,
    "speed_up_ends": speed_up_end_items,
    "flash_variants": flash_items,
    "mean_rates": mean_rate_items,
    "padded_gains": padded_gain_items,
    "padding_overhead": padding_items,
    "gpu_hours": gpu_hours_items,
    "gpu_hours_saved": saving_items,
}
