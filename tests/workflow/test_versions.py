"""Versions of the rules, compared with numbers in the results of a small run.

If a number changes on purpose, increase the version of the rule in ``scsigmoid.config.versions``,
so that results of the old code are made again, and update :data:`RESULTS`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scsigmoid.config.versions import VERSIONS
from scsigmoid.records.measurements import read_measurements
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import Vocabulary
from scsigmoid.training.journal import read_journal

#: Version of each rule, and a number in its results.
RESULTS = {
    "vocabulary": (1, 4434484.8442),
    "training_tokens": (1, 48456.871204),
    "evaluation_tokens": (1, 43183.875542),
    "train": (1, 6.8159766),
    "validation_loss_of_model": (1, 6.8176307),
}


def mean_token(store: TokenStore) -> float:
    """Return the mean product of token and position in the cell."""
    tokens, ends = store.cells(range(len(store)), 1000)
    starts = np.repeat(ends[:-1], np.diff(ends))
    return float(np.mean(tokens.astype(float) * (np.arange(len(tokens)) - starts)))


def numbers(results: Path) -> dict[str, float]:
    """Return a number in the results of each rule."""
    vocabulary = Vocabulary.read(results / "tokens/vocabulary.parquet")
    losses = read_measurements(results / "metrics/validation_loss/simulated_heart/sigmoid_128.csv")
    journal, *_ = read_journal(results / "training/sigmoid_128/journal.csv")
    return {
        "vocabulary": float((vocabulary.medians * vocabulary.cells).sum()),
        "training_tokens": mean_token(TokenStore.open(results / "tokens/training/part-00000")),
        "evaluation_tokens": mean_token(
            TokenStore.open(results / "tokens/evaluation/simulated_heart")
        ),
        "train": float(journal["loss"][-1]),
        "validation_loss_of_model": losses[0].value,
    }


def test_other_results_have_another_version(whole_run: Any) -> None:
    expected = {rule: (n, pytest.approx(value, rel=1e-4)) for rule, (n, value) in RESULTS.items()}
    results = numbers(whole_run.folder / "results/demo")
    assert {rule: (VERSIONS.get(rule, 1), value) for rule, value in results.items()} == expected
