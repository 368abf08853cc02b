"""Compare the speed of attention kernels (section 4) with the kernel benchmark.

The paper's numbers of TritonSigmoid are compared with measurements of TritonSigmoid. Each such
number also contains the measurement of this project's kernel, which does not affect verdicts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow, Shape
from scsigmoid.paper.number import UNKNOWN, Number
from scsigmoid.paper.reported import reported
from scsigmoid.records.measurements import Interval
from scsigmoid.results import speed
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import PASSES, provider_label

TRITON_SIGMOID = "triton_sigmoid"
Timings = dict[Shape, KernelRow]
#: An estimate, and the number of shapes that it was computed from.
Estimate = tuple[Interval, int]
#: Functions that reduce several intervals to one: the means of the values, of the low ends and of
#: the high ends, or the interval with the lowest or highest value.
REDUCTIONS: Mapping[str, Callable[[Sequence[Interval]], Interval]] = {
    "mean": lambda intervals: Interval(*np.mean(intervals, axis=0).tolist()),
    "lowest": min,
    "highest": max,
}


def timings(results: Results, provider: str, layout: str) -> Timings:
    """Return the timings of a kernel at the paper's shapes, preferably those in ``layout``."""
    rows = [row for row in speed.timed_rows(results.kernel_rows) if row.provider == provider]
    # If several rows have the same shape, the dictionary keeps the last row.
    preferred_last = sorted(rows, key=lambda row: row.layout == layout)
    return {row.shape: row for row in preferred_last if row.batch in speed.PAPER_BATCHES}


def paper_shapes(**where: object) -> list[Shape]:
    """Return the paper's shapes, or its shapes with the attributes ``where``."""
    settings = reported()["settings"]["kernel"]
    names = ("padding", "head_dimensions", "lengths")
    values = (settings[f"benchmarks.kernel.{name}"] for name in names)
    shapes = [Shape("paper", *shape) for shape in product(*values, PASSES)]
    return [shape for shape in shapes if where.items() <= shape._asdict().items()]


