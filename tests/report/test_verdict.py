"""Sentences about scores."""

import pandas as pd
import pytest

from scsigmoid.report.verdict import verdicts


def table(metric: str = "logistic", cells: int = 1000, **scores: float) -> pd.DataFrame:
    rows = [
        {"dataset": "a", "model": name, "metric": metric, "value": value, "cells": cells}
        for name, value in scores.items()
    ]
    return pd.DataFrame(rows, columns=["dataset", "model", "metric", "value", "cells"])


@pytest.mark.parametrize(
    ("value", "cells", "words"),
    [
        (0.12, 1000, "not better than a random embedding: train longer"),
        (0.30, 10, "not better than a random embedding"),  # the error of 10 cells is 0.29
        (0.50, 1000, "better than a random embedding, but worse than PCA"),
        (0.81, 1000, "as good as PCA"),
        (0.95, 1000, "better than PCA"),
    ],
)
def test_scores_are_compared_with_the_controls(value: float, cells: int, words: str) -> None:
    (sentence,) = verdicts(table(model=value, random=0.1, pca_log_counts=0.8, cells=cells))
    assert words in sentence
    assert f"{value:.2f}" in sentence
    assert "0.10" in sentence
    assert "0.80" in sentence


def test_zero_has_no_sign() -> None:
    (sentence,) = verdicts(table(model=-0.001, random=-0.002))
    assert "-0" not in sentence
    assert sentence.count("0.00") == 2


def test_each_model_has_a_sentence_of_its_mean() -> None:
    both = pd.concat([table(one=0.2, two=0.6, random=0.1), table(one=0.8, two=0.6, random=0.1)])
    first, second = verdicts(both)
    assert "one is better" in first
    assert "0.50" in first
    assert "2,000 held-out cells" in first
    assert "0.60" in second
    # Without the metric or without scores, there are no sentences.
    assert "bio conservation 0.50" in verdicts(table("bio_conservation", one=0.5, random=0.1))[0]
    assert verdicts(table("leiden_nmi", one=0.5)) == []
    assert verdicts(table()) == []
