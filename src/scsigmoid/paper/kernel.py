"""Numbers of the attention kernels (section 4), from the kernel benchmark.

Numbers of TritonSigmoid are compared with TritonSigmoid's own times. The same number of this
project's kernel stands next to them.
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
from scsigmoid.results.speed import PAPER, STANDARD, measured, our_path, rate, ratio_of

OWN = "triton_sigmoid"
Timings = dict[Shape, KernelRow]


def timings(results: Results, provider: str, layout: str) -> Timings:
    """Return a provider's times at the paper's shapes; of two layouts the preferred one counts."""
    rows = [row for row in measured(results.kernel) if row.provider == provider]
    chosen = sorted(rows, key=lambda row: row.layout == layout)
    return {row.shape: row for row in chosen if row.batch in PAPER}


def numbers(results: Results) -> Iterator[Number]:
    """Yield TFLOPS, speed-ups and the cost of padding."""
    tables, confidence = reported(), results.config.benchmarks.kernel.confidence
    tflops, printed = dict(tables["tflops"]), tables["printed"]
    peak = tflops.pop("shape")
    times = {name: timings(results, name, "padded") for name in (*tflops, "pytorch_sigmoid")}
    ours = timings(results, our_path(results), "packed")

    def number(
        provider: str, words: str, unit: str, value: float,
        compute: Callable[..., Interval], *given: object, **more: object,
    ) -> Number:  # fmt: skip
        """Return a number that ``compute`` makes of a kernel's times and further arguments."""
        details: dict[str, Any] = {"location": "Section 4", "n": len(times[provider])} | more
        return Number(
            group="kernel", words=f"{provider_label(provider)}: {words}", unit=unit,
            paper=Interval(value), here=compute(times[provider], *given),
            our_kernel=compute(ours, *given) if provider == OWN else UNKNOWN,
            **details,
        )  # fmt: skip

    def at_peak(way: str) -> Shape:
        return Shape("paper", peak["padding"], peak["head_dimension"], peak["length"], way)

    for provider, row in tflops.items():
        for way in PASSES:
            is_headline = (provider, way) == (OWN, "forward")
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
            OWN, f"TFLOPS at the same shape over those of {provider_label(other)}, forward",
            "times", round(tflops[OWN]["forward"] / tflops[other]["forward"], 3),
            ratio_at, times[other], at_peak("forward"), confidence,
            none=1, headline=other != STANDARD,
        )  # fmt: skip
    for row in tables["speed_ups"]:
        about = f"speed-up over PyTorch, {row['pass']}, {row['padding']:.0%} padding"
        ends = zip(("lowest", "highest"), row.get("range", ()), strict=False)
        for choice, value in (("mean", row["mean"]), *ends):
            yield number(
                row["provider"], f"{choice} {about}", "times", value,
                speed_up, times[STANDARD], row["padding"], row["pass"], confidence, choice,
            )  # fmt: skip
    for row in tables["padded_gains"]:
        yield number(
            OWN, f"TFLOPS over those of FlashAttention-2, {row['pass']}, 25% padding", "times",
            1 + row["value"] / 100, speed_up, times["flash_attention_2"], 0.25, row["pass"],
            confidence, "mean", none=1,
        )  # fmt: skip
    for row in tables["padding_overhead"]:
        way = row["pass"]
        for form, padding in (("unpadded", 0.0), ("padded", 0.25)):
            words = f"mean TFLOPS, {way}, {padding:.0%} padding"
            yield number(OWN, words, "TFLOPS", row[form], mean_rate, padding, way)
        words = f"share of the mean TFLOPS that 25% padding leaves, {way}"
        yield number(OWN, words, "%", 100 - row["decrease"], share_left, way)


def rate_at(own: Timings, shape: Shape) -> Interval:
    return rate(own[shape]) if shape in own else UNKNOWN


def ratio_at(own: Timings, others: Timings, shape: Shape, confidence: float) -> Interval:
    """Return the ratio of TFLOPS at a shape, paired by round."""
    if shape not in own or shape not in others:
        return UNKNOWN
    return ratio_of(own[shape], others[shape], confidence)


def best(own: Timings, way: str) -> Interval:
    """Return the highest TFLOPS of all shapes."""
    rates = [rate(row) for shape, row in own.items() if shape.direction == way]
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
    """Return the mean over shapes, and that of the ends, which is wider than its own interval."""
    return Interval(*map(float, np.mean(values, axis=0)))


def mean_rate(own: Timings, padding: float, way: str) -> Interval:
    """Return the mean TFLOPS over the shapes."""
    rates = [rate(row) for at, row in own.items() if (at.padding, at.direction) == (padding, way)]
    return mean(rates) if rates else UNKNOWN


def share_left(own: Timings, way: str) -> Interval:
    """Return the mean TFLOPS at 25 % padding in percent of those without padding."""
    share = mean_rate(own, 0.25, way).over(mean_rate(own, 0.0, way))
    return share.map(lambda value: 100 * value)
