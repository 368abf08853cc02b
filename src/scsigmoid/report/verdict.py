"""Scores of embeddings in words, compared with a random embedding and with PCA."""

import math
from collections.abc import Mapping

import pandas as pd

from scsigmoid.config.metrics import MEAN
from scsigmoid.labels import CONTROLS, METRICS

#: Scores that differ by less than this, or by less than twice the standard error of a share of the
#: cells, count as equal.
EQUAL = 0.02
ADVICE = "train longer (training.steps), on more cells, or a larger model (architecture.size)"


def verdicts(scores: pd.DataFrame) -> list[str]:
    """Return a sentence for each model, with the mean scores over the datasets.

    Args:
        scores: records of the table ``scib``: ``dataset``, ``model``, ``metric``, ``value`` and
            ``cells``.
    """
    metrics = scores["metric"].unique()
    metric = next((name for name in ("logistic", MEAN) if name in metrics), None)
    rows = scores[scores["metric"] == metric]
    means = rows.groupby("model", sort=False)["value"].mean()
    cells = int(rows.groupby("model")["cells"].sum().min()) if len(rows) else 0
    controls = {name: means[name] for name in CONTROLS if name in means}
    return [
        verdict(name, value, controls, cells, METRICS.get(str(metric), str(metric)))
        for name, value in means.items()
        if name not in CONTROLS
    ]


def verdict(
    model: object, value: float, controls: Mapping[str, float], cells: int, metric: str
) -> str:
    """Return a sentence that compares the score of a model with the controls."""
    share = min(max(value, 0.0), 1.0)
    equal = max(EQUAL, 2 * math.sqrt(share * (1 - share) / max(cells, 1)))
    random, pca = (controls.get(name, math.nan) for name in CONTROLS)
    better = "" if math.isnan(random) else "better than a random embedding"
    if value < random + equal:
        words = f"not better than a random embedding: {ADVICE}"
    elif value < pca - equal:
        start = f"{better}, but " if better else ""
        words = f"{start}worse than PCA, which is the better choice here: {ADVICE}"
    elif math.isnan(pca):
        words = better or "not compared"
    else:
        words = "better than PCA" if value > pca + equal else "as good as PCA"
    others = [f"{in_sentence(CONTROLS[name])} {score:z.2f}" for name, score in controls.items()]
    numbers = ", ".join([f"{in_sentence(metric)} {value:z.2f}", *others])
    return f"The embedding of {model} is {words} ({numbers}; {cells:,} held-out cells)."


def in_sentence(title: str) -> str:
    """Return a title in lower case, unless it begins with an abbreviation."""
    return title if title[:2].isupper() else title[0].lower() + title[1:]
