"""The paper's arithmetic: whether its statements follow from its own tables (``reported.yaml``)."""

import math
from collections.abc import Callable
from typing import Any

from scsigmoid.paper.claims.estimate import Estimate, Measure
from scsigmoid.paper.labels import context_label
from scsigmoid.paper.reported import Claim, Reported, reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.mmd import paper_improvements

EVIDENCE = ("src/scsigmoid/paper/reported.yaml",)
Numbers = tuple[float, str]


def printed(measure: Callable[[Reported, dict[str, Any]], Numbers]) -> Measure:
    """A measure of the paper's own numbers: what was printed, and what the claim asks of it."""

    def measured(_: Results, claim: Claim) -> Estimate:
        of = {**claim.of, "decimals": claim.decimals, "value": claim.value}
        value, note = measure(reported(), of)
        return Estimate(value=value, note=note, evidence=EVIDENCE)

    measured.__name__ = measure.__name__
    return measured


@printed
def own_mmd_improvement(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Percent by which the mean of sigmoid's column exceeds that of softmax's."""
    found = paper_improvements("heart_oft")
    return found["ratio_of_means"], (
        f"as the ratio of the columns' means; the mean of the 28 improvements is "
        f"{found['mean_of_ratios']:.1f} %"
    )


@printed
def own_mmd_wins(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Rows in which sigmoid's MMD is higher."""
    rows = paper["mmd"]["heart_oft"]
    apart = sum(row["sigmoid"][1] > row["softmax"][2] for row in rows)
    won = sum(row["sigmoid"][0] > row["softmax"][0] for row in rows)
    return won, f"the intervals are disjoint in {apart} of them"


@printed
def own_mmd_pairs(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Pairs that the cell types named in the table make."""
    types = {name for row in paper["mmd"]["heart_oft"] for name in row["pair"].split(" vs ")}
    return math.comb(len(types), 2), f"{len(types)} types"


@printed
def own_validation_wins(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Datasets and contexts in which sigmoid's loss is lower."""
    rows = paper["validation_loss"]
    lost = [
        f"{paper['datasets'][dataset]['title']} at {context.upper()}: "
        f"{row[f'sigmoid_{context}'][0]:.3f} against {row[f'softmax_{context}'][0]:.3f}"
        for dataset, row in rows.items()
        for context in ("2k", "4k")
        if not row[f"sigmoid_{context}"][0] < row[f"softmax_{context}"][0]
    ]
    return 2 * len(rows) - len(lost), "; ".join(lost)


@printed
def own_longer_context_wins(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Datasets and attentions in which 4K has the lower loss."""
    rows = paper["validation_loss"].values()
    return sum(
        row[f"{attention}_4k"][0] < row[f"{attention}_2k"][0]
        for row in rows
        for attention in ("sigmoid", "softmax")
    ), ""


@printed
def own_sigmoid_4k_best(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Datasets on which Sigmoid 4K has the lowest loss of the four."""
    rows = paper["validation_loss"].values()
    return sum(min(row, key=lambda model: row[model][0]) == "sigmoid_4k" for row in rows), ""


@printed
def own_peak_gain(paper: Reported, of: dict[str, Any]) -> Numbers:
    """Peak forward TFLOPS of TritonSigmoid over another's, in percent more or times."""
    own = paper["tflops"]["triton_sigmoid"]["forward"]
    other = paper["tflops"][of["provider"]]["forward"]
    ratio = own / other
    return ((ratio - 1) * 100 if of["unit"] == "%" else ratio), f"{own} over {other}"


@printed
def own_headline_tflops(paper: Reported, _: dict[str, Any]) -> Numbers:
    """The forward TFLOPS that the text measures."""
    return paper["tflops"]["triton_sigmoid"]["forward"], "the abstract drops the decimal"


@printed
def own_padding_overhead(paper: Reported, of: dict[str, Any]) -> Numbers:
    """Percent by which padding lowers the stated mean TFLOPS."""
    row = paper["padding_overhead"][of["pass"]]
    return (1 - row["padded"] / row["unpadded"]) * 100, ""


@printed
def own_standard_slower(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Smallest percentage by which standard attention lies behind an optimised kernel."""
    rows = paper["tflops"]
    behind = {
        (provider, direction): (1 - rows["pytorch"][direction] / rows[provider][direction]) * 100
        for provider in ("triton_sigmoid", "flash_sigmoid", "flash_attention_2")
        for direction in ("forward", "backward")
    }
    least = min(behind.values())
    return least, f"it ranges from {least:.0f} % to {max(behind.values()):.0f} %"


def savings(row: dict[str, Any]) -> dict[str, float]:
    """Percent of hours saved, and percent of throughput gained."""
    return {
        "hours saved": (1 - row["sigmoid"] / row["softmax"]) * 100,
        "throughput gained": (row["softmax"] / row["sigmoid"] - 1) * 100,
    }


def nearest(found: dict[str, float], value: float, decimals: int) -> Numbers:
    """The definition that rounds to the printed value, hours saved first."""
    words = ", ".join(f"{name} {number:.2f} %" for name, number in found.items())
    for number in found.values():
        if math.isclose(round(number, decimals), value):
            return number, words
    return next(iter(found.values())), words


@printed
def own_saving(paper: Reported, of: dict[str, Any]) -> Numbers:
    """The saving of one size and context, by the definition that fits."""
    (row,) = [
        row
        for row in paper["gpu_hours"]
        if (row["size"], row["context"]) == (of["size"], of["context"])
    ]
    return nearest(savings(row), of["value"], of["decimals"])


@printed
def own_hours_saved(paper: Reported, of: dict[str, Any]) -> Numbers:
    """GPU-hours saved."""
    (row,) = [
        row
        for row in paper["gpu_hours"]
        if (row["size"], row["context"]) == (of["size"], of["context"])
    ]
    return row["softmax"] - row["sigmoid"], f"{row['softmax']} - {row['sigmoid']}"


@printed
def own_largest_saving(paper: Reported, of: dict[str, Any]) -> Numbers:
    """The largest saving among the printed hours, by the definition that fits."""
    best = max(paper["gpu_hours"], key=lambda row: row["softmax"] / row["sigmoid"])
    return nearest(savings(best), of["value"], of["decimals"])


@printed
def own_gap_grows(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Sizes whose saving rises with every longer context."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(paper["gpu_hours"], key=lambda row: row["context"]):
        rows.setdefault(row["size"], []).append(row)
    several = {size: found for size, found in rows.items() if len(found) > 1}
    saved = {
        size: [savings(row)["hours saved"] for row in found] for size, found in several.items()
    }
    words = "; ".join(
        f"{size}: "
        + ", ".join(
            f"{value:.1f} % at {context_label(row['context'])}"
            for value, row in zip(values, several[size], strict=True)
        )
        for size, values in saved.items()
    )
    grows = [values == sorted(values) for values in saved.values()]
    return sum(grows), words


@printed
def own_gradient_orders(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Powers of ten between the stated gradient norms."""
    gradient = paper["printed"]["gradient"]
    return math.log10(gradient["peak"] / gradient["before"]), ""


@printed
def own_score_peak(paper: Reported, _: dict[str, Any]) -> Numbers:
    """The largest attention score that the text states."""
    return float(paper["printed"]["score_peak"]), ""


@printed
def own_flops_forward(_: Reported, __: dict[str, Any]) -> Numbers:
    """Twice the stated operations of one product over the stated ones of the forward pass."""
    b, h, n, d = 1, 16, 16384, 128
    product, forward = 2 * b * h * n * d**2, 4 * b * h * n**2 * d
    return 2 * product / forward, (
        "at 16,384 tokens and head dimension 128; one product takes 2bhn^2d, and n and d are "
        "exchanged in its formula"
    )


@printed
def own_flops_backward(_: Reported, __: dict[str, Any]) -> Numbers:
    """2.5 times the forward operations over the stated backward ones."""
    b, h, n, d = 1, 16, 16384, 128
    return 2.5 * (4 * b * h * n**2 * d) / (10 * b * h * n**2 * d), ""


@printed
def own_shapes(paper: Reported, _: dict[str, Any]) -> Numbers:
    """How many of the stated heads and batch sizes follow."""
    shapes = paper["printed"]["kernel"]
    heads = [shapes["hidden"] // dimension for dimension in shapes["head_dimensions"]]
    batches = [shapes["tokens"] // length for length in shapes["lengths"]]
    stated = [*shapes["heads"], *shapes["batches"]]
    met = sum(ours == theirs for ours, theirs in zip([*heads, *batches], stated, strict=True))
    return met, ""


@printed
def own_readings(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Readings of a throughput run."""
    run = paper["printed"]["throughput"]
    return run["steps"] / run["read_every"], ""


@printed
def own_batch(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Cells of a batch of the throughput runs."""
    run = paper["printed"]["throughput"]
    return run["gpus"] * run["cells_per_gpu"], f"{run['gpus']} GPUs, {run['cells_per_gpu']} each"


@printed
def own_pass(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Cells that the stated steps of the stated batch read."""
    steps = paper["models"]["sigmoid_4k"]["steps"]
    batch = paper["model_architecture"]["global_batch"]
    return steps * batch, f"{steps:,} steps of {batch} cells: one pass over the corpus"


MEASURES: dict[str, Measure] = {
    function.__name__: function
    for function in (
        own_mmd_improvement,
        own_mmd_wins,
        own_mmd_pairs,
        own_validation_wins,
        own_longer_context_wins,
        own_sigmoid_4k_best,
        own_peak_gain,
        own_headline_tflops,
        own_padding_overhead,
        own_standard_slower,
        own_saving,
        own_hours_saved,
        own_largest_saving,
        own_gap_grows,
        own_gradient_orders,
        own_score_peak,
        own_flops_forward,
        own_flops_backward,
        own_shapes,
        own_readings,
        own_batch,
        own_pass,
    )
}
