"""Result files: types, order, and missing, damaged or swapped files."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_up_results import write_parquet
from scipy import stats

from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.records.measurements import Measurement, write_measurements
from scsigmoid.results.folder import Results


def test_values(results: Results) -> None:
    assert results.metadata("simulated_heart")["cells"] == 160
    assert results.validation_loss("simulated_heart", "sigmoid_128").n == 160
    cells, losses, donors = results.cell_losses("simulated_heart", "sigmoid_128")
    assert cells.tolist() == list(range(160))
    assert sorted(set(donors)) == ["donor 0", "donor 1", "donor 2", "donor 3"]
    assert losses.mean() == pytest.approx(
        results.validation_loss("simulated_heart", "sigmoid_128").value
    )
    assert results.journal("sigmoid_256")["step"][-1] == results.config.training.steps
    assert results.training_cells == 3000


def test_the_baseline_loss_is_the_entropy_of_the_genes(results: Results, tmp_path: Path) -> None:
    columns = {"token": range(6), "cells": [0, 0, 8, 4, 2, 2]}
    write_parquet(tmp_path / "tokens/vocabulary.parquet", columns)
    results = Results(tmp_path, results.config)
    assert results.baseline_loss == pytest.approx(1.75 * math.log(2))
    assert results.vocabulary_size == 6


def test_the_mean_score_is_over_the_papers_metrics(tmp_path: Path, config: Config) -> None:
    scores = {
        "logistic": {"sigmoid_256": 1.0},
        "silhouette_label": {"sigmoid_256": 0.5},
        "leiden_nmi": {"sigmoid_256": 0.6, "random": 0.9},
        "leiden_ari": {"sigmoid_256": 0.1},
    }
    for metric, values in scores.items():
        rows = [
            Measurement(dataset="simulated_heart", model=model, metric=metric, value=value)
            for model, value in values.items()
        ]
        write_measurements(tmp_path / f"metrics/{metric}/simulated_heart.csv", rows)

    def means(*metrics: str) -> dict[str, float]:
        scib = config.evaluation.scib.model_copy(update={"metrics": metrics})
        settings = config.model_copy(
            update={"evaluation": config.evaluation.model_copy(update={"scib": scib})}
        )
        # Without models: the rows lack the context, which would be compared.
        scores = Results(tmp_path, settings.model_copy(update={"models": {}})).scores(
            "simulated_heart"
        )
        return {model: row.value for model, row in scores["bio_conservation"].items()}

    assert means(*scores) == {"sigmoid_256": pytest.approx(0.4)}
    assert means("leiden_nmi") == {"sigmoid_256": 0.6, "random": 0.9}


def test_paired_difference(results: Results) -> None:
    """The interval equals scipy's, and is less than half as wide as the interval of a loss."""
    _, sigmoid, donors = results.cell_losses("simulated_heart", "sigmoid_256")
    _, softmax, _ = results.cell_losses("simulated_heart", "softmax_256")
    interval = results.paired_difference("simulated_heart", "sigmoid_256", "softmax_256")
    difference = sigmoid - softmax
    means = [difference[donors == donor].mean() for donor in sorted(set(donors))]  # four donors
    low, high = stats.t.interval(0.95, 3, np.mean(means), stats.sem(means))
    assert tuple(interval) == pytest.approx((np.mean(means), low, high))
    assert interval.high - interval.low < 0.5 * 2 * 1.96 * stats.sem(sigmoid)


def test_losses_of_different_cells_cannot_be_paired(copied: Path, config: Config) -> None:
    path = copied / "metrics/validation_loss/simulated_heart/softmax_256.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    with pytest.raises(
        UserError, match="simulated_heart: sigmoid_256 and softmax_256 were evaluated on"
    ):
        Results(copied, config).paired_difference("simulated_heart", "sigmoid_256", "softmax_256")


Read = Callable[[Results], object]


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("corpus/evaluation/simulated_heart.json", lambda r: r.metadata("simulated_heart")),
        ("benchmarks/kernel.csv", lambda r: r.kernel_rows),
        ("benchmarks/kernel.json", lambda r: r.machine("kernel")),
        ("training/sigmoid_256/journal.csv", lambda r: r.journal("sigmoid_256")),
    ],
)
def test_missing_and_damaged_files(copied: Path, config: Config, file: str, read: Read) -> None:
    (copied / file).write_text("nonsense\n1\n")
    with pytest.raises(UserError, match=file.rpartition("/")[2]) as damaged:
        read(Results(copied, config))
    (copied / file).unlink()
    with pytest.raises(UserError, match="no such") as missing:
        read(Results(copied, config))
    assert all("\n" not in str(error.value) for error in (damaged, missing))
