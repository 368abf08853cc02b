"""Compare the speed of attention kernels (section 4) with the kernel benchmark.

The paper's numbers of TritonSigmoid are compared with measurements of TritonSigmoid. Each such
number also contains the measurement of this project's kernel, which affects no verdict.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow, Shape
from scsigmoid.labels import PASSES, provider_label
from scsigmoid.measurements import Interval
from scsigmoid.paper.comparison import UNKNOWN, Number
from scsigmoid.paper.reported import reported
from scsigmoid.results import speed
from scsigmoid.results.folder import Results

TRITON_SIGMOID = "triton_sigmoid"
Timings = dict[Shape, KernelRow]
#: Functions that reduce several intervals to one: the means of the values, of the low ends and of
#: the high ends, or the interval with the lowest or highest value.
CHOICES: Mapping[str, Callable[[Sequence[Interval]], Interval]] = {
    "mean": lambda intervals: Interval(*np.mean(intervals, axis=0).tolist()),
    "lowest": min,
    "highest": max,
}


def timings(results: Results, provider: str, layout: str) -> Timings:
    """Return the timings of a kernel at the paper's shapes, preferably in this layout."""
    rows = [row for row in speed.timed_rows(results.kernel_rows) if row.provider == provider]
    # If several rows have the same shape, the dictionary keeps the last row.
    preferred_last = sorted(rows, key=lambda row: row.layout == layout)
    return {row.shape: row for row in preferred_last if row.batch in speed.PAPER_BATCHES}


def numbers(results: Results) -> Iterator[Number]:
    """Yield TFLOPS, speed-ups, and the share of TFLOPS that is left with padding."""
    tables, confidence = reported(), results.config.benchmarks.kernel.confidence
    tflops, printed = dict(tables["tflops"]), tables["printed"]
    peak_shape = tflops.pop("shape")
    times = {name: timings(results, name, "padded") for name in (*tflops, "pytorch_sigmoid")}
    ours = timings(results, speed.our_backend(results), "packed")

    def number(
        provider: str, title: str, unit: str, value: float, compute: Callable[[Timings], Interval],
        **attributes: object,
    ) -> Number:  # fmt: skip
        """Return a number of the paper (``value``), and of this run (``compute(timings)``)."""
        details: dict[str, Any] = {"location": "Section 4", "n": len(times[provider])} | attributes
        return Number(
            group="kernel", title=f"{provider_label(provider)}: {title}", unit=unit,
            paper=Interval(value), here=compute(times[provider]),
            our_kernel=compute(ours) if provider == TRITON_SIGMOID else UNKNOWN, **details,
        )  # fmt: skip

    def over(other: str, **selection: Any) -> Callable[[Timings], Interval]:
        """Return a function that computes :func:`ratio` of timings to the timings of ``other``."""
        return partial(ratio, others=times[other], confidence=confidence, **selection)

    for provider, row in tflops.items():
        for direction in PASSES:
            is_headline = (provider, direction) == (TRITON_SIGMOID, "forward")
            yield number(
                provider, f"TFLOPS at 16,384 tokens, {direction}", "TFLOPS", row[direction],
                partial(rate, direction=direction, **peak_shape), headline=is_headline,
                location="Abstract, Section 4" if is_headline else "Section 4",
            )  # fmt: skip
    for direction, value in printed["pytorch_sigmoid"].items():
        yield number(
            "pytorch_sigmoid", f"TFLOPS at its best shape, {direction}", "TFLOPS", value,
            partial(rate, choice="highest", direction=direction), location="Section 2",
        )  # fmt: skip
    for other in (gain["provider"] for gain in printed["peak_gains"]):
        yield number(
            TRITON_SIGMOID,
            f"TFLOPS at the same shape over those of {provider_label(other)}, forward", "times",
            round(tflops[TRITON_SIGMOID]["forward"] / tflops[other]["forward"], 3),
            over(other, direction="forward", **peak_shape), no_effect=1,
            headline=other != speed.STANDARD,
        )  # fmt: skip
    for row in tables["speed_ups"]:
        label = f"speed-up over PyTorch, {row['pass']}, {row['padding']:.0%} padding"
        values = {"mean": row["mean"]}
        if "range" in row:
            values["lowest"], values["highest"] = row["range"]
        for choice, value in values.items():
            compute = over(
                speed.STANDARD, choice=choice, padding=row["padding"], direction=row["pass"]
            )
            yield number(row["provider"], f"{choice} {label}", "times", value, compute)
    for row in tables["padded_gains"]:
        yield number(
            TRITON_SIGMOID,
            f"TFLOPS over those of FlashAttention-2, {row['pass']}, 25% padding", "times",
            1 + row["value"] / 100,
            over("flash_attention_2", padding=0.25, direction=row["pass"]), no_effect=1,
        )  # fmt: skip
    for row in tables["padding_overhead"]:
        direction = row["pass"]
        for form, padding in (("unpadded", 0.0), ("padded", 0.25)):
            title = f"mean TFLOPS, {direction}, {padding:.0%} padding"
            compute = partial(rate, padding=padding, direction=direction)
            yield number(TRITON_SIGMOID, title, "TFLOPS", row[form], compute)
        title = f"share of the mean TFLOPS that 25% padding leaves, {direction}"
        compute = partial(share_left, direction=direction)
        yield number(TRITON_SIGMOID, title, "%", 100 - row["decrease"], compute)


def rate(own: Timings, choice: str = "mean", **where: object) -> Interval:
    """Return the mean TFLOPS over shapes, or another ``choice`` of :data:`CHOICES`.

    ``where`` selects shapes by their attributes, e.g. ``padding=0.25``.
    """
    rates = [speed.estimate(row, "tflops") for shape, row in own.items() if is_at(shape, where)]
    return CHOICES[choice](rates) if rates else UNKNOWN


def ratio(
    own: Timings, others: Timings, confidence: float, choice: str = "mean", **where: object
) -> Interval:
    """Return the mean ratio of TFLOPS over the shapes that ``own`` and ``others`` contain.

    ``choice`` and ``where`` are as for :func:`rate`.
    """
    shapes = [shape for shape in own if shape in others and is_at(shape, where)]
    ratios = [speed.ratio_of(own[shape], others[shape], confidence) for shape in shapes]
    return CHOICES[choice](ratios) if ratios else UNKNOWN


def is_at(shape: Shape, where: Mapping[str, object]) -> bool:
    return all(getattr(shape, name) == value for name, value in where.items())


def share_left(own: Timings, direction: str) -> Interval:
    """Return the mean TFLOPS at 25 % padding in percent of the mean TFLOPS without padding."""
    padded, unpadded = (rate(own, padding=padding, direction=direction) for padding in (0.25, 0.0))
    return padded.over(unpadded).map(lambda value: 100 * value)
