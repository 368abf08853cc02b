"""Numbers of the training cost (section 4), from the training benchmark."""

import math
from collections.abc import Iterator
from typing import Any

from scsigmoid.labels import ATTENTIONS, context_label
from scsigmoid.measurements import Interval
from scsigmoid.paper.comparison import UNKNOWN, Number, count
from scsigmoid.paper.reported import reported
from scsigmoid.results.folder import Results
from scsigmoid.results.speed import costs, hours_of

GROUP = "cost"


def numbers(results: Results) -> Iterator[Number]:
    """Yield GPU-hours and what sigmoid saves of them."""
    table, printed = reported()["gpu_hours"], reported()["printed"]
    of = {(cost.size, cost.context): cost for cost in costs(results)}
    sizes = dict.fromkeys(row["size"] for row in table)
    places = [(size, context) for size in sizes for context in (2048, 4096, 8192)]
    saved = [of[place].saved if place in of else UNKNOWN for place in places]
    headline: dict[str, Any] = {"group": GROUP, "unit": "%", "headline": True, "none": 0}
    yield Number(
        **headline, words="Largest share of the GPU-hours that sigmoid saves", location="Abstract",
        paper=Interval(printed["faster_up_to"]), n=len(of),
        here=max((one for one in saved if not math.isnan(one.value)), default=UNKNOWN),
    )  # fmt: skip
    yield Number(
        **headline | {"unit": f"of {len(places)}", "none": len(places) / 2},
        words="Sizes and contexts in which sigmoid takes fewer GPU-hours",
        location="Section 4, Figure 3",
        paper=Interval(len(places)), here=count(saved), n=len(of),
    )  # fmt: skip
    hours = printed["hours_saved"]
    for row in table:
        place = row["size"], row["context"]
        cost, about = of.get(place), f"{row['size']} at {context_label(row['context'])}"
        common: dict[str, Any] = {"group": GROUP, "location": "Section 4"}
        for attention in ATTENTIONS:
            arm = getattr(cost, attention) if cost else None
            yield Number(
                **common, words=f"{about}, {attention}", unit="GPU-hours",
                paper=Interval(row[attention]), here=hours_of(arm) if arm else UNKNOWN,
                n=arm.rounds if arm else 0,
            )  # fmt: skip
        yield Number(
            **common, words=f"{about}: GPU-hours that sigmoid saves", unit="%", none=0,
            paper=Interval(row["saved"]), here=cost.saved if cost else UNKNOWN,
            n=cost.sigmoid.rounds if cost else 0,
        )  # fmt: skip
        if place == (hours["size"], hours["context"]):
            yield Number(
                **common, words=f"{about}: GPU-hours that sigmoid saves", unit="GPU-hours", none=0,
                paper=Interval(hours["value"]), here=cost.hours if cost else UNKNOWN,
                n=cost.sigmoid.rounds if cost else 0,
            )  # fmt: skip
