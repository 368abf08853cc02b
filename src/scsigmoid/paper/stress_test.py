"""Compare the stress test (section "Training Stability") with the training journals.

The paper's runs *diverge for good*: the loss rises and does not fall again (:func:`divergence`).
This rule uses the training loss only. Studies count *diverged* runs by another rule, which was
registered (:mod:`scsigmoid.study.stability`): the loss may fall again, but the gradient explodes.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from scsigmoid.paper.number import LEVEL_FACTOR, ORDER_FACTOR, UNKNOWN, Number, exact
from scsigmoid.paper.reported import models_here, reported
from scsigmoid.records.measurements import Interval
from scsigmoid.results.folder import Journal, Results

GROUP = "stability"
#: Window of the trailing median, as a share of the rows of the journal. A short window also detects
#: divergence near the end of a run.
WINDOW = 0.01
#: A run has learned if its loss fell by this many nats. A run that has learned diverges for good if
#: its loss rises by this many nats above its minimum and stays there.
LOSS_CHANGE = 1.0


def numbers(results: Results) -> Iterator[Number]:
    models = ("softmax_8k", "sigmoid_8k")
    here = models_here(results.config)
    journals = {name: results.journal(here[name]) for name in models if name in here}
    runs = {name: numbers_of_run(journal) for name, journal in journals.items()}
    row_counts = {name: len(journal["step"]) for name, journal in journals.items()}
    softmax, sigmoid = (runs.get(name, {}) for name in models)
    # 1 or 0, NaN if unknown.
    of_softmax, of_sigmoid = (
        run.get("diverged_for_good", UNKNOWN).value for run in (softmax, sigmoid)
    )
    common: dict[str, Any] = {
        "group": GROUP, "location": "Abstract, Section 5.3", "no_effect": 0, "headline": True,
    }  # fmt: skip
    yield Number(
        **common, unit="", paper=Interval(1), here=exact(of_softmax - of_sigmoid),
        title="Softmax diverges for good and sigmoid does not (1 if so, 0 if both or neither)",
        n=min(row_counts.values(), default=0),
    )  # fmt: skip
    yield Number(
        **common, title="Growth of softmax's gradient norm when it diverges", unit="powers of ten",
        paper=Interval(reported()["printed"]["explosion"]), n=row_counts.get("softmax_8k", 0),
        here=softmax.get("explosion", UNKNOWN),
    )  # fmt: skip
    for level in reported()["stability"]:
        value, model = level["value"], level["model"]
        yield Number(
            group=GROUP, title=level["title"], location="Section 5.3, Figure 6", unit=level["unit"],
            # A list is a range.
            paper=Interval(math.nan, *value) if isinstance(value, list) else Interval(value),
            here=runs.get(model, {}).get(level["number"], UNKNOWN), n=row_counts.get(model, 0),
            factor=ORDER_FACTOR if level.get("order") else LEVEL_FACTOR,
        )  # fmt: skip


def numbers_of_run(journal: Journal) -> dict[str, Interval]:
    """Return the numbers of one run by name.

    A run that has not learned lacks ``diverged_for_good``. A run that has not diverged for good
    lacks the numbers before and after the divergence.
    """
    loss, norm, score = (
        finite_or_inf(journal[name]) for name in ("loss", "gradient_norm", "attention_score_max")
    )
    smooth = trailing_median(loss)
    row = divergence(journal)
    values = {
        "first_loss": loss[0],
        "lowest_loss": smooth.min(),
        "final_loss": smooth[-1],
        "norm_peak": norm.max(),
        "score_peak": score.max(),
    }
    if has_learned(journal):
        values["diverged_for_good"] = row is not None
    if row is not None:
        values |= {
            "divergence_step": journal["step"][row],
            "loss_after": np.median(loss[row:]),
            "norm_before": np.median(norm[:row]),
            "score_before": np.median(score[:row]),
        }
        values["explosion"] = np.log10(values["norm_peak"] / values["norm_before"])
    numbers = {name: exact(float(value)) for name, value in values.items()}
    for name, column in (("norm_range", norm), ("score_range", score)):
        numbers[name] = Interval(float(np.median(column)), float(column.min()), float(column.max()))
    return numbers


def finite_or_inf(values: np.ndarray) -> np.ndarray:
    """Replace NaN and -inf by inf, so that they count as large values."""
    return np.where(np.isfinite(values), values, np.inf)


def trailing_median(values: np.ndarray) -> np.ndarray:
    """Return, for each row, the median over the window (at least three rows) that ends there."""
    window = max(3, int(len(values) * WINDOW))
    values = finite_or_inf(values)
    ends = range(1, len(values) + 1)
    return np.array([np.median(values[max(0, end - window) : end]) for end in ends])


def has_learned(journal: Journal) -> bool:
    """Return True if the smoothed loss fell by :data:`LOSS_CHANGE` below its first finite value."""
    smooth = trailing_median(journal["loss"])
    finite = smooth[np.isfinite(smooth)]
    return bool(len(finite) and finite.min() <= finite[0] - LOSS_CHANGE)


def divergence(journal: Journal) -> int | None:
    """Return the row of the journal at which a run diverges for good, None if it does not.

    A run that has learned (:func:`has_learned`) diverges for good if its smoothed loss ends at
    least :data:`LOSS_CHANGE` above its lowest value, or if its last loss is not finite.
    """
    if not has_learned(journal):
        return None
    loss, smooth = finite_or_inf(journal["loss"]), trailing_median(journal["loss"])
    lowest = int(np.argmin(smooth))
    limit = smooth[lowest] + LOSS_CHANGE
    is_high = smooth >= limit
    is_high[: lowest + 1] = False  # a high loss before the minimum is not divergence
    if not (is_high[-1] or np.isinf(loss[-1])):
        return None
    # Start after the last row that is not high. The journal's last row counts as high: its median
    # is high, or its loss is infinite.
    start = int(np.flatnonzero(~is_high[:-1])[-1]) + 1
    # The loss itself rises up to half a window before its trailing median.
    while start > lowest + 1 and loss[start - 1] >= limit:
        start -= 1
    return start