def numbers(results: Results) -> Iterator[Number]:
    """Yield TFLOPS, speed-ups, and the share of TFLOPS that is left with padding."""
    tables, confidence = reported(), results.config.benchmarks.kernel.confidence
    printed, peak_shape = tables["printed"], tables["tflops"]["shape"]
    tflops = {name: row for name, row in tables["tflops"].items() if name != "shape"}
    measured = {name: timings(results, name, "padded") for name in (*tflops, "pytorch_sigmoid")}
    ours = timings(results, speed.our_backend(results), "packed")

    def number(
        provider: str, title: str, unit: str, paper: float, compute: Callable[[Timings], Estimate],
        **attributes: object,
    ) -> Number:  # fmt: skip
        """Return a number of the paper (``paper``), and of this run (``compute(timings)``)."""
        here, n = compute(measured[provider])
        details: dict[str, Any] = {"location": "Section 4"} | attributes
        return Number(
            group="kernel", title=f"{provider_label(provider)}: {title}", unit=unit,
            paper=Interval(paper), here=here, n=n,
            our_kernel=compute(ours)[0] if provider == TRITON_SIGMOID else UNKNOWN, **details,
        )  # fmt: skip

    def ratio_to(other: str, **selection: Any) -> Callable[[Timings], Estimate]:
        """Return a function that computes :func:`ratio` of timings to the timings of ``other``."""
        return partial(ratio, others=measured[other], confidence=confidence, **selection)

    for provider, row in tflops.items():
        for direction in PASSES:
            is_headline = (provider, direction) == (TRITON_SIGMOID, "forward")
            yield number(
                provider, f"TFLOPS at 16,384 tokens, {direction}", "TFLOPS", row[direction],
                partial(throughput, direction=direction, **peak_shape), headline=is_headline,
                location="Abstract, Section 4" if is_headline else "Section 4",
            )  # fmt: skip
    for direction, value in printed["pytorch_sigmoid"].items():
        yield number(
            "pytorch_sigmoid", f"TFLOPS at its best shape, {direction}", "TFLOPS", value,
            partial(throughput, reduction="highest", direction=direction), location="Section 2",
        )  # fmt: skip
    for gain in printed["peak_gains"]:
        other = gain["provider"]
        yield number(
            TRITON_SIGMOID,
            f"TFLOPS at the same shape over those of {provider_label(other)}, forward", "times",
            round(tflops[TRITON_SIGMOID]["forward"] / tflops[other]["forward"], 3),
            ratio_to(other, direction="forward", **peak_shape), no_effect=1,
            headline=other != speed.STANDARD,
        )  # fmt: skip
    for row in tables["speed_ups"]:
        label = f"speed-up over PyTorch, {row['pass']}, {row['padding'] * 100:g} % padding"
        values = {"mean": row["mean"]}
        if "range" in row:
            values["lowest"], values["highest"] = row["range"]
        for reduction, value in values.items():
            compute = ratio_to(
                speed.STANDARD, reduction=reduction, padding=row["padding"], direction=row["pass"]
            )
            yield number(row["provider"], f"{reduction} {label}", "times", value, compute)
    for row in tables["padded_gains"]:
        yield number(
            TRITON_SIGMOID,
            f"TFLOPS over those of FlashAttention-2, {row['pass']}, 25 % padding", "times",
            1 + row["value"] / 100,
            ratio_to("flash_attention_2", padding=0.25, direction=row["pass"]), no_effect=1,
        )  # fmt: skip
    for row in tables["padding_overhead"]:
        direction = row["pass"]
        for form, padding in (("unpadded", 0.0), ("padded", 0.25)):
            title = f"mean TFLOPS, {direction}, {padding * 100:g} % padding"
            compute = partial(throughput, padding=padding, direction=direction)
            yield number(TRITON_SIGMOID, title, "TFLOPS", row[form], compute)
        title = f"share of the mean TFLOPS that 25 % padding leaves, {direction}"
        compute = partial(share_left, direction=direction)
        yield number(TRITON_SIGMOID, title, "%", 100 - row["decrease"], compute)


def throughput(own: Timings, reduction: str = "mean", **where: object) -> Estimate:
    """Return the mean TFLOPS over shapes, or another ``reduction`` of :data:`REDUCTIONS`.

    ``where`` selects shapes by their attributes, e.g. ``padding=0.25``.
    """
    shapes = paper_shapes(**where)
    tflops = [speed.estimate(own[shape], "tflops") for shape in shapes if shape in own]
    return reduced(tflops, reduction, len(shapes))


def ratio(
    own: Timings, others: Timings, confidence: float, reduction: str = "mean", **where: object
) -> Estimate:
    """Return the mean ratio of TFLOPS over the shapes that ``own`` and ``others`` contain.

    ``reduction`` and ``where`` are as for :func:`throughput`.
    """
    shapes = paper_shapes(**where)
    ratios = [
        speed.ratio_of(own[shape], others[shape], confidence)
        for shape in shapes
        if shape in own and shape in others
    ]
    return reduced(ratios, reduction, len(shapes))


def reduced(intervals: Sequence[Interval], reduction: str, shapes: int) -> Estimate:
    """Reduce intervals by one of :data:`REDUCTIONS`. The result is UNKNOWN without intervals.

    The result has no interval, and so no verdict, unless there is one for each of ``shapes``.
    """
    if not intervals:
        return UNKNOWN, 0
    result = REDUCTIONS[reduction](intervals)
    is_complete = len(intervals) == shapes and np.isfinite(intervals).all()
    return result if is_complete else Interval(result.value), len(intervals)


def share_left(own: Timings, direction: str) -> Estimate:
    """Return the mean TFLOPS at 25 % padding in percent of the mean TFLOPS without padding."""
    padded, n = throughput(own, padding=0.25, direction=direction)
    unpadded, _ = throughput(own, padding=0.0, direction=direction)
    return padded.over(unpadded).map(lambda value: 100 * value), n
