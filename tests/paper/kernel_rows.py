"""Made-up rows of the kernel benchmark."""

import math

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.rows import KernelRow


def kernel_row(
    case: Case, direction: str, attention: str, provider: str, layout: str, rate: float
) -> KernelRow:
    """A row of ten equal readings; one without any where the rate is NaN."""
    flops = case.flops(direction)
    milliseconds = flops / rate * 1e3
    timed = not math.isnan(rate)
    return KernelRow(
        attention=attention,
        provider=provider,
        layout=layout,
        direction=direction,
        batch=case.batch,
        head_dimension=case.head_dimension,
        heads=case.heads,
        length=case.length,
        sequences=case.sequences,
        padding=case.padding,
        tokens=case.tokens,
        dtype="float32",
        device="cpu",
        milliseconds=milliseconds,
        milliseconds_low=milliseconds * 0.96,
        milliseconds_high=milliseconds * 1.04,
        tflops=rate / 1e12,
        tflops_low=rate / 1.04e12,
        tflops_high=rate / 0.96e12,
        executed_tflops=rate / 1e12,
        timing="clock" if timed else "",
        call_milliseconds=math.nan,
        iterations=10 if timed else 0,
        checked=timed,
        relative_error=1e-6 if timed else math.nan,
        clock_mhz=math.nan,
        power_w=math.nan,
        note="CPU, tiny shapes: not comparable with the paper",
        readings=" ".join([repr(milliseconds)] * 10) if timed else "",
    )
