"""Compare the stress test (section "Training Stability") with the training journals."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from scsigmoid.measurements import Interval
from scsigmoid.paper.comparison import LEVEL, ORDER, UNKNOWN, Number, exact
from scsigmoid.paper.reported import reported
from scsigmoid.results.folder import Journal, Results

GROUP = "stability"
#: Window of the trailing median, as a share of all rows of the journal. A short window also detects
#: a divergence near the end of a run.
RECENT = 0.01
#: A run has learned if its loss fell by this many nats. A run that has learned diverges if its loss
#: rises by this many nats above its minimum.
NATS = 1.0


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
    """Return the numbers of one run by name. Some need a run that has learned or diverged."""
    loss, norm, score = (
        finite_or_inf(journal[name]) for name in ("loss", "gradient_norm", "attention_score_max")
    )
    smooth, row = trailing_median(loss), divergence(journal)
    values = {
        "first_loss": loss[0],
        "lowest_loss": smooth.min(),
        "final_loss": smooth[-1],
        "norm_peak": norm.max(),
        "score_peak": score.max(),
    }
    if has_learned(journal):
        values["diverged"] = row is not None
    if row is not None:
        values |= {
            "divergence_step": journal["step"][row],
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


def finite_or_inf(values: np.ndarray) -> np.ndarray:
    """Replace values that are not finite by infinity."""
    return np.where(np.isfinite(values), values, np.inf)


def trailing_median(values: np.ndarray) -> np.ndarray:
    """Return the median over the window that ends at each row (at least three rows)."""
    window = max(3, int(len(values) * RECENT))
    values = finite_or_inf(values)
    ends = range(1, len(values) + 1)
    return np.array([np.median(values[max(0, end - window) : end]) for end in ends])


def has_learned(journal: Journal) -> bool:
    """Return True if the smoothed loss ever fell by :data:`NATS` below its first finite value."""
    smooth = trailing_median(journal["loss"])
    first_loss = smooth[int(np.argmax(np.isfinite(smooth)))]  # infinite if all losses are
    return bool(np.isfinite(first_loss) and smooth.min() <= first_loss - NATS)


def divergence(journal: Journal) -> int | None:
    """Return the row from which a run stays diverged, or None if it does not diverge.

    A run diverges if it has learned (:func:`has_learned`), and its smoothed loss stays at least
    :data:`NATS` above its lowest value until the end or its last loss is not finite.
    """
    if not has_learned(journal):
        return None
    loss, smooth = finite_or_inf(journal["loss"]), trailing_median(journal["loss"])
    lowest = int(np.argmin(smooth))
    limit = smooth[lowest] + NATS
    is_high = smooth >= limit
    is_high[: lowest + 1] = False
    if not (is_high[-1] or np.isinf(loss[-1])):
        return None
    # The row after the last row that is not high. The last row of the run counts as high.
    start = int(np.flatnonzero(~is_high[:-1])[-1]) + 1
    # The trailing median lags behind the loss by half a window, so the loss rises earlier.
    while start > lowest + 1 and loss[start - 1] >= limit:
        start -= 1
    return start
