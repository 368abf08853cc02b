"""Compare the training cost (section 4) with the training benchmark.

The paper's hours of 160M at 2K and 4K are from completed runs (:mod:`scsigmoid.paper.hours`).
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

from scsigmoid.paper.number import UNKNOWN, Number, count
from scsigmoid.paper.reported import reported, size_in_paper
from scsigmoid.records.measurements import Interval
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import ATTENTIONS, context_label
from scsigmoid.results.speed import costs, estimate

GROUP = "cost"


def numbers(results: Results) -> Iterator[Number]:
    printed, settings = reported()["printed"], reported()["settings"]["cost"]
    measured = {
        (size_in_paper(cost.sigmoid.parameters), cost.context): cost for cost in costs(results)
    }
    sizes, contexts = (settings[f"benchmarks.training.{name}"] for name in ("sizes", "contexts"))
    cases = list(product(sizes, contexts))
    saved = [measured[case].saved_percent if case in measured else UNKNOWN for case in cases]
    known_savings = [interval for interval in saved if not math.isnan(interval.value)]
    yield Number(
        group=GROUP, title="Largest share of the GPU-hours that sigmoid saves", unit="%",
        location="Abstract", headline=True, no_effect=0,
        paper=Interval(printed["faster_up_to"]), n=len(known_savings),
        here=max(known_savings, default=UNKNOWN),  # the interval with the largest value
    )  # fmt: skip
    yield Number(
        group=GROUP, title="Sizes and contexts in which sigmoid takes fewer GPU-hours",
        unit=f"of {len(cases)}", location="Section 4, Figure 3", headline=True,
        no_effect=len(cases) / 2, paper=Interval(len(cases)), here=count(saved),
        n=len(known_savings),
    )  # fmt: skip
    hours_saved = printed["hours_saved"]  # for one size and context only
    common: dict[str, Any] = {"group": GROUP, "location": "Section 4"}
    for row in reported()["gpu_hours"]:
        if row.get("models"):
            continue
        case = row["size"], row["context"]
        cost = measured.get(case)  # None: not measured
        label = f"{row['size']} at {context_label(row['context'])}"
        for attention in ATTENTIONS:
            arm = getattr(cost, attention) if cost else None
            yield Number(
                **common, title=f"{label}, {attention}", unit="GPU-hours",
                paper=Interval(row[attention]), here=estimate(arm, "gpu_hours") if arm else UNKNOWN,
                n=arm.rounds if arm else 0,
            )  # fmt: skip
        savings = [("%", row["saved"], cost.saved_percent if cost else UNKNOWN)]
        if case == (hours_saved["size"], hours_saved["context"]):
            here = cost.saved_hours if cost else UNKNOWN
            savings.append(("GPU-hours", hours_saved["value"], here))
        for unit, value, here in savings:
            yield Number(
                **common, title=f"{label}: GPU-hours that sigmoid saves", unit=unit, no_effect=0,
                paper=Interval(value), here=here, n=cost.sigmoid.rounds if cost else 0,
            )  # fmt: skip
