"""Result files: types, order, and missing, damaged or swapped files."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_up_results import write_cells, write_parquet
from scipy import stats

from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.measurements import Measurement, read_measurements, write_measurements
from scsigmoid.results.folder import Results


def test_values(results: Results) -> None:
    assert results.metadata("heart_oft")["cells"] == 160
    assert results.validation_loss("heart_oft", "sigmoid_2k").n == 160
    cells, losses, donors = results.cell_losses("heart_oft", "sigmoid_2k")
    assert cells.tolist() == list(range(160))
    assert sorted(set(donors)) == ["donor 0", "donor 1", "donor 2", "donor 3"]
    assert losses.mean() == pytest.approx(results.validation_loss("heart_oft", "sigmoid_2k").value)
    assert results.journal("sigmoid_4k")["step"][-1] == results.config.training.steps
    assert results.training_cells == 3000
    assert results.training_cell_kind == "simulated"


def test_the_baseline_loss_is_the_entropy_of_the_genes(results: Results, tmp_path: Path) -> None:
    columns = {"token": range(6), "cells": [0, 0, 8, 4, 2, 2]}
    write_parquet(tmp_path / "tokens/vocabulary.parquet", columns)
    results = Results(tmp_path, results.config)
    assert results.baseline_loss == pytest.approx(1.75 * math.log(2))
    assert results.vocabulary_size == 6


def test_cells_are_sorted_and_unknown_donors_not_counted(copied: Path, config: Config) -> None:
    donors = ["unknown", "a", "", "a", "b"]
    columns = {"cell": [3, 1, 2, 4, 0], "donor": donors, "loss": [0.3, 0.1, 0.2, 0.4, 0.0]}
    write_cells(copied / "metrics/validation_loss/heart_oft/sigmoid_2k.parquet", columns)
    results = Results(copied, config)
    cells, losses, donors = results.cell_losses("heart_oft", "sigmoid_2k")
    assert cells.tolist() == [0, 1, 2, 3, 4]
    assert losses.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert donors.tolist() == ["b", "a", "", "unknown", "a"]
    assert results.donor_count("heart_oft", "sigmoid_2k") == 2


def test_the_mean_score_is_over_the_papers_metrics(tmp_path: Path, config: Config) -> None:
    scores = {
        "logistic": {"sigmoid_4k": 1.0},
        "silhouette_label": {"sigmoid_4k": 0.5},
        "leiden_nmi": {"sigmoid_4k": 0.6, "random": 0.9},
        "leiden_ari": {"sigmoid_4k": 0.1},
    }
    for metric, values in scores.items():
        rows = [
            Measurement(dataset="heart_oft", model=model, metric=metric, value=value)
            for model, value in values.items()
        ]
        write_measurements(tmp_path / f"metrics/{metric}/heart_oft.csv", rows)

    def means(*metrics: str) -> dict[str, float]:
        scib = replace(config.evaluation.scib, metrics=metrics)
        settings = replace(config, evaluation=replace(config.evaluation, scib=scib))
        # Without models: the rows lack the context, which would be compared.
        scores = Results(tmp_path, replace(settings, models={})).scores("heart_oft")
        return {model: row.value for model, row in scores["bio_conservation"].items()}

    assert means(*scores) == {"sigmoid_4k": pytest.approx(0.4)}
    assert means("leiden_nmi") == {"sigmoid_4k": 0.6, "random": 0.9}
    assert means("logistic") == {"sigmoid_4k": 1.0}


def test_paired_difference(results: Results) -> None:
    """The interval equals scipy's, and is less than half as wide as the interval of a loss."""
    _, sigmoid, donors = results.cell_losses("heart_oft", "sigmoid_4k")
    _, softmax, _ = results.cell_losses("heart_oft", "softmax_4k")
    interval = results.paired_difference("heart_oft", "sigmoid_4k", "softmax_4k")
    difference = sigmoid - softmax
    means = [difference[donors == donor].mean() for donor in sorted(set(donors))]  # four donors
    low, high = stats.t.interval(0.95, 3, np.mean(means), stats.sem(means))
    assert tuple(interval) == pytest.approx((np.mean(means), low, high))
    assert interval.high - interval.low < 0.5 * 2 * 1.96 * stats.sem(sigmoid)


def test_losses_of_different_cells_cannot_be_paired(copied: Path, config: Config) -> None:
    path = copied / "metrics/validation_loss/heart_oft/softmax_4k.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    with pytest.raises(UserError, match="heart_oft: sigmoid_4k and softmax_4k were evaluated on"):
        Results(copied, config).paired_difference("heart_oft", "sigmoid_4k", "softmax_4k")


HEART, SIGMOID = "heart_oft", "sigmoid_4k"
Read = Callable[[Results], object]


@pytest.mark.parametrize(
    ("file", "expected", "other", "read"),
    [
        ("metrics/mmd/{}.csv", HEART, "pbmc68k", lambda r: r.mmd(HEART)),
        ("metrics/{}/heart_oft.csv", "leiden_nmi", "leiden_ari", lambda r: r.scores(HEART)),
        ("metrics/validation_loss/heart_oft/{}.csv", SIGMOID, "softmax_4k",
         lambda r: r.validation_loss(HEART, SIGMOID)),
        ("metrics/validation_loss/{}/sigmoid_4k.parquet", HEART, "pbmc68k",
         lambda r: r.cell_losses(HEART, SIGMOID)),
        ("metrics/umap/heart_oft/{}.parquet", SIGMOID, "softmax_4k",
         lambda r: r.umap(HEART, SIGMOID)),
    ],
)  # fmt: skip
def test_files_of_other_models_or_datasets(
    copied: Path, config: Config, file: str, expected: str, other: str, read: Read
) -> None:
    target = file.format(expected)
    shutil.copy(copied / file.format(other), copied / target)
    with pytest.raises(UserError, match=rf"{target}: has \w+ '{other}', expected '{expected}'"):
        read(Results(copied, config))


def test_measurements_of_another_vocabulary(copied: Path, config: Config) -> None:
    path = copied / "metrics/mmd/heart_oft.csv"
    rows = [replace(row, vocabulary="e" * 64) for row in read_measurements(path)]
    write_measurements(path, rows)
    results = Results(copied, config)
    results.scores("heart_oft")
    with pytest.raises(UserError, match="has vocabulary eeeeeeeeeeee, expected empty"):
        results.mmd("heart_oft")


def test_a_missing_measurement_is_named(copied: Path, config: Config) -> None:
    path = copied / "metrics/mmd/heart_oft.csv"
    _, *rows = read_measurements(path)
    write_measurements(path, rows)
    with pytest.raises(UserError, match=r"mmd/heart_oft\.csv: damaged"):
        Results(copied, config).mmd("heart_oft")


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("corpus/evaluation/heart_oft.json", lambda r: r.metadata("heart_oft")),
        ("benchmarks/kernel.csv", lambda r: r.kernel_rows),
        ("benchmarks/kernel.json", lambda r: r.machine("kernel")),
        ("training/sigmoid_4k/journal.csv", lambda r: r.journal("sigmoid_4k")),
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
