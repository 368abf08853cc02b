"""Numbers of the attention kernels (section 4), from the kernel benchmark.

The paper's numbers of TritonSigmoid are compared with measurements of TritonSigmoid. The same
number of this project's kernel is given next to them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow, Shape
from scsigmoid.labels import PASSES, provider_label
from scsigmoid.measurements import Interval
from scsigmoid.paper.comparison import UNKNOWN, Number
from scsigmoid.paper.reported import reported
from scsigmoid.results.folder import Results
from scsigmoid.results.speed import PAPER, STANDARD, estimate, measured, our_path, ratio_of

TRITON_SIGMOID = "triton_sigmoid"
Timings = dict[Shape, KernelRow]


def timings(results: Results, provider: str, layout: str) -> Timings:
    """Return the timings of a kernel at the paper's shapes, in ``layout`` if it has several."""
    rows = [row for row in measured(results.kernel) if row.provider == provider]
    preferred_last = sorted(rows, key=lambda row: row.layout == layout)
    return {row.shape: row for row in preferred_last if row.batch in PAPER}


def numbers(results: Results) -> Iterator[Number]:
    """Yield TFLOPS, speed-ups and the cost of padding."""
    tables, confidence = reported(), results.config.benchmarks.kernel.confidence
    tflops, printed = dict(tables["tflops"]), tables["printed"]
    peak = tflops.pop("shape")
    times = {name: timings(results, name, "padded") for name in (*tflops, "pytorch_sigmoid")}
    ours = timings(results, our_path(results), "packed")

    def number(
        provider: str, title: str, unit: str, value: float,
        compute: Callable[..., Interval], *arguments: object, **attributes: object,
    ) -> Number:  # fmt: skip
        """Return a number, computed by ``compute`` from the timings of ``provider``."""
        details: dict[str, Any] = {"location": "Section 4", "n": len(times[provider])} | attributes
        return Number(
            group="kernel", title=f"{provider_label(provider)}: {title}", unit=unit,
            paper=Interval(value), here=compute(times[provider], *arguments),
            our_kernel=compute(ours, *arguments) if provider == TRITON_SIGMOID else UNKNOWN,
            **details,
        )  # fmt: skip

    def at_peak(way: str) -> Shape:
        return Shape("paper", peak["padding"], peak["head_dimension"], peak["length"], way)

    for provider, row in tflops.items():
        for way in PASSES:
            is_headline = (provider, way) == (TRITON_SIGMOID, "forward")
            yield number(
                provider, f"TFLOPS at 16,384 tokens, {way}", "TFLOPS", row[way], rate_at,
                at_peak(way), headline=is_headline,
                location="Abstract, Section 4" if is_headline else "Section 4",
            )  # fmt: skip
    for way, value in printed["pytorch_sigmoid"].items():
        yield number(
            "pytorch_sigmoid", f"TFLOPS at its best shape, {way}", "TFLOPS", value, best, way,
            location="Section 2",
        )  # fmt: skip
    for other in (gain["provider"] for gain in printed["peak_gains"]):
        yield number(
            TRITON_SIGMOID,
            f"TFLOPS at the same shape over those of {provider_label(other)}, forward", "times",
            round(tflops[TRITON_SIGMOID]["forward"] / tflops[other]["forward"], 3),
            ratio_at, times[other], at_peak("forward"), confidence,
            no_effect=1, headline=other != STANDARD,
        )  # fmt: skip
    for row in tables["speed_ups"]:
        label = f"speed-up over PyTorch, {row['pass']}, {row['padding']:.0%} padding"
        ends = zip(("lowest", "highest"), row.get("range", ()), strict=False)
        for choice, value in (("mean", row["mean"]), *ends):
            yield number(
                row["provider"], f"{choice} {label}", "times", value,
                speed_up, times[STANDARD], row["padding"], row["pass"], confidence, choice,
            )  # fmt: skip
    for row in tables["padded_gains"]:
        yield number(
            TRITON_SIGMOID,
            f"TFLOPS over those of FlashAttention-2, {row['pass']}, 25% padding", "times",
            1 + row["value"] / 100, speed_up, times["flash_attention_2"], 0.25, row["pass"],
            confidence, "mean", no_effect=1,
        )  # fmt: skip
    for row in tables["padding_overhead"]:
        way = row["pass"]
        for form, padding in (("unpadded", 0.0), ("padded", 0.25)):
            title = f"mean TFLOPS, {way}, {padding:.0%} padding"
            yield number(TRITON_SIGMOID, title, "TFLOPS", row[form], mean_rate, padding, way)
        title = f"share of the mean TFLOPS that 25% padding leaves, {way}"
        yield number(TRITON_SIGMOID, title, "%", 100 - row["decrease"], share_left, way)


def rate_at(own: Timings, shape: Shape) -> Interval:
    """Return the TFLOPS at a shape."""
    return estimate(own[shape], "tflops") if shape in own else UNKNOWN


def ratio_at(own: Timings, others: Timings, shape: Shape, confidence: float) -> Interval:
    """Return the ratio of TFLOPS at a shape, paired by round."""
    if shape not in own or shape not in others:
        return UNKNOWN
    return ratio_of(own[shape], others[shape], confidence)


def best(own: Timings, way: str) -> Interval:
    """Return the highest TFLOPS of all shapes."""
    rates = [estimate(row, "tflops") for shape, row in own.items() if shape.direction == way]
    return max(rates, default=UNKNOWN)


def speed_up(
    own: Timings, others: Timings, padding: float, way: str, confidence: float, choice: str
) -> Interval:
    """Return the mean, lowest or highest ratio of TFLOPS over the shapes that both have."""
    ratios = [
        ratio_of(row, others[shape], confidence)
        for shape, row in own.items()
        if shape in others and (shape.padding, shape.direction) == (padding, way)
    ]
    if not ratios:
        return UNKNOWN
    return {"mean": mean(ratios), "lowest": min(ratios), "highest": max(ratios)}[choice]


def mean(values: list[Interval]) -> Interval:
    """Return the mean of values and of the ends of their intervals (docs/comparison.md)."""
    return Interval(*map(float, np.mean(values, axis=0)))


def mean_rate(own: Timings, padding: float, way: str) -> Interval:
    """Return the mean TFLOPS over the shapes."""
    rates = [
        estimate(row, "tflops")
        for at, row in own.items()
        if (at.padding, at.direction) == (padding, way)
    ]
    return mean(rates) if rates else UNKNOWN


def share_left(own: Timings, way: str) -> Interval:
    """Return the mean TFLOPS at 25 % padding in percent of those without padding."""
    share = mean_rate(own, 0.25, way).over(mean_rate(own, 0.0, way))
    return share.map(lambda value: 100 * value)
