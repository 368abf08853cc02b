"""The paper's arithmetic of speed: whether its statements follow from its own numbers."""

import math
from typing import Any

from scsigmoid.paper.claims.estimate import Measure
from scsigmoid.paper.claims.printed import Numbers, printed
from scsigmoid.paper.labels import context_label
from scsigmoid.paper.reported import Reported
from scsigmoid.paper.speed import next_steps


@printed
def own_peak_gain(paper: Reported, of: dict[str, Any]) -> Numbers:
    """Peak forward TFLOPS of TritonSigmoid over another's, in percent more or times."""
    own, other = paper["tflops"]["triton_sigmoid"], paper["tflops"][of["provider"]]
    percent = of["unit"] == "%"

    def gain(direction: str) -> float:
        ratio = float(own[direction] / other[direction])
        return (ratio - 1) * 100 if percent else ratio

    back = f"{gain('backward'):.0f} %" if percent else f"{gain('backward'):.1f} times"
    return gain("forward"), (
        f"{own['forward']} over {other['forward']}; backward, beside which it stands too, {back}"
    )


@printed
def own_headline_tflops(paper: Reported, of: dict[str, Any]) -> Numbers:
    """The forward TFLOPS that the text measures."""
    return paper["tflops"][of["provider"]]["forward"], ""


@printed
def own_speed_up_order(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Means of the other kernels, over both passes, that TritonSigmoid's exceed."""
    rows = [row for row in paper["speed_ups"] if row["padding"] == 0]
    own = {row["pass"]: row["mean"] for row in rows if row["provider"] == "triton_sigmoid"}
    others = [row for row in rows if row["provider"] != "triton_sigmoid"]
    return sum(own[row["pass"]] > row["mean"] for row in others), ""


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
def own_growing_savings(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Steps to the next printed size or context at which the hours saved rise."""
    steps = next_steps(paper["gpu_hours"], lambda row: (row["size"], row["context"]))
    saved = [[row["softmax"] - row["sigmoid"] for row in step] for step in steps]
    falls = [
        f"{less} ({step[0]['size']} at {context_label(step[0]['context'])}) to "
        f"{more} ({step[1]['size']} at {context_label(step[1]['context'])})"
        for step, (less, more) in zip(steps, saved, strict=True)
        if more <= less
    ]
    rises = len(steps) - len(falls)
    return rises, f"of {len(steps)} steps; not from " + ", nor from ".join(falls)


@printed
def own_gain_beside_kernel(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Largest printed gain of throughput less the smallest printed one of the kernel."""
    gain = max((row["softmax"] / row["sigmoid"] - 1) * 100 for row in paper["gpu_hours"])
    kernel = min(paper["printed"]["padded_gains"].values())
    return gain - kernel, f"training gains up to {gain:.1f} %, the kernel at least {kernel} %"


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


MEASURES: dict[str, Measure] = {
    function.__name__: function
    for function in (
        own_peak_gain,
        own_headline_tflops,
        own_speed_up_order,
        own_padding_overhead,
        own_standard_slower,
        own_saving,
        own_hours_saved,
        own_largest_saving,
        own_gap_grows,
        own_growing_savings,
        own_gain_beside_kernel,
        own_shapes,
        own_readings,
        own_batch,
    )
}
