"""Numbers of the stress test (section "Training Stability"), from the training journals."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from scsigmoid.measurements import Interval
from scsigmoid.paper.comparison import LEVEL, ORDER, UNKNOWN, Number, exact
from scsigmoid.paper.reported import reported
from scsigmoid.results.folder import Journal, Results
from scsigmoid.results.statistics import divergence, finite_or_inf, has_learned, trailing_median

GROUP = "stability"


def numbers(results: Results) -> Iterator[Number]:
    """Yield the numbers of the stress test."""
    models = ("softmax_8k", "sigmoid_8k")
    journals = {name: results.journal(name) for name in models if name in results.config.models}
    runs = {name: facts(journal) for name, journal in journals.items()}
    steps = {name: len(journal["step"]) for name, journal in journals.items()}
    softmax, sigmoid = (runs.get(name, {}) for name in models)
    diverged = [run.get("diverged", UNKNOWN).value for run in (softmax, sigmoid)]
    common: dict[str, Any] = {
        "group": GROUP,
        "location": "Abstract, Section 5.3",
        "no_effect": 0,
        "headline": True,
    }
    yield Number(
        **common, title="Softmax diverges and sigmoid does not (1 if so, 0 if both or neither)",
        unit="", paper=Interval(1), here=exact(diverged[0] - diverged[1]),
        n=min(steps.values(), default=0),
    )  # fmt: skip
    yield Number(
        **common, title="Growth of softmax's gradient norm when it diverges", unit="powers of ten",
        paper=Interval(reported()["printed"]["explosion"]), n=steps.get("softmax_8k", 0),
        here=softmax.get("explosion", UNKNOWN),
    )  # fmt: skip
    for row in reported()["stability"]:
        value = row["value"]
        yield Number(
            group=GROUP, title=row["title"], location="Section 5.3, Figure 6", unit=row["unit"],
            paper=Interval(math.nan, *value) if isinstance(value, list) else Interval(value),
            here=runs.get(row["model"], {}).get(row["number"], UNKNOWN),
            n=steps.get(row["model"], 0), factor=ORDER if row.get("order") else LEVEL,
        )  # fmt: skip


def facts(journal: Journal) -> dict[str, Interval]:
    """Return the numbers of one run by name, those of a divergence only if the run diverges."""
    raw, steps = finite_or_inf(journal["loss"]), journal["step"]
    loss, norm, score = (
        finite_or_inf(journal[name]) for name in ("loss", "gradient_norm", "attention_score_max")
    )
    smooth, row = trailing_median(loss), divergence(journal)
    values = {
        "first_loss": raw[0],
        "lowest_loss": smooth.min(),
        "final_loss": smooth[-1],
        "norm_peak": norm.max(),
        "score_peak": score.max(),
    }
    if has_learned(journal):
        values["diverged"] = row is not None
    if row is not None:
        values |= {
            "divergence_step": steps[row],
            "loss_after": np.median(loss[row:]),
            "norm_before": np.median(norm[:row]),
            "score_before": np.median(score[:row]),
        }
        values["explosion"] = np.log10(values["norm_peak"] / values["norm_before"])
    ranges = {"norm_range": norm, "score_range": score}
    return {name: exact(float(value)) for name, value in values.items()} | {
        name: Interval(float(np.median(column)), float(column.min()), float(column.max()))
        for name, column in ranges.items()
    }
