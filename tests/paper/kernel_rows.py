"""Made-up rows of the benchmarks."""

import math
from typing import Any, TypeVar, get_type_hints

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.rows import KernelRow

Row = TypeVar("Row")
EMPTY = {str: "", int: 0, float: math.nan, bool: False}


def filled(kind: type[Row], **values: Any) -> Row:
    """A row with these values; the others are empty, as where nothing was measured."""
    return kind(**{name: EMPTY[one] for name, one in get_type_hints(kind).items()} | values)


def ends(name: str, value: float, low: float = 0.96, high: float = 1.04) -> dict[str, float]:
    """A value with an interval, as columns."""
    return {name: value, f"{name}_low": value * low, f"{name}_high": value * high}


def kernel_row(
    case: Case, direction: str, attention: str, provider: str, layout: str, rate: float
) -> KernelRow:
    """A row of ten equal readings; one without any where the rate is NaN."""
    milliseconds = case.flops(direction) / rate * 1e3
    shape = ("batch", "head_dimension", "heads", "length", "sequences", "padding", "tokens")
    row = filled(
        KernelRow,
        attention=attention,
        provider=provider,
        layout=layout,
        direction=direction,
        **{name: getattr(case, name) for name in shape},
        dtype="float32",
        device="cpu",
        **ends("milliseconds", milliseconds),
        **ends("tflops", rate / 1e12, 1 / 1.04, 1 / 0.96),
        executed_tflops=rate / 1e12,
        note="CPU, tiny shapes: not comparable with the paper",
    )
    if math.isnan(rate):
        return row
    readings = " ".join([repr(milliseconds)] * 10)
    measured = {"timing": "clock", "checked": True, "relative_error": 1e-6}
    return filled(KernelRow, **vars(row) | measured | {"iterations": 10, "readings": readings})
