"""Versions of the rules, against numbers in the results of a small run.

If a number changes on purpose, results of the old code must be made again: raise the rule's number
in ``scsigmoid.config.versions`` and write both here.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_experiment import DATASET, MODEL, PART, Line

from scsigmoid.config.versions import VERSIONS
from scsigmoid.csv_rows import read_rows
from scsigmoid.measurements import Measurement
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import Vocabulary
from scsigmoid.training.journal import read_journal

SETTINGS = {
    "corpus": {
        "parts": 1,
        "embedded": {"training_cells": 100, "training_files": 1, "evaluation_cells": 96},
    },
    "training": {"steps": 6, "global_batch": 8, "log_every": 2},
    "evaluation": {"validation_loss": {"trials": 2}},
}
STAGES = (
    *("manifest", "fetch", "fetch-evaluation", "statistics", "vocabulary", "tokenize"),
    *("tokenize-evaluation", "train", "validation-loss"),
)
#: Version of each rule, and a number in its results.
RESULTS = {
    "vocabulary": (1, 4078026.9616),
    "training_tokens": (1, 48006.863425),
    "evaluation_tokens": (1, 50943.922760),
    "train": (1, 6.7959232),
    "validation_loss_of_model": (1, 6.8206131),
}


def mean_token(store: TokenStore) -> float:
    """Return the mean product of token and position in the cell."""
    tokens, ends = store.cells(range(len(store)), 1000)
    starts = np.repeat(ends[:-1], np.diff(ends))
    return float(np.mean(tokens.astype(float) * (np.arange(len(tokens)) - starts)))


def numbers(results: Path) -> dict[str, float]:
    """Return a number in the results of each rule."""
    vocabulary = Vocabulary.read(results / "tokens/vocabulary.parquet")
    losses = read_rows(results / f"metrics/loss/{MODEL}.csv", Measurement)
    return {
        "vocabulary": float((vocabulary.medians * vocabulary.cells).sum()),
        "training_tokens": mean_token(TokenStore.open(results / "tokens/training" / PART)),
        "evaluation_tokens": mean_token(TokenStore.open(results / "tokens/evaluation" / DATASET)),
        "train": float(read_journal(results / f"training/{MODEL}/journal.csv")[0]["loss"][-1]),
        "validation_loss_of_model": float(np.nanmean([row.value for row in losses])),
    }


def test_other_results_have_another_version(tmp_path: Path) -> None:
    line = Line(tmp_path / "results", SETTINGS)
    for stage in STAGES:  # in new processes: a fork lacks the threads that earlier tests started
        subprocess.run([sys.executable, "-m", "scsigmoid", *line.arguments(stage)], check=True)
    expected = {rule: (n, pytest.approx(value, rel=1e-4)) for rule, (n, value) in RESULTS.items()}
    results = numbers(line.results)
    assert {rule: (VERSIONS.get(rule, 1), value) for rule, value in results.items()} == expected
